#include "purgatory/delayed_operation.h"

#include "base/assert.h"

namespace tarry::purgatory {

bool DelayedOperation::start(Purgatory& purgatory, Tick now, Tick deadline,
                             std::span<const Watching> watching) {
  purgatory.thread_.check();
  TARRY_ASSERT(state_ == State::idle, "an operation is started again only once it was answered");
  purgatory_ = &purgatory;
  started_ = now;
  until_ = deadline;
  outcome_.reset();
  KindMetrics& metrics = purgatory.of(*this);
  ++metrics.started;
  // Asked before it watches anything: most requests never wait, and cost no watch and no timer.
  if (is_satisfied()) {
    ++metrics.answered_at_once;
    outcome_ = Outcome::satisfied;
    on_complete(Outcome::satisfied);  // May destroy us.
    return false;
  }
  // Everything that may throw comes first: an exception must not leave the operation half started.
  if (watching.size() > 1) many_ = std::make_unique<Watch[]>(watching.size());
  if (deadline != no_deadline) purgatory.wheel_.schedule(*this, deadline);
  watch_count_ = static_cast<std::uint32_t>(watching.size());
  for (std::size_t i = 0; i < watching.size(); ++i) {
    Watch& watch = watches()[i];
    watch.last_pass_ = 0;  // No pass of this list; the watch may have served on another.
    watching[i].list.add(watch, *this, watching[i].threshold);
  }
  purgatory.waiting_.push_back(*this);
  ++metrics.waiting;
  state_ = State::waiting;
  return true;
}

void DelayedOperation::cancel() {
  if (!waiting()) return;
  purgatory_->thread_.check();  // Before it leaves any list.
  complete(Outcome::cancelled);
}

void DelayedOperation::withdraw() {
  if (state_ == State::idle) return;
  KindMetrics& metrics = purgatory_->of(*this);
  if (waiting()) {
    leave();
  } else {
    queue_hook_.unlink();
    --metrics.queued;
  }
  ++metrics.withdrawn;
  state_ = State::idle;
}

bool DelayedOperation::move_deadline(Tick deadline) {
  if (!waiting()) return false;
  purgatory_->thread_.check();
  until_ = deadline;
  if (deadline == no_deadline) {
    Timer::cancel();
  } else {
    purgatory_->wheel_.schedule(*this, deadline);
  }
  return true;
}

void DelayedOperation::rewatch(WatchList& list, Threshold threshold) {
  if (!waiting()) return;
  for (Watch& watch : watches()) {
    if (watch.list_ != &list || watch.threshold_ == threshold) continue;
    // The list is ordered by threshold, so the watch is taken out and put in again.
    list.remove(watch);
    list.add(watch, *this, threshold);
  }
}

void DelayedOperation::rewatch(std::size_t which, Threshold threshold) {
  if (!waiting()) return;
  TARRY_ASSERT(which < watch_count_, "an operation rewatches what it watches");
  Watch& watch = watches()[which];
  if (watch.list_ == nullptr || watch.threshold_ == threshold) return;
  WatchList& list = *watch.list_;
  list.remove(watch);
  list.add(watch, *this, threshold);
}

void DelayedOperation::on_expired() {
  const auto later = prolonged();
  if (!later) return complete(Outcome::expired);
  until_ = *later;
  // The timer has just fired, so it is out of the wheel.
  purgatory_->wheel_.schedule(*this, *later);
}

bool DelayedOperation::reached(const Watch& watch) {
  // The operation may ask which of its watches was reached, and look at that alone.
  asked_for_ = static_cast<std::uint32_t>(&watch - watches().data());
  const bool satisfied = is_satisfied();
  asked_for_.reset();
  if (!satisfied) return false;
  complete(Outcome::satisfied);
  return true;
}

void DelayedOperation::complete(Outcome outcome) {
  // Out of all lists before it is queued, so that nothing completes it a second time.
  leave();
  outcome_ = outcome;
  state_ = State::queued;
  purgatory_->enqueue(*this);
}

// Leaves the lists, the wheel and the purgatory's list of waiting operations.
void DelayedOperation::leave() {
  for (Watch& watch : watches()) {
    if (watch.list_ != nullptr) watch.list_->remove(watch);
  }
  // The memory of several watches goes at once: the operation itself may live as long as its
  // connection.
  many_.reset();
  watch_count_ = 0;
  Timer::cancel();
  queue_hook_.unlink();
  --purgatory_->of(*this).waiting;
}

}  // namespace tarry::purgatory
