#pragma once

// IdEvents: what became of records with ids, by partition and id, until it is written.
//
//   parts   64, by the id's hash: each grows alone, on the shard's thread
//   slots   [ hash, number ] ...    open addressing; one cache line tells that an id is unknown
//   names   the ids' events, in the order in which they came
//   text    the ids, one behind the other
//
// It is asked several times for each id of each batch.  Clients choose the ids, so the hash has a
// key that nobody knows.
//
// Invariant: at most two of three slots of a part are taken, so that each search ends.

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
    if (part.slots.empty()) return nullptr;
    const Slot& slot = part.slots[part.slot_for(hash, partition, id)];
    return slot.number == 0 ? nullptr : &part.names[slot.number - 1].events;
  }
  // The events of an id, and whether there were none.
  std::pair<Events*, bool> of(const TopicPartition& partition, std::string_view id) {
    const std::uint64_t hash = hash_of(partition, id);
    Part& part = parts_[part_of(hash)];
    if ((part.names.size() + 1) * 3 > part.slots.size() * 2) part.grow();
    Slot& slot = part.slots[part.slot_for(hash, partition, id)];
    const bool is_new = slot.number == 0;
    if (is_new) {
      part.names.push_back(
          {partition, static_cast<std::uint32_t>(id.size()), part.text.size(), {}});
      append_bytes(part.text, as_bytes(id));
      slot = {low(hash), static_cast<std::uint32_t>(part.names.size())};
    }
    return {&part.names[slot.number - 1].events, is_new};
  }
  // Calls take(partition, id, events) for each, in no order.  What they view stays until something
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
  struct Slot {
    std::uint32_t hash = 0;    // Its lower half.
    std::uint32_t number = 0;  // The number of the name, from 1; 0: the slot is empty.
  };
  struct Part {
    std::vector<Slot> slots;  // A power of two, or none.
    std::vector<Name> names;
    Buffer text;

    std::string_view id_of(const Name& name) const {
      return as_text(Bytes(text).subspan(name.id_at, name.id_size));
    }
    // The slot that has it, or an empty one.
    std::size_t slot_for(std::uint64_t hash, const TopicPartition& partition,
                         std::string_view id) const {
      const auto is_other = [&](const Slot& slot) {
        if (slot.hash != low(hash)) return true;
        const Name& name = names[slot.number - 1];
        return id_of(name) != id || name.partition != partition;
      };
      const std::size_t mask = slots.size() - 1;
      std::size_t at = low(hash) & mask;
      while (slots[at].number != 0 && is_other(slots[at])) at = (at + 1) & mask;
      return at;
    }
    void grow() {
      std::vector<Slot> larger(slots.empty() ? 16 : 2 * slots.size());
      const std::size_t mask = larger.size() - 1;
      for (const Slot& slot : slots) {
        if (slot.number == 0) continue;
        std::size_t at = slot.hash & mask;
        while (larger[at].number != 0) at = (at + 1) & mask;
        larger[at] = slot;
      }
      slots = std::move(larger);
    }
  };

  static std::uint32_t low(std::uint64_t hash) { return static_cast<std::uint32_t>(hash); }

  static constexpr std::size_t parts = 64;
  // By other bits than those that choose a slot.
  static std::size_t part_of(std::uint64_t hash) { return (hash >> 48) % parts; }

  std::array<Part, parts> parts_;
};

}  // namespace tarry::delay
