#pragma once

// FailedLogins: how long the answer to a login waits, so that passwords cannot be tried fast.
//
//   failures of one address   |100|--200--|----400----|--------800--------| ...   one after another
//   a correct password        at once, as long as no more than one failure is queued
//
// The first failure of an address waits connection.failed.authentication.delay.ms, as in Kafka;
// each further one twice as long, up to 32 times, and its delay begins when that of the one before
// it ends, on however many connections they come.  A minute without a failure, and it begins again.
//
// A failure waits at most max_wait: then the queue is full, and further ones are answered together.
// A right password waits for what is queued beyond the delay of one failure, or beyond half of
// max_wait if that is less, or a client with many connections would know by the silence that a
// password is wrong.  So a client that fails in a loop delays nobody else at its address, unless
// the setting makes one failure longer than that; and a flood of failures delays a right password
// by no more than max_wait.
//
// The addresses of an IPv6 /64 count as one, because a client can have all of them.  If there are
// too many addresses, those that have not failed for the longest time are forgotten.
//
// All shards share it, so it has a lock.  Any thread.

#include <chrono>
#include <cstddef>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"

namespace tarry::broker {

class FailedLogins {
 public:
  using milliseconds = std::chrono::milliseconds;

  static constexpr std::chrono::minutes memory{1};
  static constexpr std::size_t max_addresses = 10'000;
  // A connection that has not logged in after 10 s ends, and its client would not get the answer.
  static constexpr milliseconds max_wait{8'000};
  static constexpr int max_factor = 32;

  // A login has failed.  `host` as Connection::host() says it.
  milliseconds wait_of_failure(std::string_view host, MonoTime now, milliseconds base);
  // A password was right.
  milliseconds wait_of_success(std::string_view host, MonoTime now, milliseconds base) const;

  std::size_t addresses() const;

 private:
  struct Failed {
    std::string address;
    unsigned count = 0;
    MonoTime last{};
    MonoTime answered{};  // When the last of its failures is; the next one's delay begins then.
  };
  using Order = std::list<Failed>;

  Failed& failed_at(std::string address);

  mutable std::mutex mutex_;
  Order order_;  // The address that has failed last at the end.
  std::unordered_map<std::string_view, Order::iterator> of_;  // By the addresses in order_.
};

}  // namespace tarry::broker
