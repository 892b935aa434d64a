#pragma once

// The flags that all commands share which talk to a broker, and checks of words as they are read: a
// word that is not allowed ends the program with status 2 and one line that has the word.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/kafka/settings.h"

namespace tarry::cli {

struct BrokerOptions {
  std::string brokers = "127.0.0.1:9092";
  std::string admin = "127.0.0.1:8080";
  std::string admin_ca;  // The authorities of an admin with TLS; empty: the system's.
  // By a flag or by a variable, not by the default.
  bool brokers_given = false, admin_given = false;
  bool json = false;
  std::chrono::milliseconds timeout = std::chrono::seconds{10};
  bool timeout_given = false;           // Then commands wait for a broker that is just starting.
  std::optional<std::string> data;      // The admin's token is there; by add_data_option().
  std::vector<std::string> properties;  // key=value or @FILE, checked.

  // With the properties of $TARRY_CLIENT_CONFIG, which those of -X override.
  KafkaSettings kafka() const;
};

// -b, --admin, --admin-ca, --json, --timeout, -X.  `options` must live as long as `command`.
void add_broker_options(CLI::App& command, BrokerOptions& options);

// The same flags, but for --json, for a command that asks no broker: not in its help, and without
// effect.  A script may give them to all commands alike.
void take_broker_options(CLI::App& command);

// The flags that name the broker, as in " -b HOST:PORT --admin HOST:PORT", for a command that is
// printed for the user.  Those that only repeat a variable or a default are left out.
std::string broker_flags(const BrokerOptions& options);

// --data, for a command that may need the admin's token.
void add_data_option(CLI::App& command, BrokerOptions& options);

// An option that may be given again and again, one word each time.
CLI::Option* add_repeated(CLI::App& command, const std::string& names,
                          std::vector<std::string>& words, const std::string& help);

// A group of commands such as `topic`, which does nothing itself.
CLI::App* add_group(CLI::App& program, Chosen& chosen, const std::string& name,
                    const std::string& help);

// Adds a command to a group.  Its options have a member `broker` of type BrokerOptions; the options
// that are returned live as long as the command.
template <typename Options>
std::pair<CLI::App*, Options*> add_broker_command(CLI::App& group, Chosen& chosen,
                                                  const std::string& name, const std::string& help,
                                                  int (*run)(const Options&)) {
  auto options = std::make_shared<Options>();
  auto* command = group.add_subcommand(name, help);
  add_broker_options(*command, options->broker);
  if (name == "list") command->alias("ls");
  command->callback(
      [options, run, &chosen] { chosen.run = [options, run] { return run(*options); }; });
  return {command, options.get()};
}

// For CLI::Option::check(): each refuses a word that is not of its kind, with an error that shows
// the word.
extern const CLI::Validator is_duration;
extern const CLI::Validator is_timeout;  // A duration that is not 0.
extern const CLI::Validator is_key_value;
extern const CLI::Validator is_header;  // NAME=VALUE
extern const CLI::Validator is_schedule_id;
extern const CLI::Validator is_partition;
extern const CLI::Validator is_count;  // 1 or more.
extern const CLI::Validator is_host_port;
// A size from `min` to `max` bytes, as in 64KiB; it becomes the number of bytes.
CLI::Validator is_size(std::uint64_t min, std::uint64_t max);
extern const CLI::Validator is_acks;
extern const CLI::Validator is_topic;
extern const CLI::Validator is_group;

}  // namespace tarry::cli
