#include "relay/warm_copies.h"

#include <iterator>

#include "base/log.h"

namespace tarry::relay {

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
}

Result<> WarmCopies::start(const Source& source, Copy& copy, const StepTerms& terms) {
  const auto end = terms.state_end(source);
  if (!end) return std::unexpected(end.error());
  const Offset from = copy.partition.rows_from(terms.now, *end);
  copy.complete_at = copy.partition.pending().place().complete_at;
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
