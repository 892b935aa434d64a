#include "server/connection_rates.h"

#include <algorithm>
#include <utility>

#include "server/config_values.h"

namespace tarry::server {
namespace {

using std::chrono::milliseconds;

// "127.0.0.1" of "127.0.0.1:40312", "::1" of "[::1]:40312".
std::string_view ip_of(std::string_view peer) {
  peer = peer.substr(0, peer.rfind(':'));
  if (peer.starts_with('[') && peer.ends_with(']')) peer = peer.substr(1, peer.size() - 2);
  return peer;
}

}  // namespace

ConnectionRates::ConnectionRates(Limit limit, std::shared_ptr<Broker> broker)
    : limit_(limit), meter_(broker->addresses.windows()), broker_(std::move(broker)) {}

ConnectionRates::Limit rate_limit(std::string_view value) {
  const auto parsed = parse_whole_number(value);
  return parsed ? ConnectionRates::Limit(static_cast<double>(*parsed)) : std::nullopt;
}

ConnectionRates::Admission ConnectionRates::begin(std::string_view peer, MonoTime now) {
  const auto ip = ip_of(peer);
  // A limit that is lowered far never shuts a listener for longer than it is measured over.
  const auto longest =
      std::chrono::duration_cast<milliseconds>(broker_->addresses.windows().span());
  if (const auto limit = broker_->limit_of(ip)) {
    const auto meter =
        broker_->addresses.of(broker::QuotaKind::connections, false, "", true, ip, now);
    const auto wait = std::min(meter->record(1, *limit, now), longest);
    if (wait.count() > 0) {
      // It is not served, so it must not use up what its address may have.
      meter->take_back(1, now);
      return {.close_after = wait};
    }
  }
  milliseconds wait{0};
  if (limit_) wait = meter_.record(1, *limit_, now);
  // Both meters count the connection, even if one of them makes the next one wait already.
  if (broker_->limit) wait = std::max(wait, broker_->meter.record(1, *broker_->limit, now));
  return {.next_after = std::min(wait, longest)};
}

}  // namespace tarry::server
