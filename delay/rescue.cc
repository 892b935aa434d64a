#include "delay/rescue.h"

#include <algorithm>
#include <chrono>

#include "base/assert.h"

namespace tarry::delay {

using storage::Bucket;
using storage::bucket_of;
using storage::BucketLevel;

namespace {

// So many stopped partitions are looked at in one turn.
constexpr std::size_t looks_a_turn = 64;
// A partition goes on with so many chunks at the price of one entry: each is searched for a record
// that may be here already.
constexpr std::size_t chunks_an_entry = 64;

}  // namespace

Rescue::Rescue(std::size_t max_bytes, Floods floods)
    : max_bytes_(max_bytes),
      full_bytes_(std::clamp<std::size_t>(max_bytes / 64, 4u << 10, 32u << 10)),
      floods_(std::move(floods)) {}
Rescue::~Rescue() = default;

void Rescue::begin(const PendingKey& horizon) {
  TARRY_ASSERT(!is_on(), "a rescue begins once");
  ahead_.emplace(std::chrono::milliseconds{0}, horizon);
  begun_at_ = settled_ = horizon;
}

Rescue::Freed Rescue::end() {
  Freed freed;
  // There may be ten thousand partitions with a record each.
  freed.parts_ = std::exchange(parts_, {});
  freed.stopped_ = std::exchange(stopped_, {});
  freed.numbered_ = std::exchange(numbered_, {});
  freed.read_ = std::exchange(read_, {});
  free_numbers_.clear();
  bytes_ = stopped_bytes_ = records_ = read_bytes_ = 0;
  next_ = to_look_ = 0;
  again_.reset();
  resumed_.clear();
  ahead_.reset();
  return freed;
}

// --- How far it is

template <typename IsWanted>
void Rescue::Read::choose_if(const PendingKey& from, const PendingKey& until, IsWanted is_wanted) {
  struct Entry {
    PendingKey key;
    std::pair<std::uint32_t, std::uint32_t> place;
  };
  std::vector<Entry> found;
  for (std::uint32_t at = 0; at < chunks.size(); ++at) {
    storage::LoadedChunk& loaded = chunks[at];
    const std::size_t before = found.size();
    for (std::uint32_t i = 0; i < loaded.chunk->size(); ++i) {
      if (!loaded.live[i]) continue;
      const PendingKey key = loaded.chunk->key_at(i);
      if (key < from || !(key < until)) continue;
      if (is_wanted(key, *loaded.chunk, i)) found.push_back({key, {at, i}});
    }
    left.push_back(static_cast<std::uint32_t>(found.size() - before));
    if (found.size() == before) loaded.chunk.reset();  // Most of a flood.
  }
  // A partition is stopped at the first record that does not fit, so none behind it may come first.
  std::ranges::sort(found, {}, &Entry::key);
  wanted.reserve(found.size());
  for (const auto& entry : found) wanted.push_back(entry.place);
}

void Rescue::Read::choose(const PendingKey& from, const PendingKey& until, const Stops& stops) {
  choose_if(from, until, [&](const PendingKey& key, const storage::Chunk& chunk, std::size_t at) {
    if (stops.empty()) return true;
    const auto stop = stops.find(chunk.at(at).partition);
    return stop == stops.end() || key < stop->second;
  });
}

void Rescue::Read::choose_again(const PendingKey& from, const PendingKey& until,
                                const Stops& stops) {
  choose_if(from, until, [&](const PendingKey& key, const storage::Chunk& chunk, std::size_t at) {
    const auto stop = stops.find(chunk.at(at).partition);
    return stop != stops.end() && !(key < stop->second);
  });
}

std::size_t Rescue::Read::bytes() const {
  std::size_t sum = wanted.capacity() * sizeof(wanted.front());
  for (const auto& loaded : chunks)
    if (loaded.chunk) sum += loaded.chunk->memory_bytes();
  return sum;
}

void Rescue::advance(const PendingKey& until, const Homes& homes, Read read) {
  TARRY_ASSERT(!is_handing(), "one range is handed over at a time");
  ahead_->advance(until, homes);
  read_bytes_ = read.bytes();
  read_ = std::move(read);
  next_ = 0;
  if (!is_handing()) settle();
}

std::size_t Rescue::hand_over(
    std::size_t budget, const Homes& homes, const DroppedTopics& dropped,
    const std::function<void(const PendingView&, const Location&)>& near) {
  std::size_t handed = 0;
  if (again_) budget = budget_again(budget);
  const auto take_one = [&](const PendingView& record) {
    if (again_ && !is_wanted_again(record, near)) return;
    handed += take(record, near) ? 1 : 0;
  };
  for (; budget > 0 && next_ < read_.wanted.size(); --budget) {
    const auto [at, index] = read_.wanted[next_++];
    const PendingView record = read_.chunks[at].chunk->at(index);
    // It may have been removed since it was read.
    if (!homes.is_marked_in_home(record.key) && !dropped.contains(record.partition.topic))
      take_one(record);
    if (--read_.left[at] > 0) continue;
    read_bytes_ -= read_.chunks[at].chunk->memory_bytes();
    read_.chunks[at].chunk.reset();
  }
  if (next_ == read_.wanted.size()) {
    read_bytes_ = 0;
    read_ = {};
    next_ = 0;
    Horizon& in_memory = again_ ? *again_ : *ahead_;
    in_memory.hand_over(budget, dropped,
                        [&](const PendingView& record, const Location&) { take_one(record); }, {});
    if (again_ && !again_->is_handing()) end_resuming();
  }
  if (!is_handing()) settle();
  return handed;
}

void Rescue::settle() {
  settled_ = at();
  ++times_settled_;
}

bool Rescue::take(const PendingView& record,
                  const std::function<void(const PendingView&, const Location&)>& near) {
  if (!is_near(record.key, record.partition)) return false;
  const auto location = keep(record);
  if (location) near(record, *location);
  return location.has_value();
}

Rescue::Stops Rescue::stops() const {
  Stops out;
  for (const auto& partition : stopped_) out.emplace(partition, *parts_.at(partition).stop);
  return out;
}

// Where what is near of the partition ends: unless it is stopped, where the rescue does.
Rescue::PendingKey Rescue::near_end(const TopicPartition& partition) const {
  const auto part = parts_.find(partition);
  if (part == parts_.end() || !part->second.stop) return at();
  return std::min(*part->second.stop, at());
}

Rescue::PendingKey Rescue::settled_end(const TopicPartition& partition) const {
  const auto part = parts_.find(partition);
  if (part == parts_.end()) return settled_;
  PendingKey end = settled_;
  if (part->second.stop) end = std::min(end, *part->second.stop);
  if (part->second.resumed) end = std::min(end, *part->second.resumed);
  return end;
}

// --- What was stopped and has room again

// Some room, so that it does not go on for each record that leaves.
bool Rescue::has_room_again(const TopicPartition& partition, const Part& part) const {
  const std::size_t most = share();
  return bytes_ + part.needs <= max_bytes_ && part.bytes + part.needs <= most &&
         part.bytes <= most - most / 4 && !(floods_ && floods_(partition));
}

Rescue::Stops Rescue::resumable() {
  Stops out;
  if (!may_resume()) return out;
  auto next = stopped_.lower_bound(next_look_);
  for (std::size_t left = std::min(to_look_, looks_a_turn); left > 0; --left, --to_look_) {
    if (next == stopped_.end()) next = stopped_.begin();
    const Part& part = parts_.at(*next);
    if (has_room_again(*next, part)) out.emplace(*next, *part.stop);
    ++next;
  }
  next_look_ = next == stopped_.end() ? TopicPartition{} : *next;
  return out;
}

void Rescue::resume(const PendingKey& from, const PendingKey& until, const Stops& those,
                    const Homes& homes, Read read) {
  TARRY_ASSERT(!is_handing(), "one range is handed over at a time");
  TARRY_ASSERT(!(at() < until), "what is stopped goes on up to where the others are");
  for (const auto& [partition, stop] : those) {
    const auto at_part = parts_.find(partition);
    // Its topic may have been dropped since, or a record that came did not fit either.
    if (at_part == parts_.end() || at_part->second.stop != stop || !(stop < until)) continue;
    Part& part = at_part->second;
    part.resumed = stop;
    resumed_.push_back(partition);
    if (until < at()) {
      part.stop = until;
      part.needs = 0;  // What comes next there is not known.
    } else {
      part.stop.reset();
      stopped_bytes_ -= part.bytes;
      stopped_.erase(partition);
    }
  }
  read_bytes_ = read.bytes();
  read_ = std::move(read);
  next_ = 0;
  again_.emplace(std::chrono::milliseconds{0}, from);
  again_->advance(until, homes);
  look_again();
}

void Rescue::end_resuming() {
  again_.reset();
  for (const auto& partition : std::exchange(resumed_, {})) {
    const auto part = parts_.find(partition);
    if (part == parts_.end()) continue;
    part->second.resumed.reset();
    if (part->second.is_empty()) parts_.erase(part);
  }
}

// How many entries of those that go on are handed over for as much work.
std::size_t Rescue::budget_again(std::size_t budget) const {
  std::size_t most = 0;
  for (const auto& partition : resumed_) {
    const auto part = parts_.find(partition);
    if (part != parts_.end()) most = std::max(most, part->second.chunks.size());
  }
  return std::max<std::size_t>(budget / (1 + most / chunks_an_entry), 1);
}

// The record is of a partition that goes on, and is not here.  One that is here, from before its
// stop moved back, is handed over where it is.
bool Rescue::is_wanted_again(
    const PendingView& record,
    const std::function<void(const PendingView&, const Location&)>& near) const {
  const auto at_part = parts_.find(record.partition);
  if (at_part == parts_.end()) return false;
  const Part& part = at_part->second;
  if (!part.resumed || record.key < *part.resumed || !is_near(record.key, record.partition))
    return false;
  const Place here = search(part, record.key);
  if (here.kept == nullptr) return true;
  near(record, here.location());
  return false;
}

// --- Its records

Rescue::Parts::iterator Rescue::part_of(const TopicPartition& partition) {
  const auto [part, is_new] = parts_.try_emplace(partition);
  if (is_new && floods_ && floods_(partition)) stop_at(part, begun_at_, 0);
  return part;
}

Rescue::Kept& Rescue::open_chunk(Parts::iterator part, const PendingKey& key) {
  auto& chunks = part->second.chunks;
  if (!chunks.empty()) {
    Kept& last = *chunks.back();
    if (last.taken < full_bytes_ && last.chunk.bucket().holds(key.due)) return last;
    close(part->second, last);
  }
  auto made = std::make_unique<Kept>(bucket_of(BucketLevel::hour, key.due));
  if (free_numbers_.empty()) {
    free_numbers_.push_back(static_cast<std::uint32_t>(numbered_.size()));
    numbered_.push_back(nullptr);
  }
  made->number = free_numbers_.back();
  free_numbers_.pop_back();
  numbered_[made->number] = made.get();
  return *chunks.emplace_back(std::move(made));
}

// It takes no more, so it gives back the memory that it has grown ahead of its records.
void Rescue::close(Part& part, Kept& kept) {
  if (std::exchange(kept.is_closed, true)) return;
  storage::Chunk fitted(kept.chunk);
  kept.chunk = std::move(fitted);
  const std::size_t fits = kept.memory();
  charge(part, std::exchange(kept.charged, fits), fits);
}

void Rescue::charge(Part& part, std::size_t before, std::size_t now) {
  part.bytes += now - before;
  bytes_ += now - before;
  if (part.stop) stopped_bytes_ += now - before;
  if (now < before) look_again();
}

void Rescue::stop_at(Parts::iterator at, const PendingKey& key, std::size_t needs) {
  auto& [partition, part] = *at;
  if (!part.stop) {
    stopped_bytes_ += part.bytes;
    stopped_.insert(partition);
  }
  part.stop = key;
  part.needs = needs;
}

std::optional<Location> Rescue::keep(const PendingView& record) {
  const auto at = part_of(record.partition);
  Part& part = at->second;
  if (part.stop && !(record.key < *part.stop)) return std::nullopt;
  const std::size_t size = record.record.size() + record.id.size() + locator_bytes;
  // A third of what is left: one alone gets a quarter of all, and ten leave a fifth free.
  if (bytes_ + size > max_bytes_ || part.bytes + size > share()) {
    stop_at(at, record.key, size);
    return std::nullopt;
  }
  Kept& kept = open_chunk(at, record.key);
  kept.chunk.append(record);
  kept.taken += size - locator_bytes;
  kept.live.push_back(true);
  ++kept.live_count;
  ++records_;
  const std::size_t charged = kept.memory();
  charge(part, std::exchange(kept.charged, charged), charged + locator_bytes);
  return Place{&kept, kept.live.size() - 1}.location();
}

void Rescue::remove(const PendingKey& key, const TopicPartition& partition,
                    const Location& location) {
  if (!is_on()) return;
  const auto at = parts_.find(partition);
  if (at == parts_.end()) return;
  Part& part = at->second;
  Place place;
  if (is_passed(key)) {
    place = place_at(key, location);
    if (place.kept == nullptr) place = search(part, key);
  }
  if (place.kept == nullptr) return left_beside(*at, key);
  Kept& kept = *place.kept;
  kept.live[place.index] = false;
  --records_;
  charge(part, locator_bytes, 0);
  if (--kept.live_count > 0) return;
  const auto chunk =
      std::ranges::find(part.chunks, &kept, [](const auto& one) { return one.get(); });
  TARRY_ASSERT(chunk != part.chunks.end(), "a chunk belongs to its records' partition");
  take_out(part, static_cast<std::size_t>(chunk - part.chunks.begin()));
  if (part.is_empty()) parts_.erase(at);
}

// A record of the partition has left that is not here.  It may be the one that did not fit, or one
// of those by which the partition floods.
void Rescue::left_beside(Parts::value_type& at, const PendingKey& key) {
  auto& [partition, part] = at;
  if (!part.stop) return;
  if (key == *part.stop) part.needs = 0;
  if (!floods_ || !floods_(partition)) look_again();
}

std::unique_ptr<Rescue::Kept> Rescue::take_out(Part& part, std::size_t at) {
  auto kept = std::move(part.chunks[at]);
  part.chunks.erase(part.chunks.begin() + static_cast<std::ptrdiff_t>(at));
  charge(part, kept->charged + kept->live_count * locator_bytes, 0);
  records_ -= kept->live_count;
  numbered_[kept->number] = nullptr;
  free_numbers_.push_back(kept->number);
  return kept;
}

Rescue::Freed Rescue::topic_dropped(const TopicId& topic) {
  Freed freed;
  for (auto at = parts_.lower_bound({topic, 0}); at != parts_.end() && at->first.topic == topic;) {
    auto& chunks = at->second.chunks;
    while (!chunks.empty()) freed.chunks_.push_back(take_out(at->second, chunks.size() - 1));
    if (at->second.stop) stopped_.erase(at->first);
    freed.parts_.insert(freed.parts_.end(), parts_.extract(at++));
  }
  return freed;
}

std::optional<Rescue::PendingView> Rescue::read(const PendingKey& key,
                                                const Location& location) const {
  const Place place = place_at(key, location);
  if (place.kept == nullptr) return std::nullopt;
  return place.kept->chunk.at(place.index);
}

std::optional<Rescue::PendingView> Rescue::find(const PendingKey& key) const {
  if (!is_passed(key)) return std::nullopt;
  for (const auto& [partition, part] : parts_)
    if (const Place place = search(part, key); place.kept != nullptr)
      return place.kept->chunk.at(place.index);
  return std::nullopt;
}

Location Rescue::Place::location() const {
  return {Location::rescued | kept->number, static_cast<std::uint32_t>(index)};
}

// The number may be another chunk's by now, so the key decides.
Rescue::Place Rescue::place_at(const PendingKey& key, const Location& location) const {
  const std::size_t number = location.chunk ^ Location::rescued;
  if (number >= numbered_.size() || numbered_[number] == nullptr) return {};
  Kept& kept = *numbered_[number];
  const bool is_there = location.index < kept.live.size() && kept.live[location.index] &&
                        kept.chunk.key_at(location.index) == key;
  return is_there ? Place{&kept, location.index} : Place{};
}

Rescue::Place Rescue::search(const Part& part, const PendingKey& key) {
  for (const auto& kept : part.chunks) {
    // They were filled in the order of due times, so nearly all say no.
    if (!kept->chunk.may_have(key)) continue;
    const auto at = kept->chunk.find(key.sequence);
    if (at && kept->live[*at] && kept->chunk.key_at(*at) == key) return {kept.get(), *at};
  }
  return {};
}

}  // namespace tarry::delay
