#include "cli/command_tree.h"

#include <algorithm>
#include <sstream>
#include <utility>

namespace tarry::cli {
namespace {

constexpr std::string_view examples_head = "Examples:";

Parameter parameter_of(const CLI::Option& option) {
  Parameter parameter;
  for (const auto& name : option.get_snames()) parameter.flags.push_back("-" + name);
  for (const auto& name : option.get_lnames()) parameter.flags.push_back("--" + name);
  const bool has_value = option.get_items_expected_max() > 0;
  if (has_value)
    parameter.value =
        option.get_option_text().empty() ? option.get_single_name() : option.get_option_text();
  parameter.help = option.get_description();
  parameter.variable = option.get_envname();
  parameter.is_required = option.get_required();
  parameter.is_repeated =
      option.get_expected_max() > 1 ||
      (has_value && option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll);
  return parameter;
}

}  // namespace

std::vector<const CLI::App*> commands_of(const CLI::App& group) {
  // CLI11 marks hidden commands by an empty group: `tarry man` is for packages.
  return group.get_subcommands(
      [](const CLI::App* command) { return !command->get_group().empty(); });
}

std::vector<Parameter> parameters_of(const CLI::App& command) {
  std::vector<Parameter> parameters;
  for (const auto* option : command.get_options())
    if (!option->get_group().empty()) parameters.push_back(parameter_of(*option));
  // Positional words come first, as they are typed; otherwise the order of adding stays.
  std::ranges::stable_partition(parameters, &Parameter::is_positional);
  return parameters;
}

std::string path_of(const CLI::App& command) {
  const auto* above = command.get_parent();
  return above == nullptr ? command.get_name() : path_of(*above) + " " + command.get_name();
}

std::string synopsis_of(const CLI::App& command) {
  std::string text = path_of(command);
  if (!commands_of(command).empty()) return text + " COMMAND";
  for (const auto& parameter : parameters_of(command)) {
    const std::string shown = parameter.is_positional()
                                  ? parameter.value
                                  : parameter.flags.back() + " " + parameter.value;
    // [OPTIONS] stands for all that may be left out.
    if (!parameter.is_positional() && !parameter.is_required) continue;
    const std::string more =
        parameter.is_positional() && parameter.is_repeated && !shown.ends_with("...") ? "..." : "";
    text += parameter.is_required ? " " + shown + more : " [" + shown + more + "]";
  }
  return text + " [OPTIONS]";
}

FoundCommand find_command(const CLI::App& program, const std::vector<std::string>& words) {
  FoundCommand found{&program, 0};
  for (; found.used < words.size(); ++found.used) {
    const auto below = commands_of(*found.command);
    // By aliases too: `ls` is `list`.
    const auto next = std::ranges::find_if(
        below, [&](const CLI::App* command) { return command->check_name(words[found.used]); });
    if (next == below.end()) break;
    found.command = *next;
  }
  return found;
}

void add_examples(CLI::App& command, const std::vector<std::string>& lines) {
  std::string text(examples_head);
  for (const auto& line : lines) text += "\n  " + line;
  command.footer(text);
}

std::vector<std::string> examples_of(const CLI::App& command) {
  std::istringstream text(command.get_footer());
  std::vector<std::string> lines;
  std::string line;
  std::getline(text, line);
  if (line != examples_head) return lines;
  while (std::getline(text, line))
    if (line.starts_with("  ")) lines.push_back(line.substr(2));
  return lines;
}

std::string help_of(const CLI::App& command) {
  // CLI::App::help() of the program is that of the command that was given.
  return command.get_formatter()->make_help(&command, path_of(command), CLI::AppFormatMode::Normal);
}

ShellLine split_line(std::string_view line) {
  ShellLine split;
  // Apart from the text, because '' is a word without any.
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    // As in a shell: within single quotes a backslash stands for itself.
    if (c == '\\' && quote != '\'' && i + 1 < line.size()) {
      split.last += line[++i];
      in_word = true;
    } else if (quote != 0) {
      c == quote ? void(quote = 0) : void(split.last += c);
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (std::exchange(in_word, false)) split.words.push_back(std::exchange(split.last, {}));
    } else {
      split.last += c;
      in_word = true;
    }
  }
  return split;
}

}  // namespace tarry::cli
