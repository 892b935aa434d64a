#include "storage/producer_states.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/assert.h"
#include "records/record_batch.h"
#include "storage/database.h"
#include "storage/fields.h"
#include "storage/rocks.h"

namespace tarry::storage {
namespace {

namespace field = records::field;

constexpr std::size_t answered_bytes = 2 + 4 + 4 + 8 + 8;

// Whether `a` comes before `b`: half of the space of sequences lies before each of them.
bool is_older(std::int32_t a, std::int32_t b) {
  constexpr std::uint32_t mask = 0x7fff'ffff;
  const std::uint32_t ahead =
      (static_cast<std::uint32_t>(b) - static_cast<std::uint32_t>(a)) & mask;
  return ahead != 0 && ahead < (mask >> 1);
}

bool same_batch(const ProducerStates::Answered& a, const ProducerStates::Answered& b) {
  return a.epoch == b.epoch && a.first_sequence == b.first_sequence &&
         a.last_sequence == b.last_sequence;
}

// The part that established producers leave to newcomers.
constexpr std::size_t newcomers_part = 8;

Buffer row_key(const TopicPartition& partition, ProducerId producer) {
  Buffer key;
  put(key, partition);
  append_be(key, producer);
  return key;
}

}  // namespace

std::int32_t sequence_after(std::int32_t base, std::int32_t delta) {
  return static_cast<std::int32_t>(
      (static_cast<std::uint32_t>(base) + static_cast<std::uint32_t>(delta)) & 0x7fff'ffff);
}

ProducerStates::ProducerStates() : ProducerStates(Limits()) {}
ProducerStates::ProducerStates(const Limits& limits) : limits_(limits) {}

ProducerStates::Verdict ProducerStates::check(ProducerId id, std::int16_t epoch, std::int32_t first,
                                              std::int32_t count) const {
  TARRY_ASSERT(count >= 1 && first >= 0, "a batch is validated before it is checked");
  const auto found = producers_.find(id);
  // Any first sequence is accepted: states expire, and a refusal would break an idle producer for
  // good.
  if (found == producers_.end()) return Append{};
  const auto& entries = found->second->entries;
  const Answered& latest = entries.back().answered;

  const std::int32_t last = sequence_after(first, count - 1);
  // Older entries are not answered from.  They are kept for the row, because the newest may not be
  // durable at a checkpoint.
  const std::size_t oldest =
      entries.size() > answered_from ? entries.size() - answered_from : std::size_t{0};
  for (std::size_t i = entries.size(); i-- > oldest;) {
    const Answered& known = entries[i].answered;
    // Entries of an older epoch are no duplicates: a new epoch begins again with sequence 0.
    if (known.epoch != latest.epoch) break;
    if (known.epoch == epoch && known.first_sequence == first && known.last_sequence == last)
      return Duplicate{known.base_offset, entries[i].lsn};
  }
  if (epoch < latest.epoch) return InvalidEpoch{latest.epoch};
  if (epoch > latest.epoch) return first == 0 ? Verdict(Append{}) : Verdict(OutOfOrder{0});
  const std::int32_t expected = sequence_after(latest.last_sequence, 1);
  return first == expected ? Verdict(Append{}) : Verdict(OutOfOrder{expected});
}

ProducerStates::Producer& ProducerStates::touch(ProducerId id, WallTime now) {
  if (const auto found = producers_.find(id); found != producers_.end()) {
    establish(found->second, now);
    return *found->second;
  }
  // There is a newcomer whenever all is full, for the established ones leave room for some.
  if (producers_.size() >= limits_.max_producers) forget(newcomers_.begin());
  newcomers_.push_back({id, {}});
  producers_.emplace(id, std::prev(newcomers_.end()));
  forgotten_.erase(id);
  return newcomers_.back();
}

// One that goes on.
void ProducerStates::establish(ByUse::iterator producer, WallTime now) {
  auto& from = producer->is_established ? established_ : newcomers_;
  if (!producer->is_established) {
    const std::size_t room =
        limits_.max_producers - std::max<std::size_t>(limits_.max_producers / newcomers_part, 1);
    if (established_.size() >= room && !established_.empty() &&
        now - established_.front().entries.back().answered.at >= established_for)
      forget(established_.begin());
    producer->is_established = established_.size() < room;
  }
  auto& to = producer->is_established ? established_ : newcomers_;
  to.splice(to.end(), from, producer);
}

void ProducerStates::push(Producer& producer, const Entry& entry) {
  auto& entries = producer.entries;
  // Ten entries at most, so erasing at the front is cheaper than a deque for each producer.
  if (entries.size() == remembered) entries.erase(entries.begin());
  entries.push_back(entry);
  producer.changed = changed_ = true;
}

void ProducerStates::forget(ByUse::iterator producer) {
  changed_ = true;
  forgotten_.insert(producer->id);
  producers_.erase(producer->id);
  (producer->is_established ? established_ : newcomers_).erase(producer);
}

void ProducerStates::add(ProducerId id, const Answered& answered, Lsn lsn) {
  push(touch(id, answered.at), {answered, lsn});
}

void ProducerStates::replay(ProducerId id, const Answered& answered) {
  // Rows may be ahead of the journal's checkpoint: what is known already or older changes nothing.
  if (const auto found = producers_.find(id); found != producers_.end()) {
    const auto& entries = found->second->entries;
    const Answered& latest = entries.back().answered;
    if (answered.epoch < latest.epoch) return;
    if (answered.epoch == latest.epoch && is_older(answered.last_sequence, latest.last_sequence))
      return;
    for (const Entry& entry : entries)
      if (same_batch(entry.answered, answered)) return;
  }
  push(touch(id, answered.at), {answered, 0});
}

Result<> ProducerStates::replay_batches(Bytes batches, WallTime appended) {
  while (!batches.empty()) {
    const auto length =
        batches.size() < records::batch_header_size
            ? -1
            : std::int64_t{load_be<std::int32_t>(batches.data() + field::batch_length)};
    const auto whole = static_cast<std::uint64_t>(length) + records::batch_length_end;
    if (length < 0 || whole < records::batch_header_size || whole > batches.size()) {
      return fail(Errc::corrupt,
                  fmt::format("a journal record has {} bytes where a whole batch should be",
                              batches.size()));
    }
    const std::uint8_t* batch = batches.data();
    const auto producer = load_be<ProducerId>(batch + field::producer_id);
    const auto first = load_be<std::int32_t>(batch + field::base_sequence);
    if (producer >= 0 && first >= 0) {
      replay(producer,
             {load_be<std::int16_t>(batch + field::producer_epoch), first,
              sequence_after(first, load_be<std::int32_t>(batch + field::last_offset_delta)),
              load_be<Offset>(batch), appended});
    }
    batches = batches.subspan(static_cast<std::size_t>(whole));
  }
  return {};
}

void ProducerStates::restore(std::vector<Row> rows) {
  // Rows come in the order of ids; what is used least should go first.
  std::ranges::sort(rows, {}, [](const Row& row) {
    return row.answers.empty() ? WallTime::min() : row.answers.back().at;
  });
  for (const Row& row : rows) {
    if (row.answers.empty()) continue;
    Producer* producer = nullptr;
    for (const Answered& answered : row.answers) {
      producer = &touch(row.producer, answered.at);
      push(*producer, {answered, 0});
    }
    producer->changed = false;
  }
  changed_ = !forgotten_.empty();
}

std::size_t ProducerStates::expire(WallTime now, std::chrono::milliseconds expiration) {
  std::size_t gone = 0;
  // Uses are in the order of time but for steps of the wall clock, which only delay an end.
  for (ByUse* list : {&newcomers_, &established_}) {
    while (!list->empty() && now - list->front().entries.back().answered.at >= expiration) {
      forget(list->begin());
      ++gone;
    }
  }
  return gone;
}

std::vector<ProducerStates::Row> ProducerStates::changes(Lsn durable) {
  std::vector<Row> rows;
  if (!changed_) return rows;
  changed_ = false;
  for (const ProducerId id : forgotten_) rows.push_back({id, {}});
  forgotten_.clear();
  const auto add_row = [&](Producer& producer) {
    producer.changed = false;
    Row row{producer.id, {}};
    for (const Entry& entry : producer.entries) {
      if (entry.lsn != 0 && entry.lsn >= durable) {
        producer.changed = changed_ = true;  // There is more for the next checkpoint.
        break;
      }
      row.answers.push_back(entry.answered);
    }
    // The row that is there stands for what this one had no room to remember.
    if (row.answers.empty()) return;
    // Five are enough: a client has at most five batches in flight.
    if (row.answers.size() > answered_from)
      row.answers.erase(row.answers.begin(), row.answers.end() - answered_from);
    rows.push_back(std::move(row));
  };
  for (ByUse* list : {&newcomers_, &established_}) {
    for (Producer& producer : *list)
      if (producer.changed) add_row(producer);
  }
  return rows;
}

void ProducerStates::restore_unsaved(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    changed_ = true;
    const auto known = producers_.find(row.producer);
    if (known != producers_.end()) {
      known->second->changed = true;
    } else {
      forgotten_.insert(row.producer);
    }
  }
}

Result<> save_producer_states(Database& meta, const TopicPartition& partition,
                              std::span<const ProducerStates::Row> rows) {
  Rocks& rocks = meta.rocks();
  Family* family = rocks.family(meta_family::producers);
  rocksdb::WriteBatch batch;
  for (const auto& row : rows) {
    const Buffer key = row_key(partition, row.producer);
    if (row.answers.empty()) {
      batch.Delete(family, slice(key));
      continue;
    }
    Buffer value;
    value.reserve(row.answers.size() * answered_bytes);
    for (const auto& answered : row.answers) {
      append_be(value, answered.epoch);
      append_be(value, answered.first_sequence);
      append_be(value, answered.last_sequence);
      append_be(value, answered.base_offset);
      put(value, answered.at);
    }
    batch.Put(family, slice(key), slice(value));
  }
  return rocks.write(batch);
}

Result<std::vector<ProducerStates::Row>> load_producer_states(Database& meta,
                                                              const TopicPartition& partition) {
  Buffer prefix;
  put(prefix, partition);
  std::vector<ProducerStates::Row> rows;
  BoundedIterator at(meta.rocks(), meta_family::producers, prefix, behind_prefix(prefix));
  for (at.seek_to_first(); at.valid(); at.next()) {
    Fields key(at.key());
    key.partition();
    ProducerStates::Row row{key.number<ProducerId>(), {}};
    const bool fits = key.good() && !at.value().empty() && at.value().size() % answered_bytes == 0;
    if (!fits) {
      return fail(Errc::corrupt,
                  fmt::format("database {}: producer {} of partition {} of topic {} has a row of "
                              "{} bytes, which is not a whole number of entries",
                              meta.directory(), row.producer, partition.partition,
                              partition.topic.text(), at.value().size()));
    }
    Fields value(at.value());
    for (auto left = at.value().size() / answered_bytes; left > 0; --left) {
      row.answers.push_back({value.number<std::int16_t>(), value.number<std::int32_t>(),
                             value.number<std::int32_t>(), value.number<Offset>(), value.time()});
    }
    rows.push_back(std::move(row));
  }
  if (const auto status = at.status(); !status) return std::unexpected(status.error());
  return rows;
}

Result<> drop_producer_states(Database& meta, const TopicId& topic) {
  Rocks& rocks = meta.rocks();
  rocksdb::WriteBatch batch;
  batch.DeleteRange(rocks.family(meta_family::producers), slice(topic.bytes),
                    slice(behind_prefix(topic.bytes)));
  return rocks.write(batch);
}

}  // namespace tarry::storage
