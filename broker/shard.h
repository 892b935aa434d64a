#pragma once

// Shard: everything that one thread owns.
//
//   io_context -- ShardContext: TimingWheel, Purgatory, Journal
//                      |
//        Partitions  delay::Engine  Groups
//                      |
//        Checkpointer  FreeSpace  ShortageRetry  Retention  StopDrain
//
// It owns them and calls each as needed; each is described in its own file.
// Another shard's work comes in as a coroutine or a post (Broker::on), and what blocks goes out
// through background().
//
// Everything runs on the shard's thread, so nothing in it has a lock.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/ids.h"
#include "base/log_throttle.h"
#include "base/windowed_histogram.h"
#include "broker/checkpoint/checkpointer.h"
#include "broker/checkpoint/free_space.h"
#include "broker/checkpoint/retention.h"
#include "broker/checkpoint/shortage_retry.h"
#include "broker/checkpoint/stop_drain.h"
#include "broker/context/connection.h"
#include "broker/context/shard_context.h"
#include "broker/groups/groups.h"
#include "broker/partitions/batch_checks.h"
#include "broker/partitions/partition_host.h"
#include "broker/partitions/partition_sink.h"
#include "broker/partitions/partitions.h"
#include "broker/partitions/topic_notes.h"
#include "broker/shard_counters.h"
#include "delay/engine.h"
#include "protocol/error_code.h"
#include "storage/catalog.h"
#include "storage/journal.h"

namespace tarry::broker {

class Shard final : public ShardContext, private PartitionHost {
 public:
  using WriteDeadLetters = std::function<void(Shard&, TopicPartition from, Buffer batch,
                                              std::move_only_function<void(Result<>)> done)>;

  // `request_sequences` is called when the engine needs a block of sequence numbers,
  // `write_dead_letters` as dead_letter_writer.h says.
  Shard(const BrokerContext& broker, ShardSetup setup,
        std::move_only_function<void(Shard&)> request_sequences,
        WriteDeadLetters write_dead_letters);
  ~Shard();

  // Opens the journal after what recovery found.  Blocks; before the threads run.
  Result<> open_journal(const storage::RecoveredJournal& recovered);
  // From here on pending records are delivered.  On the shard's thread.
  void start();
  // Writes what is dirty, notes a checkpoint and calls `then`; nothing is accepted any more.
  void stop(std::move_only_function<void()> then);

  Partitions& partitions() {
    assert_on_shard();
    return partitions_;
  }
  const Partitions& partitions() const {
    assert_on_shard();
    return partitions_;
  }
  delay::Engine& engine() override {
    assert_on_shard();
    return engine_;
  }
  TopicNotes& notes() override {
    assert_on_shard();
    return notes_;
  }
  const TopicLags& topic_lags() {
    assert_on_shard();
    return sink_.lags();
  }
  // The groups that this shard owns.
  Groups& groups() {
    assert_on_shard();
    return groups_;
  }
  Checkpointer& checkpointer() {
    assert_on_shard();
    return checkpointer_;
  }
  FreeSpace& free_space() {
    assert_on_shard();
    return free_space_;
  }

  // Settings have changed: takes them over, for its open partitions and groups in steps.
  boost::asio::awaitable<void> change_config(std::shared_ptr<const BrokerConfig> config);
  // The same before its thread runs.
  void set_config(const BrokerConfig& config);

  // Takes a new image: partitions of deleted topics go, requests that wait for them are answered.
  void set_topics(std::shared_ptr<const storage::TopicsImage> image);
  // The same, but the partitions go in steps; until the last one is gone no name may be given out
  // again.
  boost::asio::awaitable<void> change_topics(std::shared_ptr<const storage::TopicsImage> image);

  ShardCounters counters;
  ClientList clients;
  // Microseconds of each turn of the thread, which whoever runs it measures.
  WindowedHistogram turns;
  WindowedHistogram busy_turns;

  // Batches of this shard's clients that were answered with an error, by error code.
  struct ProduceErrors {
    std::uint64_t batches = 0;
    LogThrottle log{5};
  };
  std::map<protocol::ErrorCode, ProduceErrors> produce_errors;  // A handful of codes.

  LogThrottle log_transactions{5};  // A client can cause it over and over.
  LogThrottle log_failed_reads{5};  // As long as the disk is broken.

 private:
  // --- ShardContext
  void record_appended(Lsn lsn) noexcept override {
    checkpointer_.appended(lsn);
    free_space_.appended(lsn);
  }
  void record_completed() override;
  void all_applied() override { checkpointer_.all_applied(); }
  void on_journal_pressure() override;
  void on_journal_postponed(const Error& error) override { shortage_.later(error); }

  // --- PartitionHost
  void write_dead_letters(const TopicPartition& from, Buffer batch,
                          std::move_only_function<void(Result<>)> done) override {
    write_dead_letters_(*this, from, std::move(batch), std::move(done));
  }
  BatchChecks& checks() override { return checks_; }
  void opened(Partition&) override { retention_.look_later(); }
  void went_out_of_service(const Partition& partition) override {
    partitions_.note_out_of_service(partition);
  }
  void appended(std::uint64_t records) noexcept override {
    counters.appended_records_total += records;
  }
  void log_is_dirty(Partition& partition, std::size_t bytes) override {
    checkpointer_.note_dirty(partition, bytes);
    retention_.look_later();  // An empty partition may have been all that it saw so far.
  }
  void log_start_moved(Partition& partition) override { retention_.remove_old_segments(partition); }

  void refresh_config(const TopicPartition& tp);
  std::vector<storage::TopicsImage::TopicPtr> exchange_and_find_deleted(
      std::shared_ptr<const storage::TopicsImage> image);
  void drop_partitions(const storage::Topic& topic, PartitionIndex from, PartitionIndex until);
  void remove_retired_partitions();

  WriteDeadLetters write_dead_letters_;
  TopicNotes notes_;
  BatchChecks checks_;
  Partitions partitions_;
  PartitionSink sink_;
  delay::Engine engine_;
  Groups groups_;
  ShortageRetry shortage_;
  FreeSpace free_space_;
  Checkpointer checkpointer_;
  Retention retention_;
  StopDrain stop_drain_;
};

}  // namespace tarry::broker
