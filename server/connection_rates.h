#pragma once

// ConnectionRates: how fast connections may be made, on a listener, on all of them, and from one
// address, counted as every quota is (broker/security/rate_meter.h).
//
//   accept4() --> begin(address) --.-- listener or broker too fast: the connection is served, and
//                                  |   the listener accepts no other until the time is over
//                                  '-- address too fast: it is closed when the time is over, and
//                                      does not count
//
// One for each listener; those of one broker share a Broker.  On shard 0's thread.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "broker/security/quota_meters.h"

namespace tarry::server {

// Bounds all listeners together; behind "listener.name.NAME." that one.
inline constexpr std::string_view connection_rate_key = "max.connection.creation.rate";

class ConnectionRates {
 public:
  // A second; none: without a limit.
  using Limit = std::optional<double>;
  // The limit and the meters that all listeners share.
  struct Broker {
    Broker(Limit its_limit, broker::QuotaMeters& of_addresses)
        : limit(its_limit), meter(of_addresses.windows()), addresses(of_addresses) {}

    Limit limit;
    broker::RateMeter meter;
    broker::QuotaMeters& addresses;  // Their meters.
    // connection_creation_rate of an address: "10.0.0.7".
    std::function<Limit(std::string_view ip)> limit_of;
  };

  ConnectionRates(Limit limit, std::shared_ptr<Broker> broker);

  // From the next connection on.
  void set_limit(Limit limit) { limit_ = limit; }

  // At most one of both is not 0.
  struct Admission {
    std::chrono::milliseconds next_after{0};   // It is served; the next is accepted after so long.
    std::chrono::milliseconds close_after{0};  // It is not served, and closed after so long.
  };
  // A connection from `peer` ("127.0.0.1:40312") has been accepted.
  Admission begin(std::string_view peer, MonoTime now);

 private:
  Limit limit_;
  broker::RateMeter meter_;
  const std::shared_ptr<Broker> broker_;
};

// Reads the text of the key; empty: it is not given.
ConnectionRates::Limit rate_limit(std::string_view value);

}  // namespace tarry::server
