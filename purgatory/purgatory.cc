#include "purgatory/purgatory.h"

#include <chrono>

#include "base/assert.h"
#include "base/clock.h"

namespace tarry::purgatory {

namespace {

// The histograms' window may count from any moment, so a tick will do.
MonoTime time_of(Tick tick) {
  return MonoTime{std::chrono::milliseconds{tick}};
}

// An operation that has waited long is no longer in the processor's caches, nor is the coroutine
// frame around it.  Fetching both while the one before it is answered hides most of that latency.
void fetch_ahead(const ParkedOperation& operation) {
  constexpr int lines = 16;
  const auto* at = reinterpret_cast<const char*>(&operation);
  for (int line = -2; line < lines; ++line) __builtin_prefetch(at + 64 * line);
}

}  // namespace

Purgatory::~Purgatory() {
  TARRY_ASSERT(!in_run_, "a completion may not destroy its purgatory");
  while (!waiting_.empty()) waiting_.front().withdraw();
  while (!queue_.empty()) queue_.front().withdraw();
}

std::size_t Purgatory::run_completions(Tick now, std::size_t budget) {
  thread_.check();
  TARRY_ASSERT(!in_run_, "a completion may not run others");
  in_run_ = true;
  running_.splice(running_.end(), queue_);
  std::size_t answered = 0;
  for (; answered < budget && !running_.empty(); ++answered) {
    ParkedOperation& first = running_.front();
    if (const auto next = std::next(running_.begin()); next != running_.end()) fetch_ahead(*next);
    answer(first, now);
  }
  // Operations that the budget has left over go before those that were queued meanwhile.
  queue_.splice(queue_.begin(), running_);
  in_run_ = false;
  if (!queue_.empty() && ready_) ready_();
  return answered;
}

void Purgatory::cancel_all() {
  thread_.check();
  // Each leaves waiting_ when it is cancelled.
  while (!waiting_.empty()) waiting_.front().cancel();
}

std::vector<KindStats> Purgatory::stats(Tick now) const {
  thread_.check();
  std::vector<KindStats> stats;
  stats.reserve(metrics_.size());
  for (const auto& metrics : metrics_) stats.emplace_back(metrics, time_of(now));
  return stats;
}

void Purgatory::enqueue(ParkedOperation& operation) {
  thread_.check();
  // A run calls the hook itself when it ends with something in the queue.
  const bool first = queue_.empty() && !in_run_;
  queue_.push_back(operation);
  ++of(operation).queued;
  if (first && ready_) ready_();
}

// noexcept: an answer that throws would leave others unanswered.
void Purgatory::answer(ParkedOperation& operation, Tick now) noexcept {
  // Its state is complete before the answer, which may start it anew or destroy it.
  operation.queue_hook_.unlink();
  operation.state_ = ParkedOperation::State::idle;
  KindMetrics& metrics = of(operation);
  --metrics.queued;
  metrics.waited_ms.add(now > operation.started_ ? now - operation.started_ : 0, time_of(now));
  const Outcome outcome = *operation.outcome_;
  switch (outcome) {
    case Outcome::satisfied:
      ++metrics.satisfied;
      break;
    case Outcome::cancelled:
      ++metrics.cancelled;
      break;
    case Outcome::expired:
      ++metrics.expired;
      metrics.late_ms.add(now > operation.until_ ? now - operation.until_ : 0, time_of(now));
  }
  operation.on_complete(outcome);  // May destroy it.
}

}  // namespace tarry::purgatory
