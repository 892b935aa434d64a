#include "broker/partitions/partition.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/post.hpp>

#include "base/assert.h"
#include "base/block.h"
#include "base/log.h"
#include "broker/context/shard_context.h"
#include "broker/partitions/append_queue.h"
#include "broker/partitions/partition_host.h"
#include "broker/partitions/topic_notes.h"
#include "records/batch_check.h"
#include "storage/journal.h"
#include "storage/journal_record.h"
#include "storage/journal_transaction.h"

namespace tarry::broker {
namespace {

using protocol::ErrorCode;

constexpr std::string_view topic_deleted = "topic_deleted";

records::CheckLimits check_limits(const BrokerConfig& broker, const TopicConfig& config,
                                  bool zstd_allowed, WallTime now) {
  records::CheckLimits limits;
  limits.max_message_bytes = static_cast<std::size_t>(config.max_message_bytes);
  limits.max_uncompressed_bytes = static_cast<std::size_t>(broker.decompressed_max_bytes);
  limits.zstd_allowed = zstd_allowed;
  if (config.timestamp_type == TimestampType::create_time) {
    const std::int64_t ms = to_ms(now);
    // A limit that lies before 1970 or after the last time is none.
    if (config.timestamp_before_max_ms <= ms)
      limits.earliest = from_ms(ms - config.timestamp_before_max_ms);
    if (config.timestamp_after_max_ms <= std::numeric_limits<std::int64_t>::max() - ms) {
      limits.latest = from_ms(ms + config.timestamp_after_max_ms);
    }
  }
  return limits;
}

// For bytes that we have made ourselves.
records::BatchView first_batch(Bytes bytes) {
  const auto batch = records::next_batch(bytes);
  TARRY_ASSERT(batch.has_value(), "a batch that was built is a batch");
  return *batch;
}

// The batch in memory that is ours to change, kept by `stored`.
records::MutableBatch writable_batch(const Arrival& arrival, Bytes batch, SharedBytes& stored) {
  // A batch that is most of its request is kept in the request's memory, without a copy.
  if (arrival.memory != nullptr) {
    stored = SharedBytes(arrival.memory, batch);
    return {const_cast<std::uint8_t*>(batch.data()), batch.size()};
  }
  constexpr std::size_t worth_a_block = 64 << 10;
  records::MutableBatch copy;
  if (batch.size() < worth_a_block) {
    auto buffer = std::make_shared<Buffer>(batch.begin(), batch.end());
    copy = *buffer;
    stored = SharedBytes(std::move(buffer), copy);
  } else {
    auto block = std::make_shared<Block>(batch.size());
    std::memcpy(block->data(), batch.data(), batch.size());
    copy = {block->data(), batch.size()};
    stored = SharedBytes(std::move(block), copy);
  }
  return copy;
}

std::string_view reason_of(records::Refusal refusal) {
  switch (refusal) {
    case records::Refusal::corrupt:
      return "corrupt_batch";
    case records::Refusal::message_too_large:
      return "batch_too_large";
    case records::Refusal::invalid_timestamp:
      return "bad_timestamp";
    case records::Refusal::unsupported_format:
      return "unsupported_format";
    case records::Refusal::unsupported_compression:
      return "unsupported_compression";
    case records::Refusal::invalid_record:
      return "bad_record";
  }
  return "bad_record";
}

std::string_view reason_of(const delay::ScheduleErrors& errors) {
  switch (errors.kind) {
    case delay::ScheduleErrors::Kind::invalid:
    case delay::ScheduleErrors::Kind::busy:
    case delay::ScheduleErrors::Kind::denied:
      return errors.reason;
    case delay::ScheduleErrors::Kind::too_many:
      return errors.reason.empty() ? "too_many_delayed_records" : errors.reason;
    case delay::ScheduleErrors::Kind::failed:
      return "pending_store_failed";
  }
  return errors.reason;
}

ErrorCode code_of(delay::ScheduleErrors::Kind kind) {
  switch (kind) {
    case delay::ScheduleErrors::Kind::invalid:
      return ErrorCode::invalid_record;
    case delay::ScheduleErrors::Kind::too_many:
      return ErrorCode::message_too_large;
    case delay::ScheduleErrors::Kind::busy:
      // Every client tries it again; librdkafka gives up on THROTTLING_QUOTA_EXCEEDED.
      return ErrorCode::not_leader_or_follower;
    case delay::ScheduleErrors::Kind::failed:
      return ErrorCode::kafka_storage_error;
    case delay::ScheduleErrors::Kind::denied:
      return ErrorCode::topic_authorization_failed;
  }
  return ErrorCode::unknown_server_error;
}

}  // namespace

Partition::Partition(ShardContext& shard, PartitionHost& host, TopicPartition id,
                     std::string topic_name, std::shared_ptr<const TopicConfig> config,
                     storage::Log log, storage::ProducerStates producers)
    : shard_(shard),
      host_(host),
      id_(id),
      topic_name_(std::move(topic_name)),
      config_(std::move(config)),
      log_(std::move(log)),
      producers_(std::move(producers)),
      visible_{log_.end_offset(), 0},
      durable_end_(log_.end_offset()) {}

Partition::~Partition() {
  if (append_queue_) append_queue_->abandon();
}

void Partition::count_tail() noexcept {
  if (retired_) return;
  shard_.tail_bytes += log_.tail_bytes();
  shard_.tail_bytes -= std::exchange(counted_tail_, log_.tail_bytes());
}

storage::LogConfig Partition::log_config_of(const TopicConfig& config) {
  storage::LogConfig out;
  out.segment_bytes = config.segment_bytes;
  out.segment_ms = std::chrono::milliseconds(config.segment_ms);
  out.segment_index_bytes = config.segment_index_bytes;
  out.index_interval_bytes = config.index_interval_bytes;
  out.retention_ms = std::chrono::milliseconds(config.retention_ms);
  out.retention_bytes = config.retention_bytes;
  return out;
}

void Partition::set_config(std::shared_ptr<const TopicConfig> config) {
  shard_.assert_on_shard();
  config_ = std::move(config);
  log_.set_config(log_config_of(*config_));
}

Appended Partition::refused(ErrorCode error, std::string_view reason, std::string message) const {
  Appended out;
  out.error = error;
  out.reason = reason;
  out.message = std::move(message);
  out.log_start = log_.start_offset();
  return out;
}

Appended Partition::refused(const delay::ScheduleErrors& errors) const {
  Appended out = refused(code_of(errors.kind), reason_of(errors), errors.message);
  out.bad_records = errors.records;
  return out;
}

Appended Partition::refused(const delay::ScheduleErrors& errors, const Arrival& arrival) const {
  Appended out = refused(errors);
  if (errors.kind != delay::ScheduleErrors::Kind::invalid ||
      arrival.config->delay_invalid != InvalidRecords::dead_letter)
    return out;
  if (arrival.no_dead_letters && !dead_letter_topic(topic_name_).empty()) {
    out.reason = may_not_dead_letter;
    out.message += " (tarry.delay.invalid=dead-letter has no effect for this user)";
  } else {
    out.message += fmt::format(
        " (tarry.delay.invalid=dead-letter has no effect here: {})",
        topic_name_.ends_with(dead_letter_suffix)
            ? "this is a dead-letter topic"
            : fmt::format("the topic's name is too long to append {}", dead_letter_suffix));
  }
  return out;
}

Appended Partition::already_answered(const storage::ProducerStates::Duplicate& duplicate) const {
  Appended out;
  out.base_offset = duplicate.base_offset;
  out.log_start = log_.start_offset();
  if (duplicate.lsn < shard_.journal().durable_lsn()) return out;
  // It waits for what the first one waits for, whatever the topic says by now: of one that waits
  // for its write nobody is notified when it is synced.
  out.wait_for = duplicate.lsn;
  const auto first = std::ranges::lower_bound(syncing_, duplicate.lsn, {}, &Syncing::lsn);
  if (first != syncing_.end() && first->lsn == duplicate.lsn) out.durability = first->durability;
  return out;
}

std::optional<Appended> Partition::service_error() const {
  if (retired_ || shard_.refuses(id_.topic))
    return refused(ErrorCode::unknown_topic_or_partition, topic_deleted, {});
  if (fenced_) return refused(ErrorCode::kafka_storage_error, "out_of_service", *fenced_);
  if (shard_.lost_directory()) {
    return refused(ErrorCode::kafka_storage_error, "out_of_service",
                   std::string(ShardContext::lost_directory_text));
  }
  if (!shard_.has_room()) {
    return refused(ErrorCode::kafka_storage_error, "disk_full",
                   "disk full: the broker accepts records again when there is space");
  }
  return std::nullopt;
}

void Partition::append(Bytes records, bool zstd_allowed,
                       std::move_only_function<void(Appended)> done, std::shared_ptr<void> memory,
                       bool only_checked, const delay::PendingTerms& pending, bool no_dead_letters,
                       bool on_pool) {
  shard_.assert_on_shard();
  if (auto refusal = service_error()) {
    note(*refusal, only_checked);
    return done(std::move(*refusal));
  }
  Arrival arrival{records,      std::move(memory), zstd_allowed,    shard_.clock().wall(), config_,
                  only_checked, pending,           no_dead_letters, std::move(done)};
  BatchChecks::Job job = job_of(arrival);
  job.on_pool = on_pool;
  // With nothing before it a short batch is taken in this turn, without a queue.
  if (append_queue_ == nullptr || append_queue_->empty()) {
    if (auto verdict = BatchChecks::check_inline(job)) {
      if (takes_long(*verdict, job.delay) || dead_letters(arrival, verdict))
        return queue().add_checked(std::move(arrival), std::move(job), std::move(*verdict));
      Parts parts;
      if (const auto* const checked = to_accept(verdict)) {
        parts = host_.engine().accept(id_, checked->batch, *checked->schedules,
                                      delay_config_of(*arrival.config), arrival.at, {},
                                      arrival.pending);
      }
      Appended appended = append_checked_batch(arrival, std::move(verdict), std::move(parts), {});
      return arrival.done(std::move(appended));
    }
  }
  queue().add(std::move(arrival), std::move(job));
}

BatchChecks::Job Partition::job_of(const Arrival& arrival) const {
  const bool dead_letter = arrival.config->delay_invalid == InvalidRecords::dead_letter &&
                           !arrival.no_dead_letters && !dead_letter_topic(topic_name_).empty();
  return {arrival.records,
          check_limits(shard_.config(), *arrival.config, arrival.zstd_allowed, arrival.at),
          delay_config_of(*arrival.config),
          arrival.at,
          host_.engine().believed(arrival.at),
          dead_letter ? delay::InvalidHeaders::set_aside : delay::InvalidHeaders::refuse};
}

AppendQueue& Partition::queue() {
  if (append_queue_ == nullptr) {
    // Made when a batch first needs it: a partition of short batches never has one.
    AppendQueue::Steps steps;
    steps.dead_letters = [this](const Arrival& next, const Verdict& verdict) {
      return dead_letters(next, verdict);
    };
    steps.write = [this](Buffer batch, std::move_only_function<void(Result<>)> done) {
      host_.write_dead_letters(id_, std::move(batch), std::move(done));
    };
    steps.read_ids = [this](const delay::BatchSchedules& schedules,
                            std::move_only_function<void(Result<IdRows>)> done) {
      host_.engine().read_ids(id_, schedules, std::move(done));
    };
    steps.split = [this](const Arrival& next, const Verdict& verdict, Result<IdRows> ids,
                         std::move_only_function<void(Parts)> done) {
      split(next, verdict, std::move(ids), std::move(done));
    };
    steps.take = [this](const Arrival& next, Verdict verdict, Parts parts,
                        const Result<>& written) {
      return append_checked_batch(next, std::move(verdict), std::move(parts), written);
    };
    append_queue_ = std::make_shared<AppendQueue>(std::move(steps), host_.checks(),
                                                  [executor = shard_.executor()](auto turn) {
                                                    boost::asio::post(executor, std::move(turn));
                                                  });
  }
  return *append_queue_;
}

// A batch that is refused, or was answered before, has none.
std::optional<DeadLetters> Partition::dead_letters(const Arrival& arrival,
                                                   const Verdict& verdict) const {
  if (!verdict || !*verdict || !(*verdict)->schedules) return std::nullopt;
  const CheckedArrival& checked = **verdict;
  if (checked.schedules->invalid.empty() || arrival.only_checked) return std::nullopt;
  if (checked.batch.batch.is_transactional() || service_error() || refuse_sequence(checked.batch))
    return std::nullopt;
  return DeadLetters(checked.batch, checked.schedules->invalid);
}

bool Partition::takes_long(const BatchChecks::Verdict& verdict, const delay::TopicDelay& topic) {
  if (!verdict || !verdict->schedules) return false;
  return verdict->schedules->ids > 0 ||
         delay::AcceptedBatch::is_long(verdict->batch, *verdict->schedules, topic);
}

const CheckedArrival* Partition::to_accept(const Verdict& verdict) const {
  if (!verdict || !*verdict || !(*verdict)->schedules) return nullptr;
  const CheckedArrival& checked = **verdict;
  if (!checked.schedules->any()) return nullptr;
  if (checked.batch.batch.is_transactional() || service_error() || refuse_sequence(checked.batch))
    return nullptr;
  return &checked;
}

// Called for the first batch of the queue.
void Partition::split(const Arrival& arrival, const Verdict& verdict, Result<IdRows> ids,
                      std::move_only_function<void(Parts)> done) {
  const auto* const checked = to_accept(verdict);
  if (checked == nullptr) return done(std::nullopt);
  if (!ids) {
    return done(std::unexpected(
        delay::ScheduleErrors{delay::ScheduleErrors::Kind::failed, ids.error().message, {}}));
  }
  delay::Engine& engine = host_.engine();
  const auto topic = delay_config_of(*arrival.config);
  // One that waits for its dead letters is not appended in this turn; what is accepted in steps
  // holds the records that it takes until then.
  if (dead_letters(arrival, verdict) ||
      delay::AcceptedBatch::is_long(checked->batch, *checked->schedules, topic)) {
    engine.accept_in_steps(id_, checked->batch, *checked->schedules, topic, arrival.at,
                           std::move(*ids), std::move(done), arrival.pending);
  } else {
    done(engine.accept(id_, checked->batch, *checked->schedules, topic, arrival.at, *ids,
                       arrival.pending));
  }
}

Appended Partition::append_checked_batch(const Arrival& arrival, Verdict verdict, Parts parts,
                                         const Result<>& written) {
  Appended appended = append_or_refuse(arrival, std::move(verdict), std::move(parts), written);
  note(appended, arrival.only_checked);
  return appended;
}

void Partition::note(const Appended& appended, bool only_checked) {
  if (appended.error == ErrorCode::none || only_checked) return;
  auto& notes = host_.notes();
  notes.count_refusal(appended.reason);
  if (appended.reason == topic_deleted) return;  // Its note is dropped, and stays so.
  notes.refused(id_,
                {shard_.clock().wall(), id_.partition, appended.reason, appended.refusal_text()});
}

Appended Partition::append_or_refuse(const Arrival& arrival, Verdict verdict, Parts parts,
                                     const Result<>& written) {
  // Asked again: while the batch waited, the topic may have been deleted or the disk become full.
  if (auto refusal = service_error()) return std::move(*refusal);
  if (!written) {
    return refused(ErrorCode::kafka_storage_error, "dead_letters_not_written",
                   fmt::format("records of the batch have invalid headers and could not be written "
                               "to topic {}: {}",
                               dead_letter_topic(topic_name_), written.error().message));
  }
  if (!verdict)
    return refused(ErrorCode::kafka_storage_error, "no_memory",
                   "the broker has too little memory to decompress the batch");
  if (!*verdict) {
    auto& error = verdict->error();
    Appended out =
        refused(static_cast<ErrorCode>(error.kafka_code()), reason_of(error.reason), error.message);
    out.bad_records = std::move(error.records);
    return out;
  }
  try {
    return take(arrival, **verdict, std::move(parts));
  } catch (const std::bad_alloc&) {
    return refused(ErrorCode::kafka_storage_error, "no_memory",
                   "the broker has too little memory to append the batch");
  }
}

// Whether the producer's sequence goes on with this batch; if not, what it is answered.
std::optional<Appended> Partition::refuse_sequence(const records::CheckedBatch& checked) const {
  const records::BatchView& batch = checked.batch;
  const ProducerId producer = batch.producer_id();
  if (producer < 0) return std::nullopt;
  const auto verdict =
      producers_.check(producer, batch.producer_epoch(), batch.base_sequence(), checked.count);
  if (const auto* duplicate = std::get_if<storage::ProducerStates::Duplicate>(&verdict))
    return already_answered(*duplicate);
  if (const auto* epoch = std::get_if<storage::ProducerStates::InvalidEpoch>(&verdict)) {
    return refused(ErrorCode::invalid_producer_epoch, "producer_epoch",
                   fmt::format("producer {} has epoch {}, but the batch has epoch {}", producer,
                               epoch->current, batch.producer_epoch()));
  }
  if (const auto* order = std::get_if<storage::ProducerStates::OutOfOrder>(&verdict)) {
    return refused(
        ErrorCode::out_of_order_sequence, "out_of_order_sequence",
        fmt::format("producer {} must continue with sequence {}, but the batch begins with {}",
                    producer, order->expected, batch.base_sequence()));
  }
  return std::nullopt;
}

// Its delivery has a recurring record twice in one journal record: in the batch for the log, and
// pending again.  One that does not fit would hold up its partition for ever.
std::optional<Appended> Partition::refuse_recurring(const delay::AcceptedBatch& accepted) const {
  const auto journal_bytes = static_cast<std::uint64_t>(shard_.config().journal_max_bytes);
  const std::uint64_t most = storage::record_limit(journal_bytes, storage::Reserve::keep) / 2;
  if (accepted.largest_recurring() <= most) return std::nullopt;
  return refused(ErrorCode::message_too_large, "batch_too_large",
                 fmt::format("a recurring record has {} bytes; the limit is {} (a quarter of "
                             "tarry.journal.max.bytes, at most 64 MiB)",
                             accepted.largest_recurring(), most));
}

// The part of a produced batch that goes to the log now, as it will be there.
Partition::LogBatch Partition::log_batch(const Arrival& arrival,
                                         const CheckedArrival& checked_arrival,
                                         std::optional<delay::AcceptedBatch>& accepted,
                                         WallTime now) {
  LogBatch out;
  const records::CheckedBatch& checked = checked_arrival.batch;
  records::MutableBatch bytes;
  if (checked_arrival.repacked != nullptr) {
    bytes = *checked_arrival.repacked;
    out.bytes = SharedBytes(checked_arrival.repacked, bytes);
  } else if (!accepted) {
    bytes = writable_batch(arrival, checked.batch.bytes(), out.bytes);
  } else if (!accepted->appends_nothing()) {
    auto immediate = std::make_shared<Buffer>(accepted->take_immediate());
    bytes = *immediate;
    out.bytes = SharedBytes(std::move(immediate), bytes);
  }
  out.base = log_.end_offset();
  out.last = out.base + checked.count - 1;
  out.max_timestamp = to_ms(checked.max_timestamp);
  if (bytes.empty()) return out;
  records::set_base_offset(bytes, out.base);
  records::set_leader_epoch(bytes, 0);
  if (arrival.config->timestamp_type == TimestampType::log_append_time) {
    out.max_timestamp = to_ms(now);
    records::set_log_append_time(bytes, now);
  } else if (accepted) {
    out.max_timestamp = to_ms(first_batch(bytes).max_timestamp());
  } else if (checked.needs_max_timestamp_fix) {
    records::set_max_timestamp(bytes, checked.max_timestamp);
  }
  return out;
}

// The log and the journal do not come apart: the batch is in the log when the journal has it, and
// visible when that is safe.
void Partition::add_batch(storage::JournalTransaction& transaction, LogBatch batch, WallTime now) {
  transaction.add(storage::LogAppended{id_, now, batch.bytes.view()});
  const std::size_t size = batch.bytes.size();
  const LogEnd end{batch.last + 1, appended_bytes_ + static_cast<std::int64_t>(size)};
  // Its offsets may have holes.
  const auto records = static_cast<std::uint64_t>(first_batch(batch.bytes.view()).record_count());
  transaction.on_appended([this, batch = std::move(batch), now, end, records,
                           durability = transaction.durability()](Lsn lsn) noexcept {
    log_.append(batch.bytes, batch.base, batch.last, batch.max_timestamp, now);
    count_tail();
    appended_bytes_ = end.bytes;
    host_.appended(records);
    syncing_.push_back({lsn, end.offset, durability});
  });
  transaction.on_durable([this, end, size] {
    move_high_watermark(end);
    host_.log_is_dirty(*this, size);
  });
}

// Throws only while nothing has changed.
// All checks that may refuse the batch come first.  Then one transaction has its part for the log,
// its delayed records and its producer's answer.
Appended Partition::take(const Arrival& arrival, const CheckedArrival& checked, Parts parts) {
  const WallTime now = shard_.clock().wall();
  const records::BatchView& batch = checked.batch.batch;
  const TopicConfig& config = *arrival.config;
  if (batch.is_transactional()) {
    return refused(ErrorCode::invalid_record, "transaction",
                   "transactions are not supported: the batch has the transactional bit");
  }
  if (auto refusal = refuse_sequence(checked.batch)) return std::move(*refusal);
  if (!checked.schedules) return refused(checked.schedules.error(), arrival);
  if (parts && !*parts) return refused(parts->error());
  if (arrival.only_checked) return refused(ErrorCode::invalid_required_acks, "acks", {});
  std::optional<delay::AcceptedBatch> accepted;
  if (parts) {
    accepted = std::move(**parts);
    if (auto refusal = refuse_recurring(*accepted)) return std::move(*refusal);
  } else {
    TARRY_ASSERT(!checked.schedules->any(),
                 "a batch with schedules is split before it is appended");
  }

  LogBatch logged = log_batch(arrival, checked, accepted, now);
  const bool appends_nothing = logged.bytes.empty();
  Appended out;
  // If all n records are delayed the log gives no offset, and the answer is -n.
  out.base_offset = appends_nothing ? -static_cast<Offset>(checked.batch.count) : logged.base;
  if (!appends_nothing && config.timestamp_type == TimestampType::log_append_time)
    out.log_append_time = logged.max_timestamp;
  // The store of pending records takes only durable changes, so a batch with scheduled records
  // waits for the sync, whatever durability the topic has.
  out.durability = accepted ? storage::Durability::fsync : config.durability;

  storage::JournalTransaction transaction(storage::Reserve::keep, out.durability);
  if (!appends_nothing) add_batch(transaction, std::move(logged), now);
  if (accepted) host_.engine().add_to(transaction, std::move(*accepted), out.base_offset);
  if (const ProducerId producer = batch.producer_id(); producer >= 0) {
    const storage::ProducerStates::Answered answered{
        batch.producer_epoch(), batch.base_sequence(),
        storage::sequence_after(batch.base_sequence(), checked.batch.count - 1), out.base_offset,
        now};
    // A batch in the log tells its producer's state itself.
    if (appends_nothing) {
      transaction.add(storage::ProducerAnswered{id_, producer, answered.epoch,
                                                answered.first_sequence, answered.last_sequence,
                                                out.base_offset, now});
    }
    transaction.on_appended(
        [this, producer, answered](Lsn lsn) noexcept { producers_.add(producer, answered, lsn); });
  }
  const auto lsn = shard_.commit(std::move(transaction));
  if (!lsn) {
    // No retry makes it smaller; some clients split a batch that is answered so.
    return refused(lsn.error().code == Errc::too_large ? ErrorCode::message_too_large
                                                       : ErrorCode::kafka_storage_error,
                   "not_journaled", lsn.error().message);
  }
  host_.notes().slipped(id_, topic_name_, checked.schedules->slips);
  host_.notes().dead_lettered(id_, now, checked.schedules->invalid);
  out.log_start = log_.start_offset();
  out.wait_for = *lsn;
  return out;
}

void Partition::deliver(Buffer batch, const delay::Departures& departures,
                        delay::DeliveryTold told) {
  shard_.assert_on_shard();
  if (retired_)
    return told.done(fail(Errc::not_found, fmt::format("topic {} is deleted", topic_name_)));
  if (fenced_) {
    return told.done(fail(Errc::fenced, fmt::format("partition {}-{} is out of service: {}",
                                                    topic_name_, id_.partition, *fenced_)));
  }

  const WallTime now = shard_.clock().wall();
  // The clock may have been set back since the records were due, and none is delivered early.
  if (std::ranges::any_of(departures.gone,
                          [now](const storage::PendingRemoved& one) { return one.due > now; })) {
    return told.done(fail(Errc::invalid, "the clock was set back, and a record is no longer due"));
  }
  append_ours(storage::JournalTransaction(storage::Reserve::use), std::move(batch), now, departures,
              std::move(told));
}

void Partition::append_dead_letters(Buffer batch, std::move_only_function<void(Result<>)> done) {
  shard_.assert_on_shard();
  if (const auto refusal = service_error()) {
    return done(fail(Errc::fenced, refusal->message.empty()
                                       ? fmt::format("topic {} is deleted", topic_name_)
                                       : refusal->message));
  }
  delay::DeliveryTold told;
  told.done = [done = std::move(done)](Result<Offset> base) mutable {
    if (!base) return done(std::unexpected(base.error()));
    done({});
  };
  append_ours(storage::JournalTransaction(storage::Reserve::keep), std::move(batch),
              shard_.clock().wall(), {}, std::move(told));
}

void Partition::append_ours(storage::JournalTransaction transaction, Buffer batch, WallTime now,
                            const delay::Departures& departures, delay::DeliveryTold told) {
  const Offset base = log_.end_offset();
  records::set_base_offset(batch, base);
  records::set_leader_epoch(batch, 0);
  if (config_->timestamp_type == TimestampType::log_append_time)
    records::set_log_append_time(batch, now);
  const records::BatchView view = first_batch(batch);
  const std::int64_t max_timestamp = to_ms(view.max_timestamp());
  const Offset last = base + view.last_offset_delta();
  const SharedBytes stored(std::move(batch));

  // The batch and the removal of the pending records that it delivers are one journal record: after
  // a crash both hold, or neither.
  add_batch(transaction, {stored, base, last, max_timestamp}, now);
  const std::uint32_t first = transaction.add(storage::DeliveredRecords{departures.gone, base});
  for (const auto& one : departures.again) transaction.add(one);
  if (!departures.gone.empty()) {
    transaction.on_appended([first, appended = std::move(told.appended)](Lsn lsn) mutable noexcept {
      appended({lsn, first});
    });
  }
  transaction.on_settled([base, done = std::move(told.done)](const Result<>& safe) mutable {
    if (!safe) return done(std::unexpected(safe.error()));
    done(base);
  });
  (void)shard_.commit(std::move(transaction));  // `done` gets the outcome.
}

Offset Partition::durable_end() const {
  const auto behind =
      std::ranges::lower_bound(syncing_, shard_.journal().durable_lsn(), {}, &Syncing::lsn);
  return behind == syncing_.begin() ? durable_end_ : std::prev(behind)->end;
}

void Partition::forget_synced() {
  durable_end_ = durable_end();
  const Lsn durable = shard_.journal().durable_lsn();
  while (!syncing_.empty() && syncing_.front().lsn < durable) syncing_.pop_front();
}

void Partition::move_high_watermark(LogEnd end) {
  forget_synced();
  // A write of an `os` topic may be reported before a sync that was begun earlier.
  if (end.offset <= visible_.offset) return;
  visible_ = end;
  fetches.advance_to(visible_.bytes);
}

RecordsDeleted Partition::delete_records(Offset before) {
  shard_.assert_on_shard();
  if (retired_ || shard_.refuses(id_.topic))
    return {ErrorCode::unknown_topic_or_partition, std::nullopt};
  if (fenced_) return {ErrorCode::kafka_storage_error, std::nullopt};
  if (before == -1) before = high_watermark();
  if (before < 0 || before > high_watermark())
    return {ErrorCode::offset_out_of_range, std::nullopt};
  if (before <= log_start()) return {};
  storage::JournalTransaction transaction(storage::Reserve::use);  // It frees space.
  transaction.add(storage::LogStartMoved{id_, before});
  transaction.on_durable([this, before] { move_log_start(before); });
  const auto lsn = shard_.commit(std::move(transaction));
  if (!lsn) return {ErrorCode::kafka_storage_error, std::nullopt};
  return {ErrorCode::none, *lsn};
}

void Partition::move_log_start(Offset start) {
  if (retired_) return;
  log_.move_start(start);
  host_.log_is_dirty(*this, 0);  // The log's directory has to say so before a checkpoint does.
  host_.log_start_moved(*this);
  fetches.check_all();
}

storage::RetentionPlan Partition::plan_retention(WallTime now) {
  shard_.assert_on_shard();
  const Offset before = log_start();
  auto plan = log_.plan_retention(now, high_watermark());
  // A fetch from below the new start cannot be satisfied any more.
  if (log_start() != before) fetches.check_all();
  return plan;
}

storage::LogRead Partition::read(Offset from, std::size_t max_bytes, bool at_least_one) {
  shard_.assert_on_shard();
  auto found = log_.read(from, high_watermark(), max_bytes, at_least_one);
  // Nobody waits for it: the next read finds the piece, or reads for itself.
  if (auto ahead = log_.take_read_ahead())
    shard_.background().run([ahead = std::move(ahead)] { ahead->run(); }, [] {});
  return found;
}

storage::TimestampSearch Partition::find_timestamp(std::int64_t target) const {
  shard_.assert_on_shard();
  return log_.find_timestamp(target, high_watermark());
}

storage::TimestampSearch Partition::find_max_timestamp() const {
  shard_.assert_on_shard();
  return log_.find_max_timestamp(high_watermark());
}

void Partition::fence(std::string why) {
  shard_.assert_on_shard();
  if (fenced_) return;
  log_error("broker", "partition {}-{} is out of service; its files are kept: {}", topic_name_,
            id_.partition, why);
  fenced_ = std::move(why);
  if (!retired_) host_.went_out_of_service(*this);
  fetches.check_all();
}

void Partition::retire() {
  shard_.assert_on_shard();
  retired_ = true;
  // Here and not when it ends, which may be after its shard.
  shard_.tail_bytes -= std::exchange(counted_tail_, std::size_t{0});
  if (append_queue_) append_queue_->retire();
  fetches.check_all();
}

std::optional<storage::Flush> Partition::plan_flush() {
  shard_.assert_on_shard();
  // With tarry.durability=os records are visible before they are synced, so the lesser one counts.
  return log_.plan_flush(std::min(durable_end(), high_watermark()));
}

void Partition::flushed(storage::FlushDone done) {
  shard_.assert_on_shard();
  log_.flushed(std::move(done));
}

void Partition::flush_failed(const Error& error) {
  shard_.assert_on_shard();
  log_.flush_failed(error);
}

Result<Offset> Partition::cut(Offset base) {
  // It lacks batches that were synced once, so the caller fences it.
  if (log_.end_offset() < base) return log_.end_offset();
  // A log that ends there is cut too: what a crash left half written behind must go.
  if (auto cut = log_.truncate_to(base); !cut) return std::unexpected(cut.error());
  damage_.reset();
  return log_.end_offset();
}

void Partition::replay_producer(const storage::ProducerAnswered& answered) {
  producers_.replay(answered.producer_id,
                    {answered.epoch, answered.first_sequence, answered.last_sequence,
                     answered.base_offset, answered.at});
}

void Partition::replay_start(Offset start) {
  // Records that a fenced log has lost stay lost.
  log_.move_start(std::min(start, log_.end_offset()));
}

Result<> Partition::replay(Bytes batches, WallTime appended) {
  auto replayed = log_.replay(SharedBytes(Buffer(batches.begin(), batches.end())), appended);
  if (!replayed) return replayed;
  count_tail();
  visible_.offset = durable_end_ = log_.end_offset();
  return producers_.replay_batches(batches, appended);
}

delay::TopicDelay Partition::delay_config_of(const TopicConfig& config) {
  delay::TopicDelay out;
  out.enable = config.delay_enable;
  out.default_delay = std::chrono::milliseconds(config.delay_ms);
  if (config.delay_max_ms >= 0) out.max_delay = std::chrono::milliseconds(config.delay_max_ms);
  if (config.delay_max_pending >= 0) out.max_pending = config.delay_max_pending;
  out.timestamp = config.delivered_timestamp;
  out.missed = {config.missed_runs, static_cast<std::uint32_t>(config.missed_max)};
  out.log_append_time = config.timestamp_type == TimestampType::log_append_time;
  out.max_message_bytes = static_cast<std::size_t>(config.max_message_bytes);
  out.codec = config.codec;
  return out;
}

}  // namespace tarry::broker
