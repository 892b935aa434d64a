#include "relay/relay.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace tarry::relay {
namespace {

using namespace std::chrono_literals;

// A stop is noticed after this time at most.
constexpr auto longest_wait = 100ms;
// The format of the rows in the store (pending_records.h).
constexpr std::string_view rows_format = "tarry-relay-pending-2";

MemberOptions member_options(const RelayOptions& options) {
  MemberOptions member;
  member.rules = {options.group, options.deliver_to, options.same_partition};
  member.delivery = options.delivery;
  member.first_fetch = longest_first_fetch(options.properties);
  return member;
}

// The address at which other members find the admin.  An admin that listens on all addresses is
// advertised by the host's name.
std::string advertised_address(const RelayOptions& options, const std::string& bound) {
  if (!options.advertise.empty()) return options.advertise;
  const std::string port = bound.substr(bound.rfind(':') + 1);
  const auto& host = options.admin.host;
  const bool is_any = host.empty() || host == "0.0.0.0" || host == "::";
  if (!is_any) return bound;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return bound;
  return fmt::format("{}:{}", name.data(), port);
}

bool is_loopback_host(std::string_view host) {
  return host == "localhost" || host.starts_with("127.") || host == "[::1]" || host == "::1";
}

// Whether other machines have a part in it, by what the brokers are called.
bool are_brokers_elsewhere(std::string_view brokers) {
  while (!brokers.empty()) {
    std::string_view broker = brokers.substr(0, brokers.find(','));
    brokers.remove_prefix(std::min(brokers.size(), broker.size() + 1));
    if (const auto scheme = broker.find("://"); scheme != broker.npos)
      broker.remove_prefix(scheme + 3);
    const auto colon = broker.rfind(':');
    if (!broker.empty() && !is_loopback_host(broker.substr(0, colon))) return true;
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<Relay>> Relay::open(const RelayOptions& options, const std::string& version,
                                           const Clock& clock, Random& random) {
  if (const auto checked = check(options); !checked) return std::unexpected(checked.error());
  if (const auto known = check_time_zones(delay::TimeZones::of_system()); !known)
    return std::unexpected(known.error());
  // The resources of this machine come first: otherwise a member that the group already waits for
  // would find out that a directory or a port is in use.
  auto data = DataDirectory::open(options.data, random.u64());
  if (!data) return std::unexpected(data.error());
  auto admin = AdminServer::open(options.admin);
  if (!admin) return std::unexpected(admin.error());
  auto key = PeerKey::make();
  if (!key) return std::unexpected(key.error());
  std::unique_ptr<Relay> relay(new Relay(options, std::move(*data)));
  relay->admin_ = std::move(*admin);
  const MemberOptions member = member_options(options);
  MemberFacts facts;
  facts.self.instance = options.instance.empty() ? relay->data_.instance() : options.instance;
  facts.self.address = advertised_address(options, relay->admin_->address());
  facts.self.key = key->public_part();
  if (is_loopback_host(facts.self.address.substr(0, facts.self.address.rfind(':'))) &&
      are_brokers_elsewhere(options.brokers))
    log_warn("relay",
             "members on other machines cannot reach this one: it advertises {}, which on each "
             "machine is that machine itself; give --admin 0.0.0.0:PORT, or --advertise HOST:PORT",
             facts.self.address);
  facts.version = version;
  facts.data = relay->data_.path();
  // New at each start, or a member that is started again would fence itself, and no other member
  // could end what it has left open.
  facts.owner = fmt::format("{}-{}-{:016x}", options.group, facts.self.instance, random.u64());
  facts.group = options.group;
  facts.delivery = options.delivery == Delivery::exactly_once ? "exactly-once" : "at-least-once";
  facts.memory = options.memory;
  facts.standby = options.standby;
  facts.started = clock.mono();
  KafkaOptions kafka;
  kafka.brokers = options.brokers;
  kafka.source = options.source;
  kafka.rules = member.rules;
  kafka.owner = facts.owner;
  kafka.client_id = fmt::format("tarry-relay-{}", facts.self.instance);
  kafka.member_id = member_id_of(facts.self);
  kafka.properties = options.properties;
  kafka.has_sender = options.delivery == Delivery::at_least_once;
  auto cluster = KafkaCluster::open(kafka);
  if (!cluster) return std::unexpected(cluster.error());
  relay->cluster_ = std::move(*cluster);
  facts.cluster_id = relay->cluster_->cluster_id();
  const auto sources = relay->cluster_->sources();
  if (!sources) return std::unexpected(sources.error());
  relay->has_sources_ = !sources->empty();
  if (sources->empty())
    log_warn("relay", "no topic matches --source {} yet; the relay waits for one", options.source);
  // The store belongs to the group in this cluster.
  auto store = storage::DiskRows::open(
      relay->data_.path() + "/pending",
      fmt::format("{} {} {}", rows_format, facts.cluster_id, options.group), options.memory);
  if (!store) return std::unexpected(store.error());
  relay->store_ = std::move(*store);
  relay->member_ = std::make_unique<Member>(*relay->cluster_, clock, *relay->store_, member);
  auto directory = KafkaDirectory::open(
      {options.brokers, options.source, options.group, kafka.client_id, options.properties});
  if (!directory) return std::unexpected(directory.error());
  relay->directory_ = std::move(*directory);
  if (const auto started = relay->admin_->start(*relay->member_, *relay->directory_, clock, random,
                                                std::move(*key), std::move(facts));
      !started)
    return std::unexpected(started.error());
  return relay;
}

Result<> Relay::run(Stop& stop, const std::function<void()>& ready,
                    const std::function<void()>& between_steps) {
  bool was_ready = false, may_deliver = false;
  Result<> done;
  try {
    while (!stop.is_asked()) {
      member_->step(longest_wait);
      between_steps();
      if (!may_deliver && member_->may_deliver()) {
        may_deliver = true;
        // From now on there are partitions to give up, and perhaps a transaction to end.
        stop.allow(Stop::owner_limit);
      }
      if (was_ready || (has_sources_ && !member_->is_ready())) continue;
      was_ready = true;
      ready();
    }
    member_->finish();
  } catch (const storage::RowsFailed& failed) {
    // Emptied at the next start, which reads the rows from Kafka again.
    if (failed.is_damage()) storage::DiskRows::condemn(data_.path() + "/pending");
    done = fail(Errc::io, failed.what());
  }
  // The group is left last, so that no other member delivers while this one still answers for its
  // partitions.
  member_->refuse_orders("the member is stopping");
  admin_->stop();
  cluster_->leave();
  return done;
}

}  // namespace tarry::relay
