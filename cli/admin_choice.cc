#include "cli/admin_choice.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"
#include "cli/io/exit_status.h"
#include "cli/io/json.h"
#include "cli/kafka/admin.h"

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;

// A command that only reads can do without Kafka's answer, so it does not wait long for it.
constexpr std::chrono::milliseconds max_wait_of_readers = 2s;

// A reader waits for less: what it shows is worth less than a change that must not go astray.
Result<BrokerRun> kafka_run(const BrokerOptions& options, AdminUse use, const BrokerRun& of_admin) {
  auto settings = options.kafka();
  if (use == AdminUse::reads) settings.timeout = std::min(settings.timeout, max_wait_of_readers);
  auto kafka = KafkaAdmin::open(settings);
  if (!kafka) return std::unexpected(kafka.error());
  return run_of(*kafka, of_admin);
}

// Two brokers on copies of one directory have one cluster id, which is why start ids exist.
std::string difference(const BrokerRun& of_admin, const BrokerRun& of_kafka) {
  if (of_admin.cluster_id != of_kafka.cluster_id) {
    return fmt::format("their cluster ids are {} and {}", printable(of_admin.cluster_id),
                       printable(of_kafka.cluster_id));
  }
  return fmt::format(
      "both have the cluster id {}, as a copy of a data directory has, but their start ids are {} "
      "and {}",
      printable(of_admin.cluster_id), printable(of_admin.start_id),
      of_kafka.start_id.empty() ? "(none)" : printable(of_kafka.start_id));
}

}  // namespace

AdminSettings admin_settings(const BrokerOptions& options) {
  return {options.admin, options.timeout, options.timeout_given, options.data, options.admin_ca};
}

Result<BrokerRun> run_of(AdminClient& admin) {
  const auto body = admin.get("/status");
  if (!body) return std::unexpected(body.error());
  const Json status = parse_json(*body);
  if (!status.is_object() || !status.contains("cluster_id") || !status["cluster_id"].is_string())
    return fail(Errc::io, "the admin's /status has no cluster id");
  BrokerRun run;
  run.cluster_id = status["cluster_id"].get<std::string>();
  if (status.contains("start_id") && status["start_id"].is_string())
    run.start_id = status["start_id"].get<std::string>();
  if (status.contains("node_id") && status["node_id"].is_number_integer())
    run.node_id = status["node_id"].get<std::int32_t>();
  return run;
}

Result<BrokerRun> run_of(KafkaAdmin& kafka, const BrokerRun& of_admin) {
  auto cluster = kafka.cluster_id();
  if (!cluster) return std::unexpected(cluster.error());
  BrokerRun run{std::move(*cluster), {}, of_admin.node_id};
  // Kafka and older brokers have no start id, so it is asked for only if it can decide something.
  if (run.cluster_id != of_admin.cluster_id || of_admin.start_id.empty()) return run;
  auto start = kafka.start_id(of_admin.node_id);
  if (!start) return std::unexpected(start.error());
  run.start_id = std::move(*start);
  return run;
}

std::expected<AdminClient, AdminChoiceError> choose_admin(const BrokerOptions& options,
                                                          AdminUse use) {
  AdminClient admin(admin_settings(options));
  // Nobody has named a broker to which this admin would have to belong.
  if (!options.brokers_given) return admin;
  const std::string brokers = printable(options.brokers), address = printable(options.admin);
  const auto refuse = [&](const std::string& reason) {
    return std::unexpected(AdminChoiceError{
        wrong_usage,
        fmt::format("--admin: give the admin address of the broker at {}; the default {} {}",
                    brokers, address, reason)});
  };
  const auto of_admin = run_of(admin);
  if (!of_admin) {
    if (!options.admin_given)
      return refuse("may be that of another broker: " + of_admin.error().message);
    return std::unexpected(AdminChoiceError{failed, of_admin.error().message, admin.obstacle()});
  }
  const auto of_kafka = kafka_run(options, use, *of_admin);
  if (!of_kafka) {
    const std::string why = of_kafka.error().message +
                            " (for a listener with TLS or logins give -X, or leave out -b and "
                            "$TARRY_BROKERS)";
    if (!options.admin_given) return refuse("may be that of another broker: " + why);
    const std::string unknown = fmt::format(
        "cannot check that the admin at {} belongs to the broker at {}: {}", address, brokers, why);
    // Reading from another broker does no harm, but what is cancelled there is gone.
    if (use == AdminUse::changes)
      return std::unexpected(AdminChoiceError{failed, unknown + "; nothing was changed"});
    complain(unknown);
    return admin;
  }
  if (*of_kafka == *of_admin) return admin;
  if (!options.admin_given)
    return refuse("belongs to another broker: " + difference(*of_admin, *of_kafka));
  return std::unexpected(AdminChoiceError{
      failed, fmt::format("the admin at {} does not belong to the broker at {}: {}", address,
                          brokers, difference(*of_admin, *of_kafka))});
}

}  // namespace tarry::cli
