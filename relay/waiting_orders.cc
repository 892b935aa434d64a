#include "relay/waiting_orders.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tarry::relay {
namespace {

// Each list in the admin is a request to look, and each look a question to Kafka: they are asked
// together, no more often than this.
constexpr std::chrono::milliseconds look_together{100};
constexpr std::string_view unread =
    "it has not been read to its end; a producer's transaction may be open in it";
constexpr std::size_t max_ready = 1'000;  // The limit of one partition in one transaction.

std::unexpected<Error> not_done(const WaitingOrders::WaitingOrder& order, Errc code,
                                std::string why) {
  if (!order.is_sent) return fail(code, std::move(why));
  return fail(Errc::io, why + "; it is not known whether it was done");
}

}  // namespace

bool WaitingOrders::give(std::vector<OrderRequest> orders) {
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    why = refuses_;
    const std::size_t there = given_.size() + open_;
    if (why.empty() && there + orders.size() > max_)
      why = fmt::format("{} requests for changes are already waiting", there);
    if (why.empty()) std::ranges::move(orders, std::back_inserter(given_));
  }
  if (why.empty()) return true;
  // Outside the lock, because what is told may give the next order.
  for (auto& each : orders) each.told(fail(Errc::io, why));
  return false;
}

void WaitingOrders::refuse(const std::string& why) {
  std::vector<OrderRequest> given;
  {
    const std::lock_guard lock(mutex_);
    refuses_ = why;
    given = std::exchange(given_, {});
  }
  for (auto& each : given) each.told(fail(Errc::io, why));
}

void WaitingOrders::refuse_waiting(const std::string& why) {
  for (auto& each : waiting_)
    if (!each.is_over) each.ordered.told(not_done(each, Errc::io, why));  // Others have been told.
  waiting_.clear();
}

void WaitingOrders::take(const Assignment& assignment, const Ends& ends_of,
                         const std::string& stalled, MonoTime mono) {
  const auto is_look = [](const OrderRequest& each) {
    return each.order.kind == Order::Kind::look;
  };
  std::vector<OrderRequest> given;
  {
    const std::lock_guard lock(mutex_);
    // Looks ask Kafka together.
    const bool waits = looked_at_ != MonoTime{} && mono - looked_at_ < look_together;
    if (!waits || !std::ranges::all_of(given_, is_look)) given = std::exchange(given_, {});
    // They count while their ends are asked for, which may take seconds.
    open_ += given.size();
  }
  // A record that was acknowledged before an order came is before these ends.
  std::set<Source> sources;
  for (const auto& each : given)
    if (assignment.contains(each.source)) sources.insert(each.source);
  if (!sources.empty()) looked_at_ = mono;
  const auto ends = ends_of(sources);
  std::vector<OrderRequest> later;
  for (auto& each : given) {
    const auto end = ends.find(each.source);
    // An end that was not asked for is asked for in the next step: another leader has used up the
    // time of this one.
    if (end == ends.end() && sources.contains(each.source) && mono < each.deadline) {
      later.push_back(std::move(each));
    } else if (end != ends.end() && !end->second) {
      each.told(std::unexpected(end->second.error()));
    } else {
      waiting_.push_back({std::move(each), end == ends.end() ? -1 : *end->second});
    }
  }
  std::erase_if(waiting_, [&](WaitingOrder& each) {
    const Source& source = each.ordered.source;
    if (each.is_over) return true;
    const auto assigned = assignment.find(source);
    if (assigned == assignment.end()) {
      each.ordered.told(
          not_done(each, Errc::not_found, source.text() + " is not owned by this member"));
      return true;
    }
    if (mono < each.ordered.deadline) return false;
    const std::string_view why = !stalled.empty()                  ? stalled
                                 : !assigned->second.rests.empty() ? assigned->second.rests
                                 : assigned->second.stage == Stage::owned
                                     ? unread
                                     : name_of(assigned->second.stage);
    each.ordered.told(
        not_done(each, Errc::io, fmt::format("{} is not ready: {}", source.text(), why)));
    return true;
  });
  const std::lock_guard lock(mutex_);
  given_.insert(given_.begin(), std::make_move_iterator(later.begin()),
                std::make_move_iterator(later.end()));
  open_ = waiting_.size();
}

void WaitingOrders::tell_looks(const Assignment& assignment, bool is_full) {
  for (auto& each : waiting_) {
    if (each.is_over || !each.is_look()) continue;
    const auto assigned = assignment.find(each.ordered.source);
    if (assigned == assignment.end() || !assigned->second.may_deliver()) continue;
    if (!assigned->second.has_taken(each.target) && !is_full) continue;
    each.is_over = true;
    each.ordered.told(delay::Controlled{});
  }
}

std::vector<WaitingOrders::WaitingOrder*> WaitingOrders::ready_for(
    const AssignedPartition& assigned, bool is_full) {
  std::vector<WaitingOrder*> all;
  for (auto& each : waiting_) {
    if (each.is_over || each.ordered.source != assigned.partition.source() || each.is_look())
      continue;
    const bool is_read = assigned.has_taken(each.target);
    // If no record can be taken in for lack of room, a cancellation is what helps.
    if (!is_read && !is_full) continue;
    each.is_read = is_read;
    all.push_back(&each);
    if (all.size() >= max_ready) break;
  }
  return all;
}

void WaitingOrders::note_sent(const std::vector<WaitingOrder*>& asked,
                              const std::vector<Work::Answer>& answers) {
  for (std::size_t i = 0; i < asked.size(); ++i)
    if (answers[i].from >= 0) asked[i]->is_sent = true;
}

void WaitingOrders::tell(std::vector<WaitingOrder*>& asked, std::vector<Work::Answer>& answers,
                         const TransactionResult& done) {
  if (done.outcome == Outcome::aborted) return;  // The next transaction obeys them.
  for (std::size_t i = 0; i < asked.size(); ++i) {
    asked[i]->is_over = true;
    auto& [told, from] = answers[i];
    const OrderRequest& ordered = asked[i]->ordered;
    // The outcome is settled only when the producers are renewed, and nobody waits for that.
    if (done.outcome == Outcome::unknown) {
      told =
          fail(Errc::io, "Kafka has not confirmed whether this was done; ask again: " + done.error);
    } else if (from >= 0) {
      const std::pair where(ordered.source, from);
      const auto placed =
          std::ranges::find(done.placed, where, &decltype(done.placed)::value_type::first);
      if (placed != done.placed.end()) told->offset = placed->second;
    } else if (told && told->outcome != delay::ControlOutcome::done && !asked[i]->is_read) {
      told =
          fail(Errc::io, fmt::format("there is no room for more pending records, so not all of {} "
                                     "has been read, and it is not known whether the record exists",
                                     ordered.source.text()));
    }
    ordered.told(std::move(told));
  }
}

}  // namespace tarry::relay
