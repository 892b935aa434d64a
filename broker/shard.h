#pragma once

// Shard: one thread's world.
//
//   io_context -- TimingWheel -- Purgatory -- Journal -- delay::Engine
//                                    |
//          partitions that hash to it: Log, high watermark, producers, who waits
//
// Everything in it runs on its thread, so nothing in it has a lock.  Another shard's work comes in
// as a coroutine or a post (Broker::on), and what blocks goes out through background().
//
// A partition is opened when it is first used; who asks for it meanwhile waits and goes on in the
// order of asking.
//
// What the journal has made durable is applied here in the order of the records: the high
// watermark moves, parked records are kept, and then those who waited are answered.  What is
// written behind the journal is the Checkpointer's.

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "base/background.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log_throttle.h"
#include "broker/batch_checks.h"
#include "broker/checkpointer.h"
#include "broker/partition.h"
#include "broker/partition_sink.h"
#include "broker/wakeup.h"
#include "delay/engine.h"
#include "protocol/error_code.h"
#include "purgatory/purgatory.h"
#include "storage/catalog.h"
#include "storage/journal.h"
#include "timing/timing_wheel.h"

namespace tarry::broker {

class Broker;
class Groups;

// What a shard stands on; all of it outlives the shard.
struct ShardSetup {
  std::uint32_t index = 0;
  boost::asio::any_io_executor executor;
  Background* background = nullptr;
  Background* round_lane = nullptr;  // For the journal's rounds alone; null: with the rest.
};

class Shard {
 public:
  Shard(Broker& broker, ShardSetup setup);
  ~Shard();

  // Opens the journal behind what recovery found.  Blocks; before the threads run.
  Result<> open_journal(const storage::RecoveredJournal& recovered);
  // From here on parked records are delivered.  On the shard's thread.
  void start();
  // Writes what is dirty, notes a checkpoint and calls `then`; nothing is accepted any more.
  void stop(std::move_only_function<void()> then);

  std::uint32_t index() const { return index_; }
  Broker& broker() { return broker_; }
  const boost::asio::any_io_executor& executor() const { return executor_; }
  Background& background() { return background_; }
  const Clock& clock() const { return clock_; }
  storage::Journal& journal() { return *journal_; }
  delay::Engine& engine() { return *engine_; }
  purgatory::Purgatory& purgatory() { return purgatory_; }
  Groups& groups() { return *groups_; }  // Those of Broker::shard_of_group().
  BatchChecks& checks() { return checks_; }

  // Ticks are milliseconds of monotonic time since the broker was made; now is rounded down,
  // deadlines up.
  timing::TimingWheel& wheel() { return wheel_; }
  timing::Tick tick() const;
  timing::Tick tick_after(std::chrono::milliseconds wait) const;
  MonoTime time_of(timing::Tick tick) const;

  // As this shard knows them; the same pointer until set_topics().
  const storage::TopicsImage& topics() const { return *topics_; }
  std::shared_ptr<const TopicConfig> config_of(const storage::Topic& topic);
  // Takes a new image: partitions of deleted topics go, those who wait for them are answered.
  void set_topics(std::shared_ptr<const storage::TopicsImage> topics);

  // While a topic is being deleted nothing is taken for it.
  void refuse_topic(const TopicId& topic, bool refuse);
  bool refuses(const TopicId& topic) const { return refused_.contains(topic); }

  // The partition, opened; or why not.  For partitions of this shard only.
  boost::asio::awaitable<std::expected<Partition*, protocol::ErrorCode>> partition(
      TopicPartition tp);
  void with_partition(
      TopicPartition tp,
      std::move_only_function<void(std::expected<Partition*, protocol::ErrorCode>)> take);
  // Null when it is not open.
  Partition* open_partition(const TopicPartition& tp);
  // During recovery: opened at once, in the caller.
  Result<Partition*> open_now(const TopicPartition& tp);
  const std::unordered_map<TopicPartition, std::unique_ptr<Partition>>& partitions() const {
    return partitions_;
  }

  // Of a deleted topic, as long as something may point to it; or null.
  Partition* retired_partition(const TopicPartition& tp);
  // Lets go of those that nothing points to any more.
  void remove_retired();

  // Those who wait for the journal, by the LSN they wait for.
  purgatory::WatchList durable_waiters;
  purgatory::WatchList written_waiters;  // tarry.durability=os

  // Everything before has been told to its completion.
  Lsn durable_through() const { return durable_through_; }
  Lsn written_through() const { return written_through_; }

