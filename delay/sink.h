#pragma once

// Sink: the engine's host, as the engine sees it.  Where due records go, where what must survive
// is written, and who is asked about topics.
//
//   engine --deliver(batch, gone)--> sink: one journal record [LogAppended, PendingRemoved...]
//   engine <-------done(offset)----- sink: that record is durable
//
// The broker's Sink is a partition and its shard's journal; a relay beside an existing Kafka would
// be another.  Everything runs on the engine's thread.  A `done` may be called inside the call
// that it was given to, when that refuses; it is called once, or never when the incarnation ends
// first.  After a journal record was taken, `done` comes in the order of the journal.

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/journal_record.h"
#include "storage/journal_transaction.h"

namespace tarry::delay {

// Which time a delivered record carries (tarry.delay.timestamp).
enum class DeliveredTimestamp {
  due,       // The one it was scheduled for.
  original,  // The producer's.
  delivery,  // That of its delivery.
};

// What delay/ has to know of a topic, to accept and to deliver.
struct TopicDelay {
  bool enable = true;                                  // tarry.delay.enable: look at headers.
  std::chrono::milliseconds default_delay{0};          // tarry.delay.ms; 0: none.
  std::optional<std::chrono::milliseconds> max_delay;  // tarry.delay.max.ms
  DeliveredTimestamp timestamp = DeliveredTimestamp::due;
  bool log_append_time = false;               // message.timestamp.type
  std::size_t max_message_bytes = 1'048'588;  // Bounds delivered batches, not records.
};

class Sink {
 public:
  virtual ~Sink() = default;

  // The topic as it is now; empty when it is gone, and then so is what is pending for it.
  virtual std::optional<TopicDelay> target(const TopicPartition& partition) = 0;

  // Whether this engine delivers for `partition`: another shard's entries stand in the same store.
  // Always the same answer for one partition.
  virtual bool owns(const TopicPartition& partition) = 0;

  // Appends `batch` (offsets from 0; producer id -1) to the partition and `gone` to the same
  // journal record.  What `gone` views lives until `done` has been called.  Done with the offset
  // of the first record, when it is durable; or with why nothing was written, and then the engine
  // tries again later (Errc::not_found: the topic is gone).  What is not due by the wall clock at
  // the time of appending is not written: a sink that makes a batch wait looks at the clock again.
  virtual void deliver(const TopicPartition& partition, Buffer batch,
                       std::vector<storage::PendingRemoved> gone,
                       std::move_only_function<void(Result<Offset>)> done) = 0;

  // Commits what the engine takes away.
  virtual void commit(storage::JournalTransaction transaction) = 0;

  // Sequence numbers run low: note a block durably, then Engine::give_sequences().  Asked once
  // until they come.
  virtual void request_sequences() = 0;

  // What is durable could not be written to the pending store or be read from it: the incarnation
  // is over, and the engine does nothing any more.  Told once.
  virtual void store_failed(const Error& error) = 0;
};

}  // namespace tarry::delay
