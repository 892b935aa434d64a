#pragma once

// PendingRoutes: the requests about pending records, over all members.
//
//   what this member owns --.
//   what each other says ---+--> one answer in due order, and `missing`: what no answer covers
//
// Belongs to the AdminServer; on its thread.  Only for .cc files (base/json.h).

#include <set>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/clock.h"
#include "base/json.h"
#include "relay/call.h"
#include "relay/member.h"
#include "relay/orders.h"
#include "relay/peers.h"
#include "relay/pending_view.h"
#include "relay/selection.h"
#include "web/question.h"

namespace tarry::relay {

// The partitions that nobody has answered for, of those that the query asks for.
Json missing_json(const Listing& known, const PendingQuery& asked, const std::set<Source>& covered,
                  const std::vector<PeerReply>& told);

class PendingRoutes final : public PendingPages {
 public:
  // All outlive it.
  PendingRoutes(Peers& peers, Orders& orders, Member& member, const Clock& clock)
      : peers_(peers), orders_(orders), member_(member), clock_(clock) {}

  boost::asio::awaitable<web::Reply> get_wheel(const Call& call);
  boost::asio::awaitable<web::Reply> list(const Call& call);
  boost::asio::awaitable<web::Reply> count(const Call& call);
  boost::asio::awaitable<web::Reply> get_one(const Call& call);
  boost::asio::awaitable<web::Reply> control_one(const Call& call, Order::Kind kind);
  boost::asio::awaitable<web::Reply> select(const Call& call);
  boost::asio::awaitable<web::Reply> take_orders(const Call& call);
  boost::asio::awaitable<web::Reply> page(std::string target) override;

 private:
  PendingQuery query_of(const Call& call) const;
  boost::asio::awaitable<void> look(const Call& call);
  Json list_here(const Call& call) const;
  Json count_here(const Call& call) const;
  Json find_here(const Call& call) const;
  // Puts the answers of all members into `parts`, ours first, and returns what is missing.  Each
  // has this list beside what it covers.
  boost::asio::awaitable<Json> gather(const Call& call, Json here, std::vector<Json>& parts,
                                      const char* list = "covers");

  Peers& peers_;
  Orders& orders_;
  Member& member_;
  const Clock& clock_;
};

}  // namespace tarry::relay
