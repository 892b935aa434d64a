#pragma once

// ShardContext: the base of everything on a shard, and all that most code knows of its shard.
//
//   partitions, groups, topics, checkpoints, delayed operations
//        |  time and deadlines         clock, wheel, tick(), purgatory
//        |  long work                  steps()
//        |  work that blocks           blocking(), background()
//        |  what must survive          commit() into the shard's journal, and whom it notifies
//        |  what clients may hold      ledger()
//        |  what there is              topics(), config_of()
//        v
//   ShardContext  <-- Shard fills it in and owns what stands on it
//
// Durable changes are applied in the order of the journal's records: the callbacks of a transaction
// are called, then the requests that wait for its LSN are checked.  A transaction that waits for
// its write alone (tarry.durability=os) is settled earlier, before those of the same round that
// wait for the sync.
//
// Everything runs on the shard's thread, so nothing in it has a lock; from start() on the public
// functions assert it, but for those of constants.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "base/background.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log_throttle.h"
#include "base/owner_thread.h"
#include "broker/context/broker_context.h"
#include "broker/context/ledger.h"
#include "broker/context/step_queue.h"
#include "purgatory/purgatory.h"
#include "purgatory/watch_list.h"
#include "storage/catalog.h"
#include "storage/journal.h"
#include "storage/journal_transaction.h"
#include "timing/timing_wheel.h"

namespace tarry::broker {

// The parts that a shard is built on; all of them outlive it.
struct ShardSetup {
  std::uint32_t index = 0;
  boost::asio::any_io_executor executor;
  Background* background = nullptr;
  Background* round_lane = nullptr;  // For the journal's rounds alone; null: with the rest.
};

class ShardContext {
 public:
  ShardContext(const ShardContext&) = delete;
  ShardContext& operator=(const ShardContext&) = delete;

  std::uint32_t index() const { return setup_.index; }
  const boost::asio::any_io_executor& executor() const { return setup_.executor; }
  const BrokerContext& broker_context() const { return broker_; }
  // The present configuration; it may be another one after a co_await.
  const BrokerConfig& config() const {
    assert_on_shard();
    return config_;
  }
  bool owns(const TopicPartition& tp) const { return broker_.shard_index_of(tp) == index(); }
  // `door` is what another thread may not call.
  void assert_on_shard(std::source_location door = std::source_location::current()) const {
    thread_.check(door);
  }

  // --- Time.  Ticks are milliseconds of monotonic time since the shard was made; now is rounded
  // down, deadlines up.

  const Clock& clock() const { return *broker_.clock; }
  timing::TimingWheel& wheel() {
    assert_on_shard();
    return wheel_;
  }
  timing::Tick tick() const;
  timing::Tick tick_after(std::chrono::milliseconds wait) const;
  MonoTime time_of(timing::Tick tick) const;
  purgatory::Purgatory& purgatory() {
    assert_on_shard();
    return purgatory_;
  }

  Ledger& ledger() {
    assert_on_shard();
    return ledger_;
  }

  // --- Long work

  // Work of more than a millisecond waits here before each of its steps, so that others are served.
  StepQueue& steps() {
    assert_on_shard();
    return steps_;
  }

  // --- Work that blocks

  Background& background() { return *setup_.background; }
  // Runs `work` on the pool, and returns or throws its result here.
  template <typename F>
  boost::asio::awaitable<decltype(std::declval<F>()())> blocking(F work);
  // The same for work that keeps its result itself, compiled once for all: blocking() stands on it.
  // `work` lives in the frame that waits.
  boost::asio::awaitable<void> run_on_pool(std::move_only_function<void()>& work);

  // --- The journal

  // Its positions and figures.
  const storage::Journal& journal() const {
    assert_on_shard();
    return *journal_;
  }
  // The one way into the journal.  The LSN is that of the transaction's record; an error, which
  // settled() gets too, is the reason why there is none:
  //   no_space    the disk or the journal is full, or the data directory is away
  //   too_large   it is larger than a record may be
  //   io ...      the journal has failed
  // When it is durable (or written, if it asks for no more) its callbacks are called, then the
  // requests that wait for its LSN are checked.
  Result<Lsn> commit(storage::JournalTransaction transaction);
  // For a durable change of megabytes: the pool brings it to its database by `apply`, then `then`
  // is called here.  If it fails the shard has failed, and `then` is not called.  std::bad_alloc:
  // neither is.
  void apply_on_pool(std::move_only_function<Result<>()> apply,
                     std::move_only_function<void()> then);
  // Something durable is on its way there, or has not arrived: no checkpoint may begin, because it
  // would free the journal's files that have it.
  bool is_applying() const {
    assert_on_shard();
    return applying_ > 0;
  }
  // The requests that wait for the journal, by the LSN that they wait for.
  purgatory::WatchList durable_waiters;
  purgatory::WatchList written_waiters;  // tarry.durability=os
  // Everything before this is durable, and the parts of its transactions have been notified.
  Lsn durable_through() const {
    assert_on_shard();
    return durable_through_;
  }
  Lsn written_through() const {  // Everything before is written.
    assert_on_shard();
    return written_through_;
  }
  // For the checkpoint and the stop, which write nothing of their own (storage/journal.h).
  void start_journal_round() {
    assert_on_shard();
    journal_->start_round();
  }
  void retry_journal_space() {
    assert_on_shard();
    journal_->retry_space();
  }
  void note_checkpoint(Lsn lsn, storage::Journal::Completion then) {
    assert_on_shard();
    journal_->checkpoint(lsn, std::move(then));
  }
  // For a backup.
  void hold_journal_rounds(std::move_only_function<void()> held) {
    assert_on_shard();
    journal_->hold_rounds(std::move(held));
  }
  void release_journal_rounds() {
    assert_on_shard();
    journal_->release_rounds();
  }
  void keep_journal_files(bool keep) {
    assert_on_shard();
    journal_->keep_files(keep);
  }
  // The shard can keep no promise any more: it accepts no work from here on, and the process ends.
  void journal_failed(const Error& error);
  bool failed() const {
    assert_on_shard();
    return failed_;
  }

