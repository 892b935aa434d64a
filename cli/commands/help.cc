#include "cli/commands/help.h"

#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "base/log.h"
#include "cli/command_tree.h"
#include "cli/io/exit_status.h"
#include "cli/io/json.h"
#include "cli/io/output.h"
#include "cli/options.h"
#include "cli/wrong_words.h"

namespace tarry::cli {
namespace {

int print_help(const CLI::App& program, const std::vector<std::string>& words) {
  const auto found = find_command(program, words);
  // Words that name no command are told, instead of the help of the group in which they are
  // missing.
  if (found.used < words.size())
    return usage_error("help: " + unknown_command_text(*found.command, words[found.used]));
  Output out;
  out.write(help_of(*found.command));
  return out.end(done);
}

int print_version(const CLI::App& program, bool json) {
  Output out;
  const std::string text = program.version();
  // It begins with the program's name.
  out.line(json ? text_of(Json{{"version", text.substr(text.rfind(' ') + 1)}}) : text);
  return out.end(done);
}

}  // namespace

void add_help(CLI::App& program, Chosen& chosen) {
  auto* help = program.add_subcommand("help", "Shows the help of a command");
  auto words = std::make_shared<std::vector<std::string>>();
  help->add_option("COMMAND", *words, "The command, as in topic create (default: all commands)")
      ->expected(0, CLI::detail::expected_max_vector_size);
  help->callback([words, &program, &chosen] {
    chosen.run = [words, &program] { return print_help(program, *words); };
  });
  add_examples(*help, {"tarry help", "tarry help topic create"});

  auto* version = program.add_subcommand("version", "Shows the version");
  auto json = std::make_shared<bool>(false);
  version->add_flag("--json", *json, "Prints JSON");
  take_broker_options(*version);
  version->callback([json, &program, &chosen] {
    chosen.run = [json, &program] { return print_version(program, *json); };
  });
  add_examples(*version, {"tarry version", "tarry --version"});
}

}  // namespace tarry::cli
