#include "delay/engine.h"

#include <utility>

#include "base/log.h"

namespace tarry::delay {

BucketTier::Options Engine::tier_options(const Storage& storage) const {
  BucketTier::Options out;
  out.memory_bytes = options_.memory_bytes;
  out.lead = options_.lead;
  out.step_entries = options_.step_loads;
  out.counts = &storage.counts;
  return out;
}

BucketTier::Hooks Engine::tier_hooks(const Storage& storage) {
  BucketTier::Hooks out;
  out.near = [this](const storage::PendingView& record, const Location& at) {
    came_near(record, at);
  };
  out.floods = [this](const TopicPartition& partition) {
    return queues_.has_much_of_all(partition);
  };
  out.near_soon = [this](Sequence sequence) { queues_.prefetch(sequence); };
  out.pulled_back = [this](const PendingKey&) { queues_.begin_sweep(); };
  out.wake = [this] { alarm_.wake(); };
  out.failed = [this](const Error& error) { failed(error); };
  out.owner_of = storage.owner_of;
  out.flush = storage.flush;
  return out;
}

Engine::Engine(const Clock& clock, timing::TimingWheel& shard_wheel, const Storage& storage,
               Sink& sink, const Options& options)
    : options_(options),
      time_(clock),
      alarm_(time_, shard_wheel, options.wheel_start,
             {.step = [this] { return step(); },
              .next = [this](MonoTime now) { return next_work(now); }}),
      tier_(storage.store, storage.background, storage.owner, tier_options(storage),
            tier_hooks(storage)),
      context_{.options = options_,
               .time = time_,
               .alarm = alarm_,
               .tier = tier_,
               .sink = sink,
               .failed = [this](const Error& error) { failed(error); }},
      queues_(context_),
      durable_(time_, queues_, [this] { alarm_.wake(); }),
      changes_(context_, durable_, queues_, removals_, unapplied_, waiters_),
      deliveries_(context_, storage.background, durable_, queues_, removals_, changes_, waiters_),
      intake_(context_, storage.background, durable_, queues_, removals_, unapplied_, waiters_,
              deliveries_),
      control_(context_, removals_, unapplied_, waiters_, deliveries_, changes_) {}

Engine::~Engine() {
  // Calls of the journal and of the pool may still be on their way, and look at it before all else.
  *context_.alive = false;
}

Result<> Engine::open() {
  return tier_.open(time_.wall());
}

void Engine::start() {
  thread_.bind();
  time_.start();
  intake_.sequences().request_if_low();
  alarm_.start();
}

// Handles records that have become due, that become near, and that may leave.
bool Engine::step() {
  constexpr std::size_t parts = 5;
  const WallTime now = time_.begin_step();
  queues_.end_back_offs(time_.mono());
  // Locators and records share the limit tarry.delay.memory.bytes.
  tier_.set_locator_bytes(queues_.locator_bytes());
  // All parts may have much to do at once, in a burst that does not fit into memory.
  const MonoTime until = time_.mono() + options_.turn_time;
  const bool is_whole = next_part_ == 0;
  bool more = false;
  while (next_part_ < parts) {
    more |= step_part(next_part_++, now);
    if (context_.stopped) return false;
    if (next_part_ < parts && time_.mono() >= until) return true;
  }
  next_part_ = 0;
  // The later parts may have left something to the earlier ones.
  return more || !is_whole;
}

// In this order: what one part makes ready the next ones deliver.  True: there is more to do.
bool Engine::step_part(std::size_t part, WallTime now) {
  switch (part) {
    case 0:
      return take_in();
    case 1: {
      const bool more = tier_.step(now);
      const auto settled = tier_.settled();
      if (std::exchange(settled_, settled) != settled) queues_.settle();
      return more;
    }
    case 2:
      return queues_.advance(now);
    case 3:
      return deliveries_.dispatch();
    default:
      return queues_.sweep();
  }
}

// Applies what is durable, and goes on with long batches.  They may come faster than a slice in
// each step, and everything that is delivered waits for its turn among them.
bool Engine::take_in() {
  const MonoTime until = time_.mono() + options_.step_time;
  for (std::size_t slice = 1;; ++slice) {
    std::size_t budget = DurableChanges::slice_records;
    durable_.apply(budget);
    const bool more = intake_.step(budget);
    const bool has_work = more || !durable_.empty();
    if (!has_work || slice == options_.step_slices || time_.mono() >= until) return more;
  }
}

std::optional<MonoTime> Engine::next_work(MonoTime now) const {
  std::optional<MonoTime> next;
  const auto consider = [&next](MonoTime time) { next = next ? std::min(*next, time) : time; };
  if (const auto due = queues_.next_work()) consider(time_.mono_of(*due));
  if (const auto load = tier_.next_load()) consider(time_.mono_of(*load));
  // Nobody tells when memory is free again.
  if (tier_.waits_for_memory()) consider(now + Alarm::max_sleep);
  if (const auto retry = queues_.next_retry()) consider(*retry);
  return next;
}

void Engine::came_near(const storage::PendingView& record, const Location& at) {
  if (!removals_.contains(record.key.sequence)) queues_.file(record.key, record.partition, at);
}

void Engine::failed(const Error& error) {
  if (std::exchange(context_.stopped, true)) return;
  alarm_.stop();
  log_error("delay", "the pending store failed; delivery has stopped: {}", error.message);
  waiters_.stop({Errc::stopped, "the pending store has failed"});
  context_.sink.store_failed(error);
}

void Engine::stop_waiting() {
  thread_.check();
  waiters_.stop({Errc::stopped,
                 "the broker is stopping; the record is due now, and is delivered after the "
                 "next start unless it was just before"});
}

void Engine::write_all(std::move_only_function<void()> done) {
  thread_.check();
  // Behind the changes that wait, because the checkpoint has to have them.
  durable_.add([this, done = std::move(done)](std::size_t&) mutable {
    tier_.write_all(std::move(done));
    return true;
  });
}

void Engine::topic_deleted(const TopicId& topic) {
  thread_.check();
  tier_.topic_dropped(topic);
  queues_.topic_deleted(topic);
  deliveries_.topic_deleted(topic);
  waiters_.topic_deleted(topic);
  alarm_.wake();
}

Engine::Stats Engine::stats() const {
  thread_.check();
  Stats stats;
  static_cast<EngineTotals&>(stats) = context_.totals;
  stats.now = time_.now();
  stats.near = queues_.size();
  stats.arriving = unapplied_.size();
  stats.horizon = tier_.horizon().due;
  stats.tier = tier_.stats();
  if (const auto first = tier_.earliest()) {
    stats.next_due = first->due;
    stats.next_due_exact = first->exact;
  }
  stats.in_flight = deliveries_.records();
  for (const auto& [partition, fenced] : deliveries_.fenced()) {
    stats.out_of_service += fenced.overdue;
    // The tier does not know what is on disk before its horizon.
    if (fenced.overdue > 0 && (!stats.next_due || fenced.first < *stats.next_due)) {
      stats.next_due = fenced.first;
      stats.next_due_exact = true;
    }
  }
  stats.overdue = queues_.overdue() + stats.in_flight + stats.out_of_service;
  stats.wheel = queues_.wheel_stats();
  stats.bytes = queues_.bytes() + stats.tier.memory_bytes + tier_.coming_bytes();
  stats.unwritten_bytes = deliveries_.unwritten_bytes();
  stats.lag_us = deliveries_.lag_us(time_.mono());
  return stats;
}

storage::LevelSlots Engine::slots() const {
  thread_.check();
  // About a millisecond.
  constexpr std::size_t max_looked = 16'384;
  return tier_.slots(time_.now(), max_looked);
}

}  // namespace tarry::delay
