#pragma once

// Orders: carries out operators' orders for pending records, wherever in the group they are.
//
//   carry_out() --> the owner of each partition --> this member, or another one (POST /peer/orders)
//        '--------- again, while partitions move
//
// If an order may have been carried out but was not answered, the result says so; an order is never
// given twice.
//
// Belongs to the AdminServer; on its thread.  Only for .cc files (base/json.h).

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include "base/clock.h"
#include "base/json.h"
#include "relay/cluster.h"
#include "relay/member.h"
#include "relay/order.h"
#include "relay/peers.h"

namespace tarry::relay {

// One pending record that an order is for, and its result.
struct OrderTarget {
  Source source;
  std::string name;
  std::optional<OrderResult> told{};
};

class Orders {
 public:
  // All outlive it.
  Orders(boost::asio::io_context& io, Peers& peers, Member& member, const Clock& clock)
      : io_(io), peers_(peers), member_(member), clock_(clock) {}

  // Until each is told, or time is up.
  boost::asio::awaitable<void> carry_out(const Order& order, std::vector<OrderTarget>& wanted);
  // Takes orders that another member has sent; returns the answer for it.
  boost::asio::awaitable<Json> take(const Json& body);
  // Waits until what was acknowledged before is there to be seen, for as long as a list may wait.
  boost::asio::awaitable<void> look(const PendingQuery& query);

 private:
  // A member that hangs is waited for `grace` longer.
  boost::asio::awaitable<std::vector<OrderResult>> obey_here(const Order& order,
                                                             std::vector<OrderTarget*> wanted,
                                                             MonoTime deadline,
                                                             std::chrono::milliseconds grace);
  boost::asio::awaitable<void> obey_there(const Order& order, Peer peer,
                                          std::vector<OrderTarget*> wanted,
                                          std::chrono::milliseconds time);

  boost::asio::io_context& io_;
  Peers& peers_;
  Member& member_;
  const Clock& clock_;
};

}  // namespace tarry::relay
