#include "relay/relay.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace tarry::relay {
namespace {

using namespace std::chrono_literals;

// A stop is noticed after this time at most.
constexpr auto longest_wait = 100ms;

MemberOptions member_options(const RelayOptions& options) {
  MemberOptions member;
  member.rules = {options.group, options.deliver_to, options.same_partition};
  member.delivery = options.delivery;
  member.limits.pending_bytes = options.memory;
  return member;
}

}  // namespace

Result<std::unique_ptr<Relay>> Relay::open(const RelayOptions& options, const std::string& version,
                                           const Clock& clock, Random& random) {
  if (const auto checked = check(options); !checked) return std::unexpected(checked.error());
  auto data = DataDirectory::open(options.data, random.u64());
  if (!data) return std::unexpected(data.error());
  auto http = AdminHttp::open(options.admin_host, options.admin_port);
  if (!http) return std::unexpected(http.error());
  std::unique_ptr<Relay> relay(new Relay(options, std::move(*data)));
  const std::string instance =
      options.instance.empty() ? relay->data_.instance() : options.instance;
  const MemberOptions member = member_options(options);
  KafkaOptions kafka;
  kafka.brokers = options.brokers;
  kafka.source = options.source;
  kafka.rules = member.rules;
  kafka.owner = fmt::format("{}-{}-{:016x}", options.group, instance, random.u64());
  kafka.client_id = fmt::format("tarry-relay-{}", instance);
  kafka.properties = options.properties;
  kafka.has_sender = options.delivery == Delivery::at_least_once;
  auto cluster = KafkaCluster::open(kafka);
  if (!cluster) return std::unexpected(cluster.error());
  relay->cluster_ = std::move(*cluster);
  const auto sources = relay->cluster_->sources();
  if (!sources) return std::unexpected(sources.error());
  relay->has_sources_ = !sources->empty();
  if (sources->empty())
    log_warn("relay", "no topic matches --source {} yet; the relay waits for one", options.source);
  relay->member_ = std::make_unique<Member>(*relay->cluster_, clock, member);
  relay->admin_ =
      std::make_unique<AdminServer>(std::move(*http), *relay->member_, clock,
                                    AdminFacts{version, relay->cluster_->cluster_id(), instance,
                                               kafka.owner, relay->data_.path(), relay->options_});
  relay->admin_->start();
  return relay;
}

void Relay::run(const std::function<bool()>& is_over, const std::function<void()>& ready) {
  bool was_ready = false;
  while (!is_over()) {
    member_->step(longest_wait);
    if (was_ready || (has_sources_ && !member_->is_ready())) continue;
    was_ready = true;
    ready();
  }
  cluster_->leave();
}

}  // namespace tarry::relay
