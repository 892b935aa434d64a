#include "cli/commands/completion.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/log.h"
#include "base/log_thread.h"
#include "cli/broker_names.h"
#include "cli/command_tree.h"
#include "cli/completion.h"
#include "cli/io/exit_status.h"
#include "cli/io/output.h"
#include "cli/man_page.h"
#include "cli/options.h"

namespace tarry::cli {
namespace {

int print_script(const std::string& shell) {
  Output out;
  out.write(shell_script(shell));
  return out.end(done);
}

struct ManOptions {
  std::string command;
  bool list = false;
};

int print_man_page(const CLI::App& program, const ManOptions& options) {
  const auto has_page = [](const CLI::App& command) {
    // These are told by the page of the program itself.
    return command.get_name() != "help" && command.get_name() != "version";
  };
  Output out;
  if (options.list) {
    for (const auto* command : commands_of(program))
      if (has_page(*command)) out.line(command->get_name());
    return out.end(done);
  }
  // 1: the program itself counts as found.
  const auto found = options.command.empty() ? FoundCommand{&program, 1}
                                             : find_command(program, {options.command});
  if (found.used == 0 || !has_page(*found.command))
    return usage_error(fmt::format("man: {}: there is no such page; `tarry man --list` shows all",
                                   printable(options.command)));
  out.write(man_page(program, *found.command));
  return out.end(done);
}

}  // namespace

void add_completion(CLI::App& program, Chosen& chosen) {
  auto* command = program.add_subcommand("completion", "Prints the completion script of a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "The shell")
      ->option_text("bash|zsh|fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([shell, &chosen] { chosen.run = [shell] { return print_script(*shell); }; });
  add_examples(*command, {"source <(tarry completion bash)",
                          "tarry completion fish > ~/.config/fish/completions/tarry.fish"});

  auto* man = program.add_subcommand("man", "Prints a man page")->group("");
  auto options = std::make_shared<ManOptions>();
  man->add_option("COMMAND", options->command, "The command (default: tarry itself)");
  man->add_flag("--list", options->list, "Lists the commands that have a page");
  man->callback([options, &program, &chosen] {
    chosen.run = [options, &program] { return print_man_page(program, *options); };
  });
}

std::optional<int> answer_completion(const CLI::App& program,
                                     const std::vector<std::string>& words) {
  // Answered before CLI11 sees the words: what is being typed is no valid command yet.
  if (words.empty() || words[0] != "__complete") return std::nullopt;
  ShellLine line;
  if (words.size() == 3 && words[1] == "--line") {
    line = split_line(words[2]);
    if (!line.words.empty()) line.words.erase(line.words.begin());  // The program.
  } else {
    const bool has_dashes = words.size() > 1 && words[1] == "--";
    line.words.assign(words.begin() + (has_dashes ? 2 : 1), words.end());
    if (!line.words.empty()) {
      line.last = std::move(line.words.back());
      line.words.pop_back();
    }
  }
  // A line of the log would stand in the middle of what is being typed.
  set_log_level(LogLevel::off);
  const auto typed = read_words(program, line.words);
  BrokerNames names(typed);
  Output out;
  out.write(text_of(complete(program, typed, line.last, names)));
  return out.end(done);
}

}  // namespace tarry::cli
