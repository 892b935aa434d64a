#include "purgatory/delayed_operation.h"

#include "base/assert.h"
#include "purgatory/purgatory.h"

namespace tarry::purgatory {

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::fetch:
      return "fetch";
    case Kind::produce:
      return "produce";
    case Kind::join:
      return "join";
    case Kind::sync:
      return "sync";
    case Kind::heartbeat:
      return "heartbeat";
    case Kind::delete_records:
      return "delete_records";
    case Kind::create_topics:
      return "create_topics";
    case Kind::delete_topics:
      return "delete_topics";
    case Kind::create_partitions:
      return "create_partitions";
    case Kind::alter_configs:
      return "alter_configs";
    case Kind::offset_commit:
      return "offset_commit";
    case Kind::offset_delete:
      return "offset_delete";
    case Kind::delete_groups:
      return "delete_groups";
    case Kind::init_producer_id:
      return "init_producer_id";
    case Kind::fetch_watch:
      return "fetch_watch";
  }
  return "unknown";
}

std::string_view name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::satisfied:
      return "satisfied";
    case Outcome::expired:
      return "expired";
    case Outcome::cancelled:
      return "cancelled";
  }
  return "unknown";
}

bool DelayedOperation::start(Purgatory& purgatory, Tick now, Tick deadline,
                             std::span<const Watching> watching) {
  TARRY_ASSERT(state_ == State::idle, "an operation is started again only once it was answered");
  purgatory_ = &purgatory;
  started_ = now;
  deadline_ = deadline;
  outcome_.reset();
  KindMetrics& metrics = purgatory.of(*this);
  ++metrics.started;
  if (is_satisfied()) {
    ++metrics.answered_at_once;
    outcome_ = Outcome::satisfied;
    on_complete(Outcome::satisfied);  // May destroy us.
    return false;
  }
  // What may throw comes first.
  if (watching.size() > 1) many_ = std::make_unique<Watch[]>(watching.size());
  if (deadline != no_deadline) purgatory.wheel_.schedule(*this, deadline);
  watch_count_ = static_cast<std::uint32_t>(watching.size());
  for (std::size_t i = 0; i < watching.size(); ++i) {
    Watch& watch = watches()[i];
    watch.asked_in_ = 0;  // No pass of this list; the watch may have served on another.
    watching[i].list.add(watch, *this, watching[i].threshold);
  }
  purgatory.waiting_.push_back(*this);
  ++metrics.waiting;
  state_ = State::waiting;
  return true;
}

void DelayedOperation::cancel() {
  if (waiting()) complete(Outcome::cancelled);
}

void DelayedOperation::withdraw() {
  if (state_ == State::idle) return;
  KindMetrics& metrics = purgatory_->of(*this);
  if (waiting()) {
    leave();
  } else {
    place_.unlink();
    --metrics.queued;
  }
  ++metrics.withdrawn;
  state_ = State::idle;
}

bool DelayedOperation::move_deadline(Tick deadline) {
  if (!waiting()) return false;
  deadline_ = deadline;
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
  deadline_ = *later;
  purgatory_->wheel_.schedule(*this, *later);
}

bool DelayedOperation::reached(const Watch& watch) {
  asked_for_ = static_cast<std::uint32_t>(&watch - watches().data());
  const bool satisfied = is_satisfied();
  asked_for_.reset();
  if (!satisfied) return false;
  complete(Outcome::satisfied);
  return true;
}

void DelayedOperation::complete(Outcome outcome) {
  leave();
  outcome_ = outcome;
  state_ = State::queued;
  purgatory_->enqueue(*this);
}

// Out of the lists, the wheel and those who wait.
void DelayedOperation::leave() {
  for (Watch& watch : watches()) {
    if (watch.list_ != nullptr) watch.list_->remove(watch);
  }
  many_.reset();
  watch_count_ = 0;
  Timer::cancel();
  place_.unlink();
  --purgatory_->of(*this).waiting;
}

}  // namespace tarry::purgatory
