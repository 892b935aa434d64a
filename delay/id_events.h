#pragma once

// IdEvents: what became of records with ids, by partition and id, until it is written.
//
// It is asked for each id of each batch, so it is a hash table; and it grows on the shard's thread,
// so it is many small ones: the longest that an insertion takes is what one of these takes to grow.
// Clients choose the ids, so the hash has a key that nobody knows.

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/keyed_hash.h"
#include "storage/bucket_change.h"

namespace tarry::delay {

class IdEvents {
 public:
  using Events = std::vector<storage::ScheduleEvent>;  // Oldest first.

  // Null: nothing is known of it.
  const Events* find(const TopicPartition& partition, std::string_view id) const {
    const auto& part = parts_[part_of(id)];
    const auto known = part.find(View{partition, id});
    return known == part.end() ? nullptr : &known->second;
  }
  // The events of an id, and whether there were none.
  std::pair<Events*, bool> of(const TopicPartition& partition, std::string_view id) {
    auto& part = parts_[part_of(id)];
    const auto known = part.find(View{partition, id});
    if (known != part.end()) return {&known->second, false};
    return {&part.try_emplace(Name{partition, std::string(id)}).first->second, true};
  }
  // Calls take(partition, id, events) for each, in no order.
  template <typename Take>
  void for_each(const Take& take) const {
    for (const auto& part : parts_)
      for (const auto& [name, events] : part) take(name.partition, name.id, events);
  }

 private:
  struct Name {
    TopicPartition partition;
    std::string id;
  };
  struct View {
    View(const TopicPartition& of, std::string_view name) : partition(of), id(name) {}
    View(const Name& name) : partition(name.partition), id(name.id) {}
    const TopicPartition& partition;
    std::string_view id;
  };
  static std::size_t hash_of(std::string_view id) { return keyed_hash(process_hash_key(), id); }
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(const View& name) const {
      return hash_of(name.id) + std::hash<TopicPartition>()(name.partition);
    }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const View& a, const View& b) const {
      return a.id == b.id && a.partition == b.partition;
    }
  };

  static constexpr std::size_t parts = 64;
  // By other bits than those that choose a bucket.
  static std::size_t part_of(std::string_view id) { return (hash_of(id) >> 48) % parts; }

  std::array<std::unordered_map<Name, Events, Hash, Equal>, parts> parts_;
};

}  // namespace tarry::delay