  // One record into the journal.  `completion` runs when it is written or durable, then those
  // who wait for its LSN are asked.
  Result<Lsn> append(const storage::RecordBuilder& record, storage::When when,
                     storage::JournalUse use, storage::Journal::Completion completion);

  // What is written behind the journal, and whether the disk has room.
  Checkpointer& checkpointer() { return checkpointer_; }

  // Nothing can be promised any more: no work is taken, and the process ends.
  void journal_failed(const Error& error);

  bool stopping() const { return stopping_; }

  // Runs `work` on the pool and goes on here with what it returns or throws.
  template <typename F>
  boost::asio::awaitable<decltype(std::declval<F>()())> blocking(F work);

  // For /status and /metrics; written by the session layer and the broker.
  std::size_t connections = 0;
  std::uint64_t requests_total = 0;
  std::uint64_t checkpoints_total = 0;

  // Batches of this shard's clients that were answered with an error, by error code.
  struct ProduceErrors {
    std::uint64_t batches = 0;
    LogThrottle log{5};
  };
  std::map<protocol::ErrorCode, ProduceErrors> produce_errors;  // A handful of codes.

  // For what clients can cause over and over.
  LogThrottle log_transactions{5};
  LogThrottle log_not_stored{5};  // Groups and their offsets.

  // Of all groups' committed offsets, and on their way; written by GroupOffsets.
  std::size_t offset_bytes = 0;
  bool offsets_are_full = false;  // It was told to the operator.

 private:
  using TakePartition =
      std::move_only_function<void(std::expected<Partition*, protocol::ErrorCode>)>;
  struct Opening {
    std::vector<TakePartition> waiting;
  };
  // What opening a partition takes; runs on the pool.
  struct Loading {
    Shard* shard;
    TopicPartition tp;
    std::string topic_name;
    std::string directory;
    std::shared_ptr<const TopicConfig> config;
  };
  static Result<std::unique_ptr<Partition>> load(const Loading& loading, Broker& broker);
  std::optional<Loading> loading_of(const TopicPartition& tp);
  void opened(TopicPartition tp, Result<std::unique_ptr<Partition>> loaded);
  void drop_partition(const storage::Topic& topic, PartitionIndex index);
  void run_removal(storage::LogRemoval removal);

  void arm_idle_note();
  std::string directory_of(const storage::Topic& topic, PartitionIndex partition) const;

  Broker& broker_;
  const std::uint32_t index_;
  const boost::asio::any_io_executor executor_;
  Background& background_;
  Background* const round_lane_;
  const Clock& clock_;
  const MonoTime epoch_;  // Tick 0.
  BatchChecks checks_;

  timing::TimingWheel wheel_;
  purgatory::Purgatory purgatory_;
  std::unique_ptr<storage::Journal> journal_;
  std::shared_ptr<const storage::TopicsImage> topics_ = std::make_shared<storage::TopicsImage>();
  std::unordered_map<TopicId, std::shared_ptr<const TopicConfig>> configs_;

  std::unordered_set<TopicId> refused_;
  std::unordered_map<TopicPartition, std::unique_ptr<Partition>> partitions_;
  std::unordered_map<TopicPartition, Opening> opening_;
  std::unordered_map<TopicPartition, std::string> unopened_;  // Why, as the operator was told.
  std::unique_ptr<PartitionSink> sink_;
  std::unique_ptr<delay::Engine> engine_;
  std::unique_ptr<Groups> groups_;

  Lsn durable_through_ = 0;
  Lsn written_through_ = 0;
  // Of a deleted topic.  Completions in the journal point to it, of records before `appended`.
  struct Retired {
    std::unique_ptr<Partition> partition;
    Lsn appended;
  };
  std::vector<Retired> retired_;

  Checkpointer checkpointer_;
  bool stopping_ = false;
  timing::CallbackTimer idle_note_timer_;
};

template <typename F>
boost::asio::awaitable<decltype(std::declval<F>()())> Shard::blocking(F work) {
  struct Outcome {
    std::optional<decltype(work())> value;
    std::exception_ptr thrown;
  };
  Wakeup done;
  Outcome outcome;
  auto guarded = [work = std::move(work)]() mutable {
    Outcome out;
    try {
      out.value.emplace(work());
    } catch (...) {
      out.thrown = std::current_exception();
    }
    return out;
  };
  background_.run(std::move(guarded), [&](Outcome out) {
    outcome = std::move(out);
    done.fire();
  });
  co_await done.wait();
  if (outcome.thrown) std::rethrow_exception(outcome.thrown);
  co_return std::move(*outcome.value);
}

}  // namespace tarry::broker
