#include "broker/groups/subscription.h"

#include "broker/groups/group.h"
#include "protocol/consumer_protocol.h"

namespace tarry::broker {
namespace {

// A name costs its shard half a microsecond, and memory, and few bytes may hold many.
constexpr std::size_t max_subscribed = 10'000;

}  // namespace

std::optional<std::set<std::string, std::less<>>> subscription_of(const Group& group) {
  if (group.protocol_type() != protocol::consumer_protocol_type) return std::nullopt;
  std::set<std::string, std::less<>> all;
  std::size_t names = 0;
  SharedBytes last;
  for (const auto& [id, member] : group.members()) {
    const SharedBytes said = group.metadata_of(member);
    if (said == last) continue;  // Most members say the same.
    last = said;
    const auto topics = protocol::subscribed_topics(said);
    if (!topics || (names += topics->size()) > max_subscribed) return std::nullopt;
    for (const auto topic : *topics)
      if (!all.contains(topic)) all.emplace(topic);
  }
  return all;
}

}  // namespace tarry::broker
