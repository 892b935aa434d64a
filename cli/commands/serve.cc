#include "cli/commands/serve.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "base/log.h"
#include "base/log_format.h"
#include "base/log_thread.h"
#include "base/memory.h"
#include "cli/command_tree.h"
#include "cli/commands/serve_signals.h"
#include "cli/io/exit_status.h"
#include "cli/stop_limit.h"
#include "server/config_help.h"
#include "server/config_layers.h"
#include "server/properties_file.h"
#include "server/server.h"
#include "server/service_notices.h"
#include "server/setting.h"

namespace tarry::cli {
namespace {

using server::Setting;

// A key of the configuration that has a flag of its own.
struct Flag {
  const char* name;
  const char* key;
  const char* value;
  const char* help;
};
constexpr Flag flags[] = {
    {"--data", "tarry.data.dir", "DIR", "The data directory (default ./tarry-data)"},
    {"--listen", "listeners", "HOST:PORT",
     "The address for clients, without TLS (default localhost:9092; port 0: a free port); the key "
     "`listeners` sets several"},
    {"--advertise", "advertised.listeners", "HOST:PORT",
     "The address that the broker tells clients to connect to"},
    {"--admin", "tarry.admin.listener", "HOST:PORT|off",
     "The address of the admin, the HTTP interface for operators (default 127.0.0.1:8080)"},
    {"--shards", "tarry.shards", "N", "Threads that serve clients (default: one for each core)"},
    {"--log-level", "tarry.log.level", "debug|info|warn|error|off",
     "The lowest level to log (default info)"},
};

struct ServeOptions {
  std::optional<std::string> config;
  std::vector<std::string> set;
  std::array<std::optional<std::string>, std::size(flags)> flag_values;
  bool help_config = false;
};

// The time at which the process began.  Before main() it was only loaded and linked, so the CPU
// time that it has used until now is the time that has passed.
std::chrono::steady_clock::time_point process_start() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return std::chrono::steady_clock::now() - std::chrono::seconds(used.tv_sec) -
         std::chrono::nanoseconds(used.tv_nsec);
}
const auto started = process_start();

// A failed journal: nothing may be acknowledged after it, not even while the process stops.
[[noreturn]] void end_at_once(const Error& error) {
  log_error("server", "the broker ends at once, so that it acknowledges nothing more: {}",
            error.message);
  flush_log();
  ::_exit(failed);
}

// Every connection and every segment is an open file.
void raise_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    log_warn("server", "the limit of open files cannot be raised to its hard limit");
}

// Loses nothing that was acknowledged; the next start has more to recover.
[[noreturn]] void end_without_checkpoint(const std::string& why, int code) {
  log_warn("server",
           "{}: the broker ends without finishing its last requests and its checkpoint; everything "
           "acknowledged is in the journal, and the next start applies it",
           why);
  flush_log();
  ::_exit(code);
}

// A second signal does not wait for the stop in order.
void end_on_second_signal() {
  std::thread([] {
    const std::string signal = wait_for_end();
    end_without_checkpoint("a second signal, " + signal, done);
  }).detach();
}

// How long a stop in order may take.  A checkpoint of full journals takes less, so only a disk that
// does not answer any more exceeds it.
constexpr std::chrono::seconds stop_patience{120};

