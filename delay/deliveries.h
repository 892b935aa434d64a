#pragma once

// Deliveries: packs due records into batches and hands them to the Sink, until they are durable in
// the log.
//
//   ReadyQueues -- dispatch(): a batch of the partition whose turn it is
//        |
//        v   per partition, in order:
//   [ packing ... | packed ] --one at a time--> Sink::deliver() --> appended --> durable
//      |                                             |                              |
//      '-- a large one is compressed on              '-- refused: it and those      '--> gone, or
//          the Background                                behind it are queued again      due again
//
// Invariants
//   - Per partition, batches are handed to the sink in (due, sequence) order,
//     each when all before it are in the journal: a batch that is
//     refused is overtaken by none.
//   - A record is in one batch at most.  A cancel or move of it then waits for the outcome.
//   - What is on its way is bounded, per shard and per partition, and so is the work of a step.
//   - What was delivered and is in memory alone, because the logs have not written it, is bounded.
//
// Partitions take turns, a batch each.  One whose delivery was refused waits for its own back-off;
// the others do not wait for it.  One that is out of service (Errc::fenced) is offered nothing any
// more: what it has due is set aside, on disk, so that it takes no memory from the others, and the
// next start finds it there.
//
// Belongs to its engine, on its thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/background.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "base/ids.h"
#include "base/windowed_histogram.h"
#include "delay/delivery_waiters.h"
#include "delay/durable_changes.h"
#include "delay/engine_context.h"
#include "delay/own_changes.h"
#include "delay/pending_record.h"
#include "delay/ready_queues.h"
#include "delay/removals_in_flight.h"
#include "records/batch_builder.h"

namespace tarry::delay {

class Deliveries {
 public:
  Deliveries(EngineContext& context, Background& background, DurableChanges& durable,
             ReadyQueues& queues, RemovalsInFlight& removals, OwnChanges& changes,
             DeliveryWaiters& waiters)
      : context_(context),
        background_(background),
        durable_(durable),
        queues_(queues),
        removals_(removals),
        changes_(changes),
        waiters_(waiters) {}

  // Delivers what is due, within the bounds of a step.  True: there is more.
  bool dispatch();

  // A record on its way.
  struct InFlight {
    bool appended;                      // Nothing can refuse its delivery any more.
    std::optional<PendingKey> again;    // A recurring one: its key from then on,
    storage::PendingShare again_share;  //   and its share.
  };
  std::optional<InFlight> find(Sequence sequence) const;
  // Called with true if the record, which is on its way, was delivered and is gone.
  using Outcome = std::move_only_function<void(bool gone)>;
  void await(Sequence sequence, Outcome outcome);

  std::size_t records() const { return records_; }  // On their way.

  // The logs begin to write all that was delivered before this call; and that has ended.
  void log_write_begins();
  void log_write_ended(bool written);
  // Bytes of delivered batches that the logs may still have in memory alone.
  std::size_t unwritten_bytes() const { return unwritten_ + being_written_; }

  // A partition that is out of service until the next start.
  struct Fenced {
    std::string reason;
    std::size_t overdue = 0;           // Its records that were set aside,
    WallTime first = WallTime::max();  //   and the first due time of them.
  };
  const std::map<TopicPartition, Fenced>& fenced() const { return fenced_; }
  // The reason why nothing can be done with the partition's records; empty: it is in service.
  std::optional<Error> out_of_service(const TopicPartition& partition) const;
  void topic_deleted(const TopicId& topic);
  Distribution lag_us(MonoTime now) const { return lag_us_.distribution(now); }

 private:
  // When a record that is being delivered is due again, and its stored form from then on.
  struct Again {
    WallTime due;
    Buffer record;
  };
  // One delivery of a record.
  struct Run {
    WallTime due;
    std::optional<Again> again;
  };
  // A batch on its way.
  struct Delivery {
    enum class State { packing, packed, handed_over };
    State state = State::packing;
    PartitionSlot slot;
    std::uint64_t number;                       // Counts this engine's deliveries.
    std::vector<NearEntry*> entries;            // The entries of its records, in order.
    std::vector<storage::PendingRemoved> gone;  // The removals of these; their ids are in `ids`.
    std::vector<storage::PendingAdded> again;   // The records that are due again,
    std::vector<std::size_t> again_of;          //   by their places in `entries`,
    std::deque<Buffer> again_records;           //   and what they view.
    std::deque<std::string> ids;
    Buffer batch;                        // Until it is handed over.
    WallTime expires = WallTime::max();  // The first of its records.
    WallTime latest = WallTime::min();   // The last run: a missed one is later than its record.
    std::size_t bytes = 0;
    std::optional<storage::JournalPlace> place;            // Once nothing can refuse it any more.
    std::vector<std::pair<std::size_t, Outcome>> waiters;  // By their places in `entries`.

    const storage::PendingAdded* again_at(std::size_t index) const;
  };
  struct InPartition {
    std::deque<std::unique_ptr<Delivery>> deliveries;  // In order.
    std::size_t bytes = 0;
  };
  struct Filling;
  struct Place {  // The place of a record on its way.
    Delivery* delivery;
    std::size_t index;
  };

  bool has_room(std::size_t share) const;
  void deliver_from(PartitionSlot slot, WallTime now, WallTime latest, std::size_t& records,
                    std::size_t& bytes);
  void fill(Filling& filling);
  void add_to(Filling& filling, NearEntry& entry,
              const std::optional<storage::PendingView>& record);
  void note_damaged(std::string_view kind, const storage::PendingView& record, const Error& why);
  bool begin_batch(Filling& filling, records::Codec codec, std::size_t record_size);
  bool plan_run_of(Filling& filling, const storage::PendingView& record, Bytes recurrence,
                   Run& run);
  void note(Delivery& delivery, NearEntry& entry, const storage::PendingView& record, Run run,
            WallTime at);
  std::size_t send(Filling& filling);
  void pack(Delivery& delivery, records::BatchBuilder batch, records::Codec codec);
  void packed(PartitionSlot slot, std::uint64_t number, Result<Buffer> batch);
  void hand_over(PartitionSlot slot);
  void hand_over(Delivery& delivery);
  void drop_all(PartitionSlot slot);
  void set_aside(PartitionSlot slot, WallTime latest, Fenced& fenced);
  std::size_t index_of(const Delivery& delivery) const;
  std::unique_ptr<Delivery> take_out(PartitionSlot slot, std::size_t index);
  void delivered(Delivery& here, Offset base);
  void end_records(Delivery& delivery, Offset base);
  void refused(Delivery& here, const Error& why);
  void put_back(Delivery& delivery);
  void note_room(PartitionSlot slot);
  std::optional<Place> place_of(Sequence sequence) const;

  EngineContext& context_;
  Background& background_;
  DurableChanges& durable_;
  ReadyQueues& queues_;
  RemovalsInFlight& removals_;
  OwnChanges& changes_;
  DeliveryWaiters& waiters_;

  std::unordered_map<PartitionSlot, InPartition> in_flight_;
  bool handing_over_ = false;            // A call of the sink is running.
  std::vector<PartitionSlot> appended_;  // Later than in that call: another batch may follow.
  std::uint64_t deliveries_ = 0;         // Ever.
  std::size_t records_ = 0;
  std::size_t bytes_ = 0;
  std::size_t unwritten_ = 0;      // Delivered since the last write of the logs began,
  std::size_t being_written_ = 0;  //   and before it, while it is under way.
  std::map<TopicPartition, Fenced> fenced_;
  DeliveredHeaders headers_;  // Of the record that is added to a batch.
  WindowedHistogram lag_us_;
};

}  // namespace tarry::delay
