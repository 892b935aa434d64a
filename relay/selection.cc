#include "relay/selection.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "relay/admin_json.h"

namespace tarry::relay {
namespace {

using boost::asio::awaitable;
using delay::ControlOutcome;
using web::Refused;
using web::Reply;

// As many as a partition takes in one transaction (waiting_orders.cc); a line of progress follows
// each time.
constexpr std::size_t ordered_at_once = 1'000;
// All of them are found before one is moved.
constexpr std::size_t max_moved_at_once = 100'000;

}  // namespace

Selection::Selection(PendingPages& pages, Orders& orders, std::string query, Order order,
                     std::optional<std::size_t> shown)
    : pages_(pages),
      orders_(orders),
      query_(std::move(query)),
      order_(std::move(order)),
      dry_run_shown_(shown) {}

awaitable<std::optional<std::string>> Selection::next() {
  if (is_over_) co_return std::nullopt;
  try {
    // A move may put a record where the search finds it again, so all are found first.
    const bool is_all_first = order_.kind == Order::Kind::move && !dry_run_shown_;
    if (!found_all_) co_await find_some();
    if (found_all_ || !is_all_first) co_await order_some();
    is_over_ = found_all_ && found_.empty();
  } catch (const Refused& refused) {
    // The answer has begun with its status, so an error can only be a field of its last line.
    error_ = refused.why;
    is_over_ = true;
  }
  co_return line();
}

awaitable<void> Selection::find_some() {
  const std::string target = query_ + (after_.empty() ? "" : "&after=" + after_);
  const Reply reply = co_await pages_.page(target);
  const Json page = parse_json(reply.body);
  if (reply.status != 200) throw Refused{reply.status, page.value("error", "")};
  for (const auto& record : page["records"]) {
    ++matched_;
    if (dry_run_shown_ && shown_.size() < *dry_run_shown_) shown_.push_back(record);
    if (!dry_run_shown_) found_.push_back({source_in(record), text_in(record, "handle")});
  }
  if (found_.size() > max_moved_at_once)
    throw Refused{400, fmt::format("the selection has more than {} records, which is the limit of "
                                   "one move; nothing was moved",
                                   max_moved_at_once)};
  after_ = page["next"].is_string() ? page["next"].get<std::string>() : "";
  found_all_ = after_.empty();
}

awaitable<void> Selection::order_some() {
  std::vector<OrderTarget> some;
  // From the back, where taking some moves none of the others.
  const auto count = std::min(found_.size(), ordered_at_once);
  std::move(found_.end() - static_cast<std::ptrdiff_t>(count), found_.end(),
            std::back_inserter(some));
  found_.resize(found_.size() - count);
  if (some.empty()) co_return;
  co_await orders_.carry_out(order_, some);
  for (const auto& each : some) {
    if (each.told && *each.told) {
      ++told_[static_cast<std::size_t>((*each.told)->outcome)];
    } else if (failed_++ == 0) {
      error_ = each.told ? each.told->error().message : "no answer";
    }
  }
}

std::string Selection::line() const {
  Json body{
      {"matched", matched_},
      {"done", told_[static_cast<std::size_t>(ControlOutcome::done)]},
      {"already_delivered", told_[static_cast<std::size_t>(ControlOutcome::already_delivered)]},
      {"unknown", told_[static_cast<std::size_t>(ControlOutcome::unknown)]}};
  if (failed_ != 0) body["failed"] = failed_;
  if (!error_.empty()) body["error"] = error_;
  if (is_over_ && dry_run_shown_) body["records"] = shown_;
  return text_of(body) + "\n";
}

}  // namespace tarry::relay
