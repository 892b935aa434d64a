#include "cli/options.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

#include <fmt/core.h>

#include "base/log.h"
#include "base/time_text.h"
#include "base/utf8.h"
#include "cli/io/exit_status.h"
#include "cli/io/host_port.h"
#include "cli/io/text.h"
#include "cli/kafka/settings.h"
#include "cli/wrong_words.h"

namespace tarry::cli {
namespace {

using Check = std::string (*)(std::string_view word);

CLI::Validator validator(Check check) {
  return CLI::Validator([check](std::string& word) { return check(word); }, "");
}

template <typename T>
std::string error_of(const Result<T>& result) {
  return result ? std::string() : result.error().message;
}

std::string check_number(std::string_view word, std::int64_t min, std::int64_t max) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error == std::errc{} && end == word.data() + word.size() && value >= min && value <= max)
    return {};
  return fmt::format("{} is not a number from {} to {}", printable(word), min, max);
}

std::string check_key_value(std::string_view word) {
  const auto equals = word.find('=');
  if (equals != word.npos && equals > 0) return {};
  return fmt::format("{}: give it as key=value, as in retention.ms=3600000", printable(word));
}

// librdkafka would read any other port as 0, and try it until the timeout.
std::string check_brokers(std::string_view word) {
  if (word.empty()) return "the address is empty; give HOST:PORT, as in 127.0.0.1:9092";
  for (std::string_view rest = word; !rest.empty();) {
    const auto end = std::min(rest.find(','), rest.size());
    std::string_view one = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (const auto scheme = one.find("://"); scheme != one.npos) one.remove_prefix(scheme + 3);
    while (one.ends_with(' ')) one.remove_suffix(1);
    const auto colon = one.rfind(':');
    // Without a port it is Kafka's own; an IPv6 address has its colons in brackets.
    if (colon == one.npos || one.ends_with(']')) continue;
    if (!check_number(one.substr(colon + 1), 1, 65535).empty()) {
      return fmt::format(
          "{}: the port is not a number from 1 to 65535; give HOST:PORT, as in "
          "127.0.0.1:9092",
          printable(one));
    }
  }
  return {};
}

}  // namespace

const CLI::Validator is_duration =
    validator([](std::string_view word) { return error_of(parse_duration(word)); });
const CLI::Validator is_timeout = validator([](std::string_view word) -> std::string {
  const auto duration = parse_duration(word);
  if (!duration) return duration.error().message;
  if (duration->count() > 0) return {};
  return fmt::format("{}: the timeout is too short; give 1ms or more", printable(word));
});
const CLI::Validator is_key_value = validator(check_key_value);
const CLI::Validator is_header = validator([](std::string_view word) -> std::string {
  const auto equals = word.find('=');
  if (equals != word.npos && equals > 0) return {};
  return fmt::format("{}: give it as HEADER=VALUE, as in x-delay=30m", printable(word));
});
const CLI::Validator is_schedule_id = validator([](std::string_view word) -> std::string {
  if (word.empty() || word.size() > 249)
    return fmt::format("an id has 1 to 249 bytes; this one has {}", word.size());
  if (!is_utf8(word)) return fmt::format("{} is not UTF-8", printable(word));
  // Ids and handles stand in the same place of a command, so the first character tells them apart.
  if (word[0] == '@')
    return fmt::format("{}: an id does not begin with @; only a handle does", printable(word));
  return {};
});
const CLI::Validator is_partition = validator([](std::string_view word) {
  return check_number(word, 0, std::numeric_limits<std::int32_t>::max());
});
const CLI::Validator is_count = validator([](std::string_view word) {
  return check_number(word, 1, std::numeric_limits<std::int32_t>::max());
});
const CLI::Validator is_host_port =
    validator([](std::string_view word) { return error_of(parse_host_port(word)); });