  // Enough of the disk is free for new work; deliveries and checkpoints go on without.  Written by
  // FreeSpace.
  bool has_room() const {
    assert_on_shard();
    return has_room_ && !failed_;
  }
  void set_has_room(bool has_room) {
    assert_on_shard();
    has_room_ = has_room;
  }
  // There is no room because the data directory was removed or replaced: the next start would not
  // find what is journaled, so nothing is.  Written by FreeSpace.
  static constexpr std::string_view lost_directory_text =
      "the broker's data directory was removed or replaced; its log says what to do";
  bool lost_directory() const {
    assert_on_shard();
    return lost_directory_;
  }
  void set_lost_directory(bool lost) {
    assert_on_shard();
    lost_directory_ = lost;
  }

  // --- Topics, as this shard knows them

  // The same pointer until the Shard takes a new image.
  const storage::TopicsImage& topics() const {
    assert_on_shard();
    return *topics_;
  }
  std::shared_ptr<const storage::TopicsImage> topics_image() const {
    assert_on_shard();
    return topics_;
  }
  std::shared_ptr<const TopicConfig> config_of(const storage::Topic& topic);
  // While a topic is being deleted nothing is taken for it.
  void set_topic_refused(const TopicId& topic, bool refuse);
  bool refuses(const TopicId& topic) const {
    assert_on_shard();
    return refused_.contains(topic);
  }

  bool stopping() const {
    assert_on_shard();
    return stopping_;
  }

  LogThrottle log_not_stored{5};  // Groups and offsets that the journal refused.
  // The bytes that the logs of its partitions have in memory; each partition counts its own.
  std::uint64_t tail_bytes = 0;

 protected:
  ShardContext(const BrokerContext& broker, ShardSetup setup);
  ~ShardContext() = default;

  // From here on the shard is used on this thread alone.
  void bind_to_this_thread() {
    thread_.bind();
    purgatory_.bind_to_this_thread();
  }
  Result<> open_journal(const storage::RecoveredJournal& recovered);
  void begin_to_stop();
  std::shared_ptr<const storage::TopicsImage> exchange_topics(
      std::shared_ptr<const storage::TopicsImage> topics);
  void forget_config(const TopicId& topic) {
    assert_on_shard();
    configs_.erase(topic);
  }
  // Settings have changed.  True: so have the topics' defaults.
  bool exchange_config(const BrokerConfig& config);

 private:
  // Notifies the parts of the shard that watch the journal's records.
  virtual void record_appended(Lsn lsn) noexcept = 0;
  virtual void record_completed() = 0;  // Its completion has run, and those who waited were asked.
  virtual void all_applied() = 0;  // is_applying() no more, or it will be so for ever: failed().
  virtual void on_journal_pressure() = 0;  // Half full, or it has refused a record.
  virtual void on_journal_postponed(const Error& error) = 0;  // A round, for want of descriptors.

  void advance_watermarks(Lsn lsn, storage::Durability durability);
  void arm_idle_note();

  const BrokerContext& broker_;
  BrokerConfig config_;
  const ShardSetup setup_;
  OwnerThread thread_;
  const MonoTime epoch_;  // Tick 0.
  timing::TimingWheel wheel_;
  purgatory::Purgatory purgatory_;
  Ledger ledger_;
  StepQueue steps_;
  std::unique_ptr<storage::Journal> journal_;
  std::size_t applying_ = 0;
  Lsn durable_through_ = 0;
  Lsn written_through_ = 0;
  timing::CallbackTimer completions_timer_;  // In place of a turn for which there was no memory.
  timing::CallbackTimer idle_note_timer_;
  std::shared_ptr<const storage::TopicsImage> topics_ = std::make_shared<storage::TopicsImage>();
  std::unordered_map<TopicId, std::shared_ptr<const TopicConfig>> configs_;
  std::unordered_set<TopicId> refused_;
  bool has_room_ = true;
  bool failed_ = false;
  bool stopping_ = false;
  bool lost_directory_ = false;
};

template <typename F>
boost::asio::awaitable<decltype(std::declval<F>()())> ShardContext::blocking(F work) {
  std::optional<decltype(work())> value;
  std::move_only_function<void()> call = [&work, &value] {
    F own = std::move(work);  // So the memory that it holds is freed on the pool.
    value.emplace(own());
  };
  co_await run_on_pool(call);
  co_return std::move(*value);
}

}  // namespace tarry::broker
