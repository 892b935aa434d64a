#include "cli/wrong_words.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/core.h>

#include "base/edit_distance.h"
#include "base/log.h"
#include "cli/command_tree.h"

namespace tarry::cli {
namespace {

// Two slips; a longer distance would suggest words that nobody meant.
constexpr std::size_t max_slips = 2;
// A longer word is no slip of a name, and the distance takes time in proportion to its length.
constexpr std::size_t max_word_bytes = 64;

struct OtherName {
  std::string_view theirs, ours;
};

// Options of kcat, rpk and Kafka's console tools.  The first line counts whose option the command
// has: -c is a number of records for `consume` and a config for `topic create`.
constexpr std::array<OtherName, 23> other_options{{
    {"-o", "--from"},
    {"-c", "-n"},
    {"-c", "--config"},
    {"-e", "--until-end"},
    {"-f", "--format"},
    {"-K", "--key-separator"},
    {"-r", "--replication-factor"},
    {"-p", "--partitions"},
    {"-n", "--limit"},
    {"--limit", "-n"},
    {"--num", "-n"},
    {"--num", "--limit"},
    {"--max-messages", "-n"},
    {"--offset", "--from"},
    {"--from-beginning", "--from"},
    {"--broker", "-b"},
    {"--broker-list", "-b"},
    {"--bootstrap-server", "-b"},
    {"--bootstrap-servers", "-b"},
    {"--property", "-X"},
    {"--consumer-property", "-X"},
    {"--producer-property", "-X"},
    {"--message", "-v"},
}};

constexpr std::array<OtherName, 12> other_commands{{
    {"topics", "topic list"},
    {"ls", "topic list"},
    {"list", "topic list"},
    {"groups", "group list"},
    {"consumer-groups", "group list"},
    {"users", "user list"},
    {"acls", "acl list"},
    {"configs", "config get"},
    {"pending", "delayed list"},
    {"cancel", "delayed cancel"},
    {"start", "serve"},
    {"server", "serve"},
}};

// "topic list" of `tarry topic list`.
std::string words_to(const CLI::App& command) {
  const std::string path = path_of(command);
  const auto blank = path.find(' ');
  return blank == path.npos ? std::string() : path.substr(blank + 1);
}

// For a better error: options before the command are the most common slip.
bool is_option_below(const CLI::App& app, const std::string& option) {
  return std::ranges::any_of(commands_of(app), [&](const CLI::App* command) {
    return command->get_option_no_throw(option) != nullptr || is_option_below(*command, option);
  });
}

// "--from" of "--from=end", "-o" of "-oend".
std::string option_in(const std::string& word) {
  return word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2);
}

bool is_option(const std::string& word) {
  return word.starts_with('-') && word.size() > 1 && word != "--";
}

std::string meant_option(const CLI::App& command, const std::string& option) {
  for (const auto& [theirs, ours] : other_options) {
    if (option == theirs && command.get_option_no_throw(std::string(ours)) != nullptr)
      return std::string(ours);
  }
  if (!option.starts_with("--")) return {};  // One letter is one slip away from all others.
  std::vector<std::string> names;
  for (const auto& parameter : parameters_of(command))
    for (const auto& flag : parameter.flags)
      if (flag.starts_with("--")) names.push_back(flag.substr(2));
  const std::string name = nearest_name(option.substr(2), names);
  return name.empty() ? name : "--" + name;
}

std::string unknown_option_text(const CLI::App& command, const std::string& word) {
  const std::string option = option_in(word);
  std::string text =
      fmt::format("{}: {}: there is no such option", words_to(command), printable(option));
  const auto parameters = parameters_of(command);
  // The commands of `topic` call it NAME.
  const std::string_view topic = command.get_parent()->get_name() == "topic" ? "NAME" : "TOPIC";
  const bool has_topic = std::ranges::any_of(parameters, [topic](const Parameter& parameter) {
    return parameter.is_positional() && parameter.value == topic;
  });
  if (has_topic && (option == "-t" || option == "--topic")) {
    text += fmt::format("; give the topic without an option: {}", synopsis_of(command));
  } else if (option == "--from-beginning" && command.get_option_no_throw("--from") != nullptr) {
    text += "; did you mean --from start?";
  } else if (const auto meant = meant_option(command, option); !meant.empty()) {
    text += fmt::format("; did you mean {}?", meant);
  }
  return fmt::format("{} (`{} --help` shows all)", text, path_of(command));
}

// The command that the words have led to; CLI11 lists those that it has read.
const CLI::App& read_command(const CLI::App& program) {
  const CLI::App* command = &program;
  while (true) {
    const auto below = command->get_subcommands();
    if (below.empty()) return *command;
    command = below.back();
  }
}

}  // namespace

std::string nearest_name(std::string_view word, const std::vector<std::string>& names) {
  std::string nearest;
  if (word.size() > max_word_bytes) return nearest;
  // Half of the letters at most, or a short word would be near to every other.
  std::size_t least = std::min(max_slips, word.size() / 2) + 1;
  for (const auto& name : names) {
    const auto distance = edit_distance(word, name);
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

std::string choices_of(const CLI::App& group) {
  std::string choice;
  for (const auto* command : commands_of(group))
    choice += (choice.empty() ? "" : ", ") + command->get_name();
  return choice;
}

std::string parse_error_text(const CLI::App& program, const CLI::ParseError& error) {
  const bool is_about_words = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  // `consume --topic=orders` lacks its topic because of an option that it does not have; the value
  // of one, as in `config set a=b --data /srv`, is read as an argument, and may be a wrong one.
  if (!is_about_words && dynamic_cast<const CLI::RequiredError*>(&error) == nullptr &&
      dynamic_cast<const CLI::ValidationError*>(&error) == nullptr)
    return error.what();
  const CLI::App& command = read_command(program);
  if (&command == &program) return error.what();
  auto words = command.remaining();
  // Behind "--" a word is no option, whatever it begins with.
  const auto options_end = std::ranges::find(words, std::string_view("--"));
  const auto option = std::ranges::find_if(words.begin(), options_end, is_option);
  if (option != options_end) return unknown_option_text(command, *option);
  std::erase(words, "--");
  if (!is_about_words || words.empty()) return error.what();
  return no_place_text(command, words.front());
}

std::string no_place_text(const CLI::App& command, const std::string& word) {
  return fmt::format("{}: {}: unexpected argument; usage: {}", words_to(command), printable(word),
                     synopsis_of(command));
}

std::string unknown_command_text(const CLI::App& above, const std::string& word) {
  const bool is_first = above.get_parent() == nullptr;
  const std::string before = is_first ? "" : above.get_name() + ": ";
  // "-bHOST", "--brokers=HOST"
  const std::string option = option_in(word);
  if (is_option(word) && is_option_below(above, option)) {
    return fmt::format("{}{}: options follow the command, as in `tarry topic list -b HOST:PORT`",
                       before, printable(option));
  }
  std::string meant;
  if (is_first) {
    const auto other = std::ranges::find(other_commands, word, &OtherName::theirs);
    if (other != other_commands.end()) meant = other->ours;
  }
  if (meant.empty() && !word.starts_with('-')) {
    std::vector<std::string> names;
    for (const auto* command : commands_of(above)) names.push_back(command->get_name());
    meant = nearest_name(word, names);
  }
  return fmt::format("{}{}: there is no such {}; {}{}", before, printable(word),
                     word.starts_with('-') ? "option" : "command",
                     meant.empty() ? "" : fmt::format("did you mean {}? ", meant),
                     is_first ? "`tarry --help` shows all" : choices_of(above));
}

}  // namespace tarry::cli
