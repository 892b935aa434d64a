#include "storage/checkpoint.h"

#include <algorithm>

#include "base/assert.h"

namespace tarry::storage {

Checkpoint::Checkpoint(const Policy& policy, Lsn noted, Lsn end, MonoTime now)
    : policy_(policy), noted_(noted), target_(noted), dirty_from_(noted), dirty_until_(noted) {
  // The records that recovery has replayed lie between the two, and are dirty as if they had just
  // come.
  if (end == noted) return;
  dirty_since_ = now;
  dirty_until_ = end - 1;
}

void Checkpoint::appended(Lsn lsn, MonoTime now) {
  if (!dirty_since_) {
    dirty_since_ = now;
    dirty_from_ = lsn;
  }
  dirty_until_ = std::max(dirty_until_, lsn);
}

bool Checkpoint::wanted(MonoTime now) const {
  if (step_ != Step::idle || !dirty_since_) return false;
  return hurried_ || dirty_until_ - dirty_from_ >= policy_.dirty_bytes ||
         now - *dirty_since_ >= policy_.interval;
}

std::optional<MonoTime> Checkpoint::wanted_at() const {
  if (step_ != Step::idle || !dirty_since_) return std::nullopt;
  const bool at_once = hurried_ || dirty_until_ - dirty_from_ >= policy_.dirty_bytes;
  // A time in the past means now: dirty_since_ needs no clock.
  return at_once ? *dirty_since_ : *dirty_since_ + policy_.interval;
}

Checkpoint::Step Checkpoint::begin(Lsn applied, MonoTime now) {
  TARRY_ASSERT(step_ == Step::idle, "one checkpoint at a time");
  TARRY_ASSERT(applied >= noted_, "the applied position never moves back");
  target_ = applied;
  hurried_ = false;
  // Records at or after the target are the next one's.
  dirty_from_ = applied;
  if (dirty_since_ && dirty_until_ >= applied)
    dirty_since_ = now;
  else
    dirty_since_.reset();
  return step_ = Step::save_states;
}

Checkpoint::Step Checkpoint::finished(const Result<>& result) {
  TARRY_ASSERT(step_ != Step::idle && step_ != Step::failed, "a step is under way");
  if (!result) return step_ = Step::failed;
  // The position is noted last: what lies before it is never replayed again, so all of it has to be
  // durable elsewhere.
  switch (step_) {
    case Step::save_states:
      return step_ = Step::write_logs;
    case Step::write_logs:
      return step_ = Step::sync_logs;
    case Step::sync_logs:
      return step_ = Step::flush_pending;
    case Step::flush_pending:
      return step_ = Step::flush_meta;
    case Step::flush_meta:
      return step_ = Step::note_position;
    default:
      noted_ = target_;
      return step_ = Step::idle;
  }
}

void Checkpoint::abandon(MonoTime now) {
  TARRY_ASSERT(step_ != Step::idle && step_ != Step::failed,
               "only a checkpoint that has begun is abandoned");
  step_ = Step::idle;
  hurried_ = false;
  dirty_since_ = now;
  // All records since the last noted position are dirty again, because nothing was noted.
  dirty_from_ = noted_;
  if (target_ > noted_) dirty_until_ = std::max(dirty_until_, target_ - 1);
}

}  // namespace tarry::storage
