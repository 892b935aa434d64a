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

Result<std::string> kafka_cluster(const BrokerOptions& options, AdminUse use) {
  auto settings = options.kafka();
  if (use == AdminUse::reads) settings.timeout = std::min(settings.timeout, max_wait_of_readers);
  auto kafka = KafkaAdmin::open(settings);
  if (!kafka) return std::unexpected(kafka.error());
  return kafka->cluster_id();
}

}  // namespace

AdminSettings admin_settings(const BrokerOptions& options) {
  return {options.admin, options.timeout, options.timeout_given, options.data};
}

Result<std::string> cluster_of(AdminClient& admin) {
  const auto body = admin.get("/status");
  if (!body) return std::unexpected(body.error());
  const Json status = parse_json(*body);
  if (!status.is_object() || !status.contains("cluster_id") || !status["cluster_id"].is_string())
    return fail(Errc::io, "the admin's /status has no cluster id");
  return status["cluster_id"].get<std::string>();
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
  const auto of_admin = cluster_of(admin);
  if (!of_admin) {
    if (!options.admin_given)
      return refuse("may be that of another broker: " + of_admin.error().message);
    return std::unexpected(AdminChoiceError{failed, of_admin.error().message});
  }
  const auto of_kafka = kafka_cluster(options, use);
  if (!of_kafka) {
    if (!options.admin_given)
      return refuse("may be that of another broker: " + of_kafka.error().message);
    const std::string unknown =
        fmt::format("cannot check that the admin at {} belongs to the broker at {}: {}", address,
                    brokers, of_kafka.error().message);
    // Reading from another broker does no harm, but what is cancelled there is gone.
    if (use == AdminUse::changes)
      return std::unexpected(AdminChoiceError{failed, unknown + "; nothing was changed"});
    complain(unknown);
    return admin;
  }
  if (*of_kafka == *of_admin) return admin;
  if (!options.admin_given) return refuse("belongs to another broker");
  return std::unexpected(AdminChoiceError{
      failed,
      fmt::format("the admin at {} does not belong to the broker at {}: their cluster ids are "
                  "{} and {}",
                  address, brokers, printable(*of_admin), printable(*of_kafka))});
}

}  // namespace tarry::cli
