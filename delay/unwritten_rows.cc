#include "delay/unwritten_rows.h"

#include <utility>
#include <vector>

#include "base/assert.h"

namespace tarry::delay {

using storage::ScheduleEvent;

namespace {

// The memory of an id's event until it is written, beside the id; and of a forwarding row.
constexpr std::size_t event_bytes = 160;
// So many rows are written in one order: the more of them, the nearer is the next one's place in
// RocksDB's memory.  They take some megabytes meanwhile.
constexpr std::size_t rows_sorted = 1u << 17;
// An id that is unknown is looked for in each written generation that is kept for new requests.
constexpr std::size_t max_offered = 8;

}  // namespace

void UnwrittenRows::charge(std::size_t bytes) {
  now_->bytes += bytes;
  memory_ += bytes;
}

void UnwrittenRows::tell(const TopicPartition& partition, std::string_view id,
                         const ScheduleEvent& event) {
  const auto [known, is_new] = now_->ids.of(partition, id);
  if (is_new) charge(id.size());
  auto& events = *known;
  if (events.size() == storage::max_id_events)
    events.erase(events.begin());
  else
    charge(event_bytes);
  events.push_back(event);
}

void UnwrittenRows::forward(const PendingKey& handle, std::optional<PendingKey> now) {
  const auto [at, is_new] = now_->forwards.insert_or_assign(handle, now);
  if (is_new) charge(event_bytes);
}

const std::optional<UnwrittenRows::PendingKey>* UnwrittenRows::forwarded(
    const PendingKey& handle) const {
  for (const auto* const of : {now_.get(), writing_.get()}) {
    if (of == nullptr) continue;
    if (const auto at = of->forwards.find(handle); at != of->forwards.end()) return &at->second;
  }
  return nullptr;
}

UnwrittenRows::Since UnwrittenRows::since() const {
  if (retired_ == kept_.size()) return since_stored();
  const Generation& oldest = *kept_[retired_];
  return {oldest.number, oldest.pin};
}

UnwrittenRows::Since UnwrittenRows::since_stored() const {
  // The store may lack the events that are being written.
  const Generation& oldest = writing_ ? *writing_ : *now_;
  return {oldest.number, oldest.pin};
}

const ScheduleEvent* UnwrittenRows::last(const TopicPartition& partition, std::string_view id,
                                         std::uint64_t since) const {
  const std::uint64_t hash = IdEvents::hash_of(partition, id);
  const auto in = [&](const Generation& of) -> const ScheduleEvent* {
    const auto* const known = of.ids.find(hash, partition, id);
    return known != nullptr ? &known->back() : nullptr;
  };
  if (const auto* const last = in(*now_)) return last;
  if (writing_)
    if (const auto* const last = in(*writing_)) return last;
  for (auto kept = kept_.rbegin(); kept != kept_.rend() && (*kept)->number >= since; ++kept)
    if (const auto* const last = in(**kept)) return last;
  return nullptr;
}

Result<> UnwrittenRows::Generation::write_to(storage::BucketStore& store) const {
  std::vector<storage::Forward> rows;
  std::vector<storage::IdChange> changes;
  Result<> written;
  const auto write = [&] {
    if (written) written = store.write(rows, changes);
    rows.clear();
    changes.clear();
  };
  for (const auto& [handle, now] : forwards) {
    // A record that is back at its handle's time needs no row.
    rows.push_back({handle, now == handle ? std::nullopt : now});
    if (rows.size() >= rows_sorted) write();
  }
  ids.for_each([&](const auto& partition, const auto& id, const auto& events) {
    changes.push_back({partition, id, {events.data(), events.size()}});
    if (changes.size() >= rows_sorted) write();
  });
  write();
  return written;
}

std::shared_ptr<const UnwrittenRows::Generation> UnwrittenRows::begin_write() {
  TARRY_ASSERT(writing_ == nullptr, "one generation is written at a time");
  auto next = std::make_shared<Generation>();
  next->number = now_->number + 1;
  writing_ = std::exchange(now_, std::move(next));
  return writing_;
}

void UnwrittenRows::written() {
  offered_bytes_ += writing_->bytes;
  kept_.push_back(std::move(writing_));
  writing_.reset();
}

void UnwrittenRows::forget_unneeded(std::size_t max_bytes) {
  for (; offered_bytes_ > max_bytes || kept_.size() - retired_ > max_offered; ++retired_)
    offered_bytes_ -= kept_[retired_]->bytes;
  // A request that asked the store earlier may need what was told since.
  for (; retired_ > 0 && kept_.front()->pin.use_count() == 1; --retired_) {
    memory_ -= kept_.front()->bytes;
    // A large map takes long to go.
    background_.run_and_then([gone = std::move(kept_.front())]() mutable { gone.reset(); }, [] {});
    kept_.pop_front();
  }
}

}  // namespace tarry::delay
