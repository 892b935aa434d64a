#include "cli/commands/relay.h"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"
#include "base/log_thread.h"
#include "cli/command_tree.h"
#include "cli/io/exit_status.h"
#include "cli/io/host_port.h"
#include "cli/io/interrupt.h"
#include "cli/kafka/loopback_check.h"
#include "cli/kafka/settings.h"
#include "cli/options.h"
#include "relay/options.h"
#include "relay/relay.h"
#include "relay/stop.h"
#include "server/listener_config.h"
#include "server/system_clock.h"
#include "server/system_random.h"
#include "server/tls_context.h"

namespace tarry::cli {
namespace {

// A log that nobody reads must not keep the process.
constexpr std::chrono::milliseconds log_patience{300};

struct RelayCommand {
  relay::RelayOptions relay;
  std::string admin = "127.0.0.1:8081";
  std::string loopback_reads = "open";
  std::string keystore;  // Empty: plain HTTP.
  std::string delivery = "exactly-once";
  std::string memory = "256MiB";
};

std::optional<std::size_t> bytes_in(std::string_view text) {
  std::size_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc{} || number == 0) return std::nullopt;
  const std::string_view unit(read.ptr, text.data() + text.size());
  for (const auto& [name, shift] : {std::pair{"", 0u}, {"KiB", 10u}, {"MiB", 20u}, {"GiB", 30u}}) {
    // A larger number would overflow when it is shifted.
    if (unit == name && number <= (std::size_t{1} << 50) >> shift) return number << shift;
  }
  return std::nullopt;
}

int stopped() {
  log_info("relay", "stopped");
  return done;
}

// The main thread may be inside librdkafka, so nothing is destroyed: the store is as after a crash,
// which its next start expects.
void end_without_leaving() {
  log_warn("relay",
           "stopped without leaving the group, because Kafka did not answer in time: the other "
           "members take over when this member's session times out");
  flush_log(log_patience);
  ::_exit(done);
}

// The admin's, as that of a broker with tarry.admin.tls.keystore.location.
Result<std::shared_ptr<ssl_ctx_st>> certificate_in(const std::string& keystore, WallTime now) {
  server::ListenerConfig config;
  config.tls_prefix = "tarry.admin.tls.";
  config.settings.emplace("tarry.admin.tls.keystore.location", keystore);
  auto made = server::TlsContext::make(config, now);
  if (!made)
    return fail(Errc::invalid, fmt::format("--admin-tls-keystore: {}", made.error().message));
  // Points to OpenSSL's object, and keeps the TlsContext alive that owns it.
  return std::shared_ptr<ssl_ctx_st>(*made, (*made)->get());
}

void renew_certificate(const std::string& keystore, relay::Relay& member, WallTime now) {
  if (keystore.empty())
    return log_info("relay", "SIGHUP: there is no certificate to read (--admin-tls-keystore)");
  auto made = certificate_in(keystore, now);
  const Result<> used =
      made ? member.use_certificate(std::move(*made)) : Result<>(std::unexpected(made.error()));
  if (used) {
    log_info("relay", "SIGHUP: the admin has read its certificate and its authorities again");
  } else {
    log_error("relay", "SIGHUP: the admin keeps its certificate and its authorities: {}",
              used.error().message);
  }
}

int run(const RelayCommand& command) {
  auto options = command.relay;
  if (command.delivery == "at-least-once") {
    options.delivery = relay::Delivery::at_least_once;
  } else if (command.delivery != "exactly-once") {
    return usage_error(fmt::format("--delivery {}: give exactly-once or at-least-once",
                                   printable(command.delivery)));
  }
  const auto memory = bytes_in(command.memory);
  if (!memory)
    return usage_error(
        fmt::format("--memory {}: give a size such as 512MiB or 2GiB", printable(command.memory)));
  options.memory = *memory;
  const auto admin = parse_host_port(command.admin);
  if (!admin) return usage_error(fmt::format("--admin: {}", admin.error().message));
  options.admin.host = admin->host;
  std::from_chars(admin->port.data(), admin->port.data() + admin->port.size(), options.admin.port);
  options.admin.loopback_reads = command.loopback_reads != "token";
  if (options.admin.loopback_reads && command.loopback_reads != "open")
    return usage_error(fmt::format("--admin-loopback-reads {}: give open or token",
                                   printable(command.loopback_reads)));
  if (!options.advertise.empty())
    if (const auto address = parse_host_port(options.advertise); !address)
      return usage_error(fmt::format("--advertise: {}", address.error().message));
  for (const auto& property : options.properties)
    if (const auto checked = check_property(property); !checked)
      return usage_error(fmt::format("-X {}", checked.error().message));
  auto properties = expand_properties(options.properties);
  if (!properties) return usage_error(fmt::format("-X {}", properties.error().message));
  options.properties = std::move(*properties);
  if (const auto checked = relay::check(options); !checked)
    return usage_error(checked.error().message);
  // librdkafka would try again until its time is over, and then not say why.
  if (all_refused_on_loopback(options.brokers))
    return failure(fmt::format("--brokers {}: nothing listens there", printable(options.brokers)));

  const LogThread log;
  // Other commands are silent; this one is a service, whose log is read.
  set_log_level(LogLevel::info);
  ::umask(077);  // No other user may read the data directory.
  // Before the group is joined: a member that leaves in order gives its partitions to the others at
  // once.
  end_in_order_on_signals();
  note_hangups();
  relay::Stop stop(was_interrupted, end_without_leaving);
  const server::SystemClock clock;
  server::SystemRandom random;
  if (!command.keystore.empty()) {
    auto made = certificate_in(command.keystore, clock.wall());
    if (!made) return failure(made.error().message);
    options.admin.tls = std::move(*made);
  }
  auto member = relay::Relay::open(options, TARRY_VERSION, clock, random);
  // A cluster that could not be used matters to nobody who has ended the start.
  if (!member && was_interrupted()) return stopped();
  if (!member) return failure(member.error().message);
  const auto ready = [&] {
    fmt::print("relay ready brokers={} admin={} data={} group={} pid={}\n", options.brokers,
               (*member)->admin(), (*member)->data(), options.group, ::getpid());
    // A program that has started this one waits for the line, and a pipe is not flushed by itself.
    std::fflush(stdout);
  };
  const auto ended = (*member)->run(stop, ready, [&] {
    if (take_hangup()) renew_certificate(command.keystore, **member, clock.wall());
  });
  if (!ended) return failure(ended.error().message);
  return stopped();
}

}  // namespace

