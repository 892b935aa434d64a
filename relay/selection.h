#pragma once

// Selection: carries out an order for all pending records that a query matches.  It finds them page
// by page, and reports its progress after each page.
//
// On the admin's thread.  Only for .cc files (base/json.h).

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/json.h"
#include "relay/orders.h"
#include "web/question.h"
#include "web/reply_stream.h"

namespace tarry::relay {

// The source of the pages.
class PendingPages {
 public:
  virtual ~PendingPages() = default;
  // The answer to GET `target`, which begins with /delayed?
  virtual boost::asio::awaitable<web::Reply> page(std::string target) = 0;
};

class Selection final : public web::ReplyStream {
 public:
  // `query` is a target for `pages`.  `shown`: it changes nothing, and shows the first so many.
  // Both references outlive it.
  Selection(PendingPages& pages, Orders& orders, std::string query, Order order,
            std::optional<std::size_t> shown);

  // A line of JSON.
  boost::asio::awaitable<std::optional<std::string>> next() override;

 private:
  boost::asio::awaitable<void> find_some();
  boost::asio::awaitable<void> order_some();
  std::string line() const;

  PendingPages& pages_;
  Orders& orders_;
  const std::string query_;
  const Order order_;
  const std::optional<std::size_t> dry_run_shown_;
  std::string after_;
  std::vector<OrderTarget> found_;  // And not ordered yet.
  bool found_all_ = false, is_over_ = false;
  std::uint64_t matched_ = 0, failed_ = 0;
  std::array<std::uint64_t, 3> told_{};  // By outcome.
  std::string error_;                    // The first one.
  Json shown_ = Json::array();
};

}  // namespace tarry::relay
