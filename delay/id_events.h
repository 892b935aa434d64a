#pragma once

// IdEvents: what became of records with ids, by partition and id, until it is written.
//
//   parts     64, by the id's hash: each grows alone, on the shard's thread
//   numbers   which names have a hash (hashed_numbers.h)
//   names     the ids' events, in the order in which they came
//   text      the ids, one behind the other
//
// It is asked several times for each id of each batch.  Clients choose the ids, so the hash has a
// key that nobody knows.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/container/small_vector.hpp>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/keyed_hash.h"
#include "delay/hashed_numbers.h"
#include "storage/bucket_change.h"

namespace tarry::delay {

class IdEvents {
 public:
  // Oldest first.  Most ids have one until it is written.
  using Events = boost::container::small_vector<storage::ScheduleEvent, 1>;

  static std::uint64_t hash_of(const TopicPartition& partition, std::string_view id) {
    return keyed_hash(process_hash_key(), id) + std::hash<TopicPartition>()(partition);
  }

  // Null: nothing is known of it.  Until something is added.
  const Events* find(const TopicPartition& partition, std::string_view id) const {
    return find(hash_of(partition, id), partition, id);
  }
  // For whoever asks several: with its hash_of().
  const Events* find(std::uint64_t hash, const TopicPartition& partition,
                     std::string_view id) const {
    const Part& part = parts_[part_of(hash)];
    if (part.numbers.slots() == 0) return nullptr;
    const auto& slot = part.numbers.slot(low(hash), HasName{part, partition, id});
    return slot.is_empty() ? nullptr : &part.names[slot.number()].events;
  }
  // The events of an id, and whether there were none.
  std::pair<Events*, bool> of(const TopicPartition& partition, std::string_view id) {
    const std::uint64_t hash = hash_of(partition, id);
    Part& part = parts_[part_of(hash)];
    part.numbers.make_room(part.names.size());
    auto& slot = part.numbers.slot(low(hash), HasName{part, partition, id});
    const bool is_new = slot.is_empty();
    if (is_new) {
      part.names.push_back(
          {partition, static_cast<std::uint32_t>(id.size()), part.text.size(), {}});
      append_bytes(part.text, as_bytes(id));
      slot.take(low(hash), static_cast<HashedNumbers::Number>(part.names.size() - 1));
    }
    return {&part.names[slot.number()].events, is_new};
  }
  // Calls take(partition, id, events) for each, in no order.  Their views are good until something
  // is added.
  template <typename Take>
  void for_each(const Take& take) const {
    for (const auto& part : parts_)
      for (const auto& name : part.names) take(name.partition, part.id_of(name), name.events);
  }

 private:
  struct Name {
    TopicPartition partition;
    std::uint32_t id_size;
    std::size_t id_at;
    Events events;
  };
  struct Part {
    HashedNumbers numbers;
    std::vector<Name> names;
    Buffer text;

    std::string_view id_of(const Name& name) const {
      return as_text(Bytes(text).subspan(name.id_at, name.id_size));
    }
  };
  struct HasName {
    const Part& part;
    const TopicPartition& partition;
    std::string_view id;
    bool operator()(HashedNumbers::Number number) const {
      const Name& name = part.names[number];
      return part.id_of(name) == id && name.partition == partition;
    }
  };

  static HashedNumbers::Hash low(std::uint64_t hash) {
    return static_cast<HashedNumbers::Hash>(hash);
  }

  static constexpr std::size_t parts = 64;
  // By other bits than those that choose a slot.
  static std::size_t part_of(std::uint64_t hash) { return (hash >> 48) % parts; }

  std::array<Part, parts> parts_;
};

}  // namespace tarry::delay