CLI::Validator is_size(std::uint64_t min, std::uint64_t max) {
  return CLI::Validator(
      [min, max](std::string& word) -> std::string {
        const auto size = parse_size(word);
        if (!size) return size.error().message;
        if (*size < min || *size > max)
          return fmt::format("{} is not a size from {} to {} bytes", printable(word), min, max);
        word = std::to_string(*size);
        return {};
      },
      "");
}
const CLI::Validator is_acks = validator([](std::string_view word) -> std::string {
  // -1 is what Kafka's protocol has for "all", and what older configurations say.
  if (word == "all" || word == "-1" || word == "1" || word == "0") return {};
  return fmt::format("{}: give all, 1 or 0", printable(word));
});
const CLI::Validator is_topic = validator([](std::string_view word) -> std::string {
  if (word.empty()) return "the topic's name is empty";
  if (word.size() > 249)
    return fmt::format("{}...: a topic's name has at most 249 bytes", printable(word, 32));
  // It is a part of paths in the admin, and of a directory's name.
  if (word.contains('/') || word.contains('\0'))
    return fmt::format("{}: a topic's name must not contain /", printable(word));
  return {};
});
const CLI::Validator is_group = validator([](std::string_view word) -> std::string {
  if (word.empty()) return "the group's name is empty";
  // A string of Kafka's protocol holds no more bytes, and librdkafka takes names that end with a
  // NUL.
  if (word.size() > 32'767 || word.contains('\0'))
    return fmt::format("{}...: a group's name has at most 32767 bytes and no NUL",
                       printable(word, 32));
  return {};
});

KafkaSettings BrokerOptions::kafka() const {
  KafkaSettings settings{brokers, timeout, properties, timeout_given};
  const char* const file = std::getenv("TARRY_CLIENT_CONFIG");
  if (file != nullptr && *file != '\0')
    settings.properties.insert(settings.properties.begin(), fmt::format("@{}", file));
  return settings;
}

std::string broker_flags(const BrokerOptions& options) {
  std::string flags;
  const auto add = [&](const char* name, const std::string& value, const char* variable,
                       std::string_view by_default) {
    const char* const set = std::getenv(variable);
    const bool is_set = set != nullptr && *set != '\0';
    if (value == (is_set ? std::string_view(set) : by_default)) return;
    if (const auto word = shell_word(value)) flags += fmt::format(" {} {}", name, *word);
  };
  const BrokerOptions defaults{};
  add("-b", options.brokers, "TARRY_BROKERS", defaults.brokers);
  add("--admin", options.admin, "TARRY_ADMIN", defaults.admin);
  add("--admin-ca", options.admin_ca, "TARRY_ADMIN_CA", defaults.admin_ca);
  if (const auto word = options.data ? shell_word(*options.data) : std::nullopt)
    flags += fmt::format(" --data {}", *word);
  return flags;
}

void add_broker_options(CLI::App& command, BrokerOptions& options) {
  command
      .add_option("-b,--brokers", options.brokers,
                  "The broker's address (default $TARRY_BROKERS, or 127.0.0.1:9092)")
      ->option_text("HOST:PORT[,...]")
      ->envname("TARRY_BROKERS")
      ->check(validator(check_brokers))
      ->each([&options](const std::string&) { options.brokers_given = true; })
      ->take_last();
  command
      .add_option(
          "--admin", options.admin,
          "The address of the same broker's admin HTTP, with https:// before it for an admin with "
          "TLS (default $TARRY_ADMIN, or 127.0.0.1:8080)")
      ->option_text("HOST:PORT")
      ->envname("TARRY_ADMIN")
      ->check(is_host_port)
      ->each([&options](const std::string&) { options.admin_given = true; })
      ->take_last();
  command
      .add_option(
          "--admin-ca", options.admin_ca,
          "A PEM file with the authorities that may have signed the certificate of an admin with "
          "TLS (default $TARRY_ADMIN_CA, or the system's)")
      ->option_text("FILE")
      ->envname("TARRY_ADMIN_CA")
      ->take_last();
  command.add_flag("--json", options.json, "Prints JSON, one object per line");
  command
      .add_option_function<std::string>(
          "--timeout",
          [&options](const std::string& word) {
            options.timeout = *parse_duration(word);
            options.timeout_given = true;
          },
          "How long to wait for the broker, including its start (default 10s)")
      ->option_text("D")
      ->check(is_timeout)
      ->take_last();
  // librdkafka itself checks a property, so that a wrong one is wrong usage and no failure later.
  add_repeated(command, "-X", options.properties,
               "Sets a librdkafka property, or all those in FILE, one KEY=VALUE per line; the file "
               "$TARRY_CLIENT_CONFIG is read first")
      ->option_text("KEY=VALUE|@FILE")
      ->check(validator([](std::string_view word) {
        return is_properties_file(word) ? std::string() : check_key_value(word);
      }))
      ->check(validator([](std::string_view word) { return error_of(check_property(word)); }));
}

void take_broker_options(CLI::App& command) {
  for (const char* names : {"-b,--brokers", "--admin", "--admin-ca", "--timeout", "-X"}) {
    // Without a group it is hidden.
    command.add_option_function<std::string>(names, [](const std::string&) {})
        ->take_last()
        ->group("");
  }
}

void add_data_option(CLI::App& command, BrokerOptions& options) {
  command
      .add_option("--data", options.data,
                  "The broker's data directory, for the admin's token in it (default "
                  "$TARRY_ADMIN_TOKEN, or ./tarry-data)")
      ->option_text("DIR")
      ->take_last();
}

CLI::Option* add_repeated(CLI::App& command, const std::string& names,
                          std::vector<std::string>& words, const std::string& help) {
  // Otherwise the option would take the words that follow too, which have a place of their own.
  return command.add_option(names, words, help)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

CLI::App* add_group(CLI::App& program, Chosen& chosen, const std::string& name,
                    const std::string& help) {
  auto* group = program.add_subcommand(name, help);
  group->require_subcommand(0, 1);
  // The number of unknown words before the command.
  const auto words_before = std::make_shared<std::size_t>(0);
  // Takes any word, so that the callback can name the choices; CLI11 would only say that the word
  // was not expected.  Set here and not earlier, or the group's commands would inherit it.
  group->preparse_callback([group, words_before](std::size_t) {
    group->allow_extras();
    for (auto* command : group->get_subcommands([](CLI::App*) { return true; })) {
      command->preparse_callback(
          [group, words_before](std::size_t) { *words_before = group->remaining().size(); });
    }
  });
  group->callback([group, name, words_before, &chosen] {
    const auto words = group->remaining();
    const auto commands = group->get_subcommands();
    if (words.empty() && !commands.empty()) return;
    std::string why;
    if (words.empty()) {
      why = fmt::format("{}: a command is missing: {}", name, choices_of(*group));
    } else if (commands.empty() || *words_before > 0) {
      why = unknown_command_text(*group, words.front());
    } else {
      // A command that has all of its words leaves those behind -- to its group.
      why = no_place_text(*commands.front(), words.front());
    }
    chosen.run = [why] { return usage_error(why); };
  });
  return group;
}

}  // namespace tarry::cli
