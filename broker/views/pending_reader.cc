#include "broker/views/pending_reader.h"

#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/ids.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/context/yield_budget.h"
#include "broker/security/acl.h"
#include "broker/security/client_address.h"

namespace tarry::broker {
namespace {

namespace asio = boost::asio;

// As a client of the Kafka port without a login (context/connection.cc).
constexpr std::string_view nameless = "User:ANONYMOUS";

// More of them are the pool's.
constexpr std::size_t topics_sorted_here = 1000;

std::string resource_name_of(std::string_view topic) {
  return fmt::format("{}{}{}", topic, action_separator, reading_action);
}

}  // namespace

PendingReader::PendingReader(std::string_view name, std::string_view address)
    : who_(ClientIdentity{
          .principal = name.empty() ? std::string(nameless) : fmt::format("User:{}", name),
          .host = std::string(address),
          .host_in_full = address_in_full(address)}) {}

bool PendingReader::may_read_all(Broker& broker, Shard& here) const {
  const auto& terms = here.config().authorizer;
  return !who_ || !terms.enabled || terms.super_users.contains(who_->principal) ||
         broker.security(here).image->topics_with_rule_of_reading().empty();
}

bool PendingReader::may_read(Broker& broker, Shard& here, std::string_view topic) const {
  if (!who_ || may_read_all(broker, here)) return true;
  const auto& image = *broker.security(here).image;
  return !image.topics_with_rule_of_reading().contains(topic) ||
         image.allows(here.config().authorizer, *who_, AclOperation::read, AclResource::topic,
                      resource_name_of(topic));
}

asio::awaitable<storage::HiddenTopics> PendingReader::hidden_topics(Broker& broker,
                                                                    Shard& here) const {
  std::vector<TopicId> hidden;
  if (may_read_all(broker, here)) co_return storage::HiddenTopics();
  // A change of the rules makes another image.
  const auto image = broker.security(here).image;
  YieldBudget budget(here, nullptr);
  for (const auto& name : image->topics_with_rule_of_reading()) {
    if (budget.spend(us_to_judge)) co_await budget.yield();
    const auto topic = here.topics().find(name);
    if (topic && !may_read(broker, here, name)) hidden.push_back(topic->id);
  }
  if (hidden.size() <= topics_sorted_here) co_return storage::HiddenTopics(std::move(hidden));
  auto sort = [&hidden] { return storage::HiddenTopics(std::move(hidden)); };
  co_return co_await here.blocking(std::move(sort));
}

std::string PendingReader::why_not(std::string_view topic) const {
  const std::string_view who = who_ ? std::string_view(who_->principal) : "the operator";
  return fmt::format(
      "{}{} may neither read nor change the pending records of {}: that needs READ on the topic "
      "name {}",
      printable(who), who == nameless ? ", a client without a token," : "", printable(topic),
      printable(resource_name_of(topic)));
}

}  // namespace tarry::broker
