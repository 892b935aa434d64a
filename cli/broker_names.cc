#include "cli/broker_names.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/core.h>

#include "base/percent_encoding.h"
#include "cli/admin_choice.h"
#include "cli/admin_client.h"
#include "cli/io/host_port.h"
#include "cli/io/json.h"
#include "cli/kafka/admin.h"

namespace tarry::cli {
namespace {

void take_address(const TypedWords& typed, const char* flag, const char* variable,
                  std::string& to) {
  const auto value = typed.values.find(flag);
  if (value != typed.values.end()) {
    to = value->second;
  } else if (const char* set = std::getenv(variable); set != nullptr && *set != '\0') {
    to = set;
  }
}

template <typename Listed>
std::vector<std::string> names_in(const Result<std::vector<Listed>>& listed) {
  std::vector<std::string> names;
  if (!listed) return names;
  for (const auto& each : *listed) names.push_back(each.name);
  return names;
}

}  // namespace

BrokerNames::BrokerNames(const TypedWords& typed) {
  // CLI11 has not read this line, which is not complete, so options and variables are found by
  // hand.
  take_address(typed, "--brokers", "TARRY_BROKERS", options_.brokers);
  take_address(typed, "--admin", "TARRY_ADMIN", options_.admin);
  if (const auto data = typed.values.find("--data"); data != typed.values.end())
    options_.data = data->second;
  options_.timeout = max_wait;
}

std::vector<std::string> BrokerNames::topics() {
  auto admin = KafkaAdmin::open(options_.kafka());
  if (!admin) return {};
  // Errors give no names, here and below: there is no place for them beside the cursor.
  auto names = names_in(admin->topics());
  // Kafka's own, which nobody reads by hand.
  std::erase_if(names, [](const std::string& name) { return name.starts_with("__"); });
  return names;
}

std::vector<std::string> BrokerNames::groups() {
  auto admin = KafkaAdmin::open(options_.kafka());
  return admin ? names_in(admin->groups()) : std::vector<std::string>{};
}

std::vector<std::string> BrokerNames::topic_configs(const std::string& topic) {
  auto admin = KafkaAdmin::open(options_.kafka());
  return admin ? names_in(admin->configs(topic)) : std::vector<std::string>{};
}

std::vector<std::string> BrokerNames::broker_configs() {
  auto admin = KafkaAdmin::open(options_.kafka());
  if (!admin) return {};
  const auto brokers = admin->brokers();
  if (!brokers || brokers->empty()) return {};
  return names_in(admin->broker_configs(brokers->front()));
}

std::vector<std::string> BrokerNames::ids(const std::string& topic, const std::string& prefix) {
  if (!parse_host_port(options_.admin)) return {};
  AdminClient admin(admin_settings(options_));
  std::string target = fmt::format("/delayed?topic={}&limit={}", percent_encoded(topic), max_ids);
  const bool is_handle = prefix.starts_with('@');
  if (!is_handle && !prefix.empty()) {
    // A character that is part of a pattern matches itself among others.
    std::string pattern = prefix;
    std::ranges::replace(pattern, '*', '?');
    target += "&id=" + percent_encoded(pattern + "*");
  }
  const auto body = admin.get(target);
  // An error would stand in the middle of the line that is being typed.
  if (!body) return {};
  const Json page = parse_json(*body);
  if (!page.is_object() || !page.contains("records") || !page["records"].is_array()) return {};
  std::vector<std::string> names;
  for (const auto& record : page["records"]) {
    if (!record.is_object()) continue;
    const auto id = record.find("id"), handle = record.find("handle");
    if (!is_handle && id != record.end() && id->is_string()) {
      names.push_back(id->get<std::string>());
    } else if ((is_handle || prefix.empty()) && handle != record.end() && handle->is_string()) {
      names.push_back(handle->get<std::string>());
    }
  }
  return names;
}

}  // namespace tarry::cli
