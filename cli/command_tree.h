#pragma once

// The parameters of the commands of CLI11's tree, in the words that help, man pages and completions
// share. All that they print is read from the tree, so a flag is described in one place only.
//
//   tarry ── topic ── create   parameters_of(): NAME, -b,--brokers, ..., --partitions, --config
//         │       └── list     examples_of():   "tarry topic list"
//         └── produce
//
// Hidden commands and options (an empty group, as CLI11 marks them) do not appear.  Pure.

#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"

namespace tarry::cli {

struct Parameter {
  std::vector<std::string> flags;  // "-b", "--brokers"; empty: it has a place instead.
  std::string value;               // "HOST:PORT", "TOPIC"; empty: a flag without a value.
  std::string help;
  std::string variable;  // The environment variable that also gives it, or empty.
  bool is_required = false, is_repeated = false;

  bool is_positional() const { return flags.empty(); }
  friend bool operator==(const Parameter&, const Parameter&) = default;
};

std::vector<const CLI::App*> commands_of(const CLI::App& group);
// Positional parameters come first, in their order.
std::vector<Parameter> parameters_of(const CLI::App& command);

// "tarry topic create"
std::string path_of(const CLI::App& command);
// "tarry topic create NAME [OPTIONS]"
std::string synopsis_of(const CLI::App& command);

// The command that these words lead to from `program`, as far as they are commands.
struct FoundCommand {
  const CLI::App* command;
  std::size_t used;  // How many of the words.
};
FoundCommand find_command(const CLI::App& program, const std::vector<std::string>& words);

// Shown below the help: two or more lines that can be typed as they are.
void add_examples(CLI::App& command, const std::vector<std::string>& lines);
std::vector<std::string> examples_of(const CLI::App& command);

// The text that `tarry COMMAND --help` prints.
std::string help_of(const CLI::App& command);

// The words of a shell's line: blanks part them, quotes and backslashes hold them together.  A
// quote that is not closed ends with the line.  `last` is the word at the line's end, empty after a
// blank, and is not in `words`.
struct ShellLine {
  std::vector<std::string> words;
  std::string last;
};
ShellLine split_line(std::string_view line);

}  // namespace tarry::cli
