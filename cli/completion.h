#pragma once

// The words that are possible at the cursor, for the completions of bash, zsh and fish.
//
// The shells' own scripts (shell_script()) only ask `tarry __complete` and show what it answers, so
// that all of them know the same and nothing about a command is written twice.  A first line says
// what follows: `words`, with a line for each (its description after a tab), or `files` or
// `directories`, which the shell completes itself.
//
// Pure, but for the names that a broker tells, which `NameSource` gets.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"

namespace tarry::cli {

// The words before the cursor.
struct TypedWords {
  const CLI::App* command;                    // The last command that was named.
  std::vector<std::string> positionals;       // Behind it.
  std::map<std::string, std::string> values;  // By the last flag of an option: "--brokers".
  std::string open_option;                    // Its value is the word at the cursor; or empty.
  bool only_positionals = false;              // "--" was typed.
};
TypedWords read_words(const CLI::App& program, const std::vector<std::string>& words);

struct Completion {
  enum class Kind { words, files, directories };
  struct Word {
    std::string text, help;
  };
  Kind kind = Kind::words;
  std::vector<Word> words;  // Each begins with what stands at the cursor.
};

// The names that a broker knows.  An empty list when it does not answer.
class NameSource {
 public:
  virtual ~NameSource() = default;
  virtual std::vector<std::string> topics() = 0;
  virtual std::vector<std::string> groups() = 0;
  // Ids of pending records that begin with `prefix`.
  virtual std::vector<std::string> ids(const std::string& topic, const std::string& prefix) = 0;
  virtual std::vector<std::string> topic_configs(const std::string& topic) = 0;
  virtual std::vector<std::string> broker_configs() = 0;
};

Completion complete(const CLI::App& program, const TypedWords& typed, const std::string& word,
                    NameSource& names);

// The text that `tarry __complete` prints.
std::string text_of(const Completion& completion);

// `shell` is "bash", "zsh" or "fish".
std::string_view shell_script(std::string_view shell);

}  // namespace tarry::cli