void add_relay(CLI::App& program, Chosen& chosen) {
  auto command = std::make_shared<RelayCommand>();
  auto* app = program.add_subcommand(
      "relay", "Delays the records of a Kafka cluster, as a member of a consumer group");
  const auto add = [&](const char* names, auto& value, const char* text, const char* help) {
    return app->add_option(names, value, help)->option_text(text)->take_last();
  };
  add("-b,--brokers", command->relay.brokers, "HOST:PORT[,...]",
      "The addresses of the cluster (default $TARRY_BROKERS)")
      ->envname("TARRY_BROKERS")
      ->required();
  add("--source", command->relay.source, "GLOB",
      "The topics whose records are delayed (default *.delayed)");
  add("--group", command->relay.group, "NAME",
      "The consumer group of all members; the state topics begin with its name (default relay)");
  add("--standby", command->relay.standby, "N",
      "How many other members keep a warm copy of each partition (default 0)")
      ->check(CLI::Range(0, 100));
  add("--delivery", command->delivery, "exactly-once|at-least-once",
      "at-least-once is faster and may deliver a record twice, or after its cancellation (default "
      "exactly-once)");
  add("--deliver-to", command->relay.deliver_to, "GLOB",
      "The topics that the header x-deliver-to may name (default: only the one with the source's "
      "name without .delayed)");
  app->add_flag("--same-partition", command->relay.same_partition,
                "Delivers to the partition that has the number of the source partition (default: "
                "the key decides, as in the Java client)");
  add("--data", command->relay.data, "DIR",
      "The directory for this member's name and its store of pending records (default "
      "./tarry-relay)");
  add("--instance", command->relay.instance, "ID",
      "The name of this member in /status and logs (default: generated once, and kept in the data "
      "directory)");
  add("--memory", command->memory, "SIZE",
      "The memory of the store of pending records, for its cache and the rows that are not on disk "
      "yet (default 256MiB)");
  add("--admin", command->admin, "HOST:PORT",
      "The address of this member's admin over HTTP, port 0: a free port (default 127.0.0.1:8081)");
  add("--admin-loopback-reads", command->loopback_reads, "open|token",
      "token: reading on loopback needs a token, too (default open)");
  add("--admin-tls-keystore", command->keystore, "FILE",
      "A PEM file with the admin's private key and certificates; with it the admin serves HTTPS "
      "only, and uses HTTPS to reach the other members");
  add("--admin-ca", command->relay.admin.ca, "FILE",
      "A PEM file with the authorities that have signed the other members' certificates (default: "
      "the system's)")
      ->needs("--admin-tls-keystore");
  add("--advertise", command->relay.advertise, "HOST:PORT",
      "The address at which the other members reach this member's admin (default: that of "
      "--admin)");
  add_repeated(*app, "-X", command->relay.properties,
               "Sets a librdkafka property, such as those for SASL and TLS, or all those in FILE, "
               "one KEY=VALUE per line")
      ->option_text("KEY=VALUE|@FILE");
  add_examples(*app,
               {"tarry relay --brokers kafka-1:9092,kafka-2:9092 --data /var/lib/tarry-relay",
                "tarry relay -b 127.0.0.1:9092 --source 'shop.*.delayed' --deliver-to 'shop.*'"});
  app->callback([command, &chosen] { chosen.run = [command] { return run(*command); }; });
}

}  // namespace tarry::cli
