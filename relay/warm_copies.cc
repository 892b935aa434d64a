#include "relay/warm_copies.h"

#include <chrono>
#include <iterator>

#include "base/log.h"

namespace tarry::relay {
namespace {

// How often the end of each is asked for: several times within longest_read.
constexpr std::chrono::minutes ask_again{5};

}  // namespace

bool WarmCopies::Copy::is_stale_at(WallTime now) {
  // A time ahead of the clock says as little: the clock was set back since.
  if (is_stale || std::chrono::abs(now - complete_at) <= longest_read) return is_stale;
  log_warn("relay",
           "{}: its warm copy is read again: reading took too long, the partition's leader was "
           "unavailable, or the clock was set back",
           partition.source().text());
  return is_stale = true;
}

void WarmCopies::want(std::vector<Source> sources) {
  const std::lock_guard lock(wanted_mutex_);
  wanted_ = {std::make_move_iterator(sources.begin()), std::make_move_iterator(sources.end())};
}

WarmCopies::Copy* WarmCopies::find(const Source& source) {
  const auto found = copies_.find(source);
  return found == copies_.end() ? nullptr : &found->second;
}

void WarmCopies::drop(const Source& source) {
  cluster_.stop_rows(source);
  const std::lock_guard lock(guard_);
  copies_.erase(source);
}

std::optional<WarmCopies::Copy> WarmCopies::take(const Source& source) {
  const auto found = copies_.find(source);
  if (found == copies_.end()) return std::nullopt;
  std::optional<Copy> taken(std::move(found->second));
  copies_.erase(found);
  return taken;
}

// A copy begins again with what the store has after a stall or an outage: it may be too old then.
void WarmCopies::follow(const StepTerms& terms) {
  std::set<Source> wanted;
  {
    const std::lock_guard lock(wanted_mutex_);
    wanted = wanted_;
  }
  judge(terms);
  // The room that is left is for what this member owns.
  if (!terms.has_room) wanted.clear();
  std::vector<Source> dropped;
  for (const auto& [source, copy] : copies_)
    if (terms.is_disturbed || copy.is_stale || !wanted.contains(source)) dropped.push_back(source);
  for (const auto& source : dropped) drop(source);
  for (const auto& source : wanted) {
    if (terms.assignment.contains(source) || copies_.contains(source)) continue;
    // The others begin in the next step.
    if (terms.is_late()) return;
    Retry& retry = starts_[source];
    if (!retry.may(terms.mono)) continue;
    Copy copy(Partition(source, rules_, store_));
    if (const auto started = start(source, copy, terms); !started) {
      // Kafka may have taken a while to say nothing: no other is asked in this step.
      log_warn("relay", "{}: the warm copy cannot be read: {}", source.text(),
               started.error().message);
      return retry.failed(terms.mono, terms.retry, terms.longest_retry);
    }
    retry.reset();
    const std::lock_guard lock(guard_);
    copies_.emplace(source, std::move(copy));
  }
  ask_end(terms);
}

// One that has reached the end of a moment was complete at that moment.
void WarmCopies::judge(const StepTerms& terms) {
  const std::lock_guard lock(guard_);
  for (auto& [source, copy] : copies_) {
    if (copy.target >= 0 && copy.rows_end >= copy.target) {
      copy.target = -1;
      if (copy.complete_at < copy.target_at) {
        copy.complete_at = copy.target_at;
        copy.partition.note_complete(copy.target_at);
      }
    }
    if (!copy.is_bad && copy.is_stale_at(terms.now)) copy.partition.forget();
  }
}

// One in a step: a leader that is away takes a while to say nothing.
void WarmCopies::ask_end(const StepTerms& terms) {
  for (auto& [source, copy] : copies_) {
    if (copy.rows_end < 0 || terms.mono - copy.asked < ask_again) continue;
    copy.asked = terms.mono;
    const auto end = terms.state_end(source);
    if (!end) {
      log_warn("relay", "{}: the warm copy cannot be followed: {}", source.text(),
               end.error().message);
      return;
    }
    copy.target = *end;
    copy.target_at = terms.now;
    return;
  }
}

Result<> WarmCopies::start(const Source& source, Copy& copy, const StepTerms& terms) {
  const auto end = terms.state_end(source);
  if (!end) return std::unexpected(end.error());
  const Offset from = copy.partition.rows_from(terms.now, *end);
  copy.complete_at = copy.partition.pending().place().complete_at;
  copy.asked = terms.mono;
  return cluster_.start_rows(source, from);
}

std::size_t WarmCopies::complete() const {
  std::size_t count = 0;
  for (const auto& [source, copy] : copies_) count += copy.rows_end >= 0 ? 1 : 0;
  return count;
}

std::size_t WarmCopies::bytes() const {
  std::size_t all = 0;
  for (const auto& [source, copy] : copies_) all += copy.partition.pending().bytes();
  return all;
}

}  // namespace tarry::relay