int run(const ServeOptions& options) {
  if (options.help_config) {
    fmt::print("{}", server::config_help());
    return done;
  }
  // First made and last destroyed, so that a pipe that nobody reads delays neither the shards nor
  // the end.
  const LogThread log;
  std::vector<std::vector<Setting>> layers;
  if (options.config) {
    auto file = server::read_properties(*options.config);
    if (!file) return failure(file.error().message);
    layers.push_back(std::move(*file));
  }
  auto& set = layers.emplace_back();
  for (const auto& word : options.set) {
    const auto equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      return usage_error(fmt::format("--set {}: give it as key=value, as in --set num.partitions=3",
                                     printable(word)));
    }
    set.push_back({"--set", word.substr(0, equals), word.substr(equals + 1)});
  }
  // The last layer: a flag counts more than --set, and that more than the file.
  auto& own = layers.emplace_back();
  for (std::size_t i = 0; i < std::size(flags); ++i) {
    if (!options.flag_values[i]) continue;
    const auto& flag = own.emplace_back(flags[i].name, flags[i].key, *options.flag_values[i]);
    // A wrong flag is an error in the command, a wrong line of the file is not.
    if (const auto checked = server::check_setting(flag); !checked) {
      // The key takes names and several addresses; the flag is for one address.
      const std::string& value = *options.flag_values[i];
      const bool is_address =
          std::string_view(flags[i].name) == "--listen" && !value.contains("://");
      return usage_error(is_address
                             ? fmt::format("--listen {}: expected HOST:PORT, as in "
                                           "localhost:9092 or [::1]:9092, PORT from 0 to 65535",
                                           printable(value))
                             : checked.error().message);
    }
  }
  auto config = server::make_config(layers);
  if (!config) return failure(config.error().message);
  config->broker.version = TARRY_VERSION;

  set_log_level(config->log_level);
  set_log_format(config->log_format);
  ::umask(077);  // No other user may read the records.
  raise_open_files();
  // Each thread would get an arena of its own, and memory that one frees would not serve the
  // others.
  limit_arenas(4);

  server::Server broker(std::move(*config), end_at_once);
  // Made after the broker and destroyed before it, because its watchdog asks the broker.
  server::ServiceNotices notices(server::ServiceManager::from_environment(),
                                 server::watchdog_period_from_environment());
  // Recovery may take longer than the service manager waits.
  notices.starting();
  if (const auto ready = broker.start(); !ready) return failure(ready.error().message);
  const auto admin = broker.admin();
  const auto where = fmt::format("kafka={} admin={} data={} shards={}", broker.kafka().text(),
                                 admin ? admin->text() : "off", broker.data(), broker.shards());
  log_info("server", "Tarry {} is ready: {}", TARRY_VERSION, where);
  fmt::print("tarry ready {} pid={} start_ms={} listeners={}\n", where, ::getpid(),
             std::chrono::duration_cast<std::chrono::milliseconds>(
                 std::chrono::steady_clock::now() - started)
                 .count(),
             broker.listeners());
  // A program that has started the broker waits for the line, and a pipe is not flushed by itself.
  std::fflush(stdout);
  notices.ready("serving " + where,
                [&broker](auto all_answered) { broker.ask_shards(std::move(all_answered)); });

  const char* signal = wait_for_end([&broker] { broker.reload(); });
  log_info("server", "{}: stopping", signal);
  notices.stopping(signal);
  // From here on a second signal, or a stop that takes too long, ends the process.
  end_on_second_signal();
  exit_after(stop_patience);
  if (const auto stopped = broker.stop(); !stopped)
    end_without_checkpoint(stopped.error().message, failed);
  log_info("server", "stopped");
  return done;
}

}  // namespace

void add_serve(CLI::App& program, Chosen& chosen) {
  auto* command = program.add_subcommand("serve", "Runs a broker");
  auto options = std::make_shared<ServeOptions>();
  command->add_option("--config", options->config, "Reads keys from a properties file")
      ->option_text("FILE")
      ->take_last();
  for (std::size_t i = 0; i < std::size(flags); ++i) {
    command->add_option(flags[i].name, options->flag_values[i], flags[i].help)
        ->option_text(flags[i].value)
        ->take_last();
  }
  command->add_option("--set", options->set, "Sets any key of the configuration; may be repeated")
      ->option_text("KEY=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  command->add_flag("--help-config", options->help_config,
                    "Prints every key with default, unit, range and reason");
  add_examples(*command, {"tarry serve --data ./tarry-data",
                          "tarry serve --config tarry.properties --set log.retention.ms=86400000"});
  command->callback([options, &chosen] { chosen.run = [options] { return run(*options); }; });
}

}  // namespace tarry::cli
