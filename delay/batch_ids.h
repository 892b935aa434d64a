#pragma once

// BatchIds: the ids of a batch, each once, numbered from 0 in the order in which they came.
//
//   slots   [ hash, number + 1 ] ...   open addressing; none while there are few ids
//   names   [ where the id begins and ends in the text ] ...
//   text    the ids, one behind the other
//
// A producer chooses the ids, so the hash has a key that nobody knows: with the standard library's
// a batch could be made of ids that all collide, and each search would pass all of them.
//
// Invariant: at most half of the slots are taken, so that each search ends.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/keyed_hash.h"

namespace tarry::delay {

class BatchIds {
 public:
  using Number = std::uint32_t;
  using Hash = std::uint32_t;

  static Hash hash_of(std::string_view id) {
    return static_cast<Hash>(keyed_hash(process_hash_key(), id));
  }

  BatchIds() = default;
  // For so many ids at most.
  explicit BatchIds(std::size_t most) {
    names_.reserve(most);
    if (most > few) slots_.resize(std::bit_ceil(2 * most));
  }

  // The id's number, and whether it is new.
  std::pair<Number, bool> add(std::string_view id) {
    Number number = 0;
    if (slots_.empty()) {
      number = number_among_few(id);
      if (number < names_.size()) return {number, false};
    } else {
      const Hash hash = hash_of(id);
      Slot& slot = slots_[slot_for(hash, id)];
      if (slot.next_number != 0) return {slot.next_number - 1, false};
      number = static_cast<Number>(names_.size());
      slot = {hash, number + 1};
    }
    names_.push_back({text_.size(), id.size()});
    append_bytes(text_, as_bytes(id));
    return {number, true};
  }
  std::optional<Number> find(std::string_view id) const { return find(hash_of(id), id); }
  // For whoever asks several: with its hash_of().
  std::optional<Number> find(Hash hash, std::string_view id) const {
    if (slots_.empty()) {
      const Number number = number_among_few(id);
      return number < names_.size() ? std::optional(number) : std::nullopt;
    }
    const Slot& slot = slots_[slot_for(hash, id)];
    return slot.next_number != 0 ? std::optional(slot.next_number - 1) : std::nullopt;
  }

  std::string_view operator[](Number number) const {
    const Name& name = names_[number];
    return as_text(Bytes(text_).subspan(name.at, name.size));
  }
  std::size_t size() const { return names_.size(); }
  std::size_t memory_bytes() const {
    return text_.capacity() + names_.capacity() * sizeof(Name) + slots_.capacity() * sizeof(Slot);
  }
  // The most slots that a search passes.
  std::size_t longest_search() const {
    std::size_t longest = 0, run = 0;
    // A run of taken slots may go on at the beginning.
    for (std::size_t i = 0; i < 2 * slots_.size(); ++i) {
      run = slots_[i % slots_.size()].next_number != 0 ? run + 1 : 0;
      longest = std::max(longest, run);
    }
    return slots_.empty() ? names_.size() : longest;
  }

 private:
  struct Name {
    std::size_t at, size;
  };
  struct Slot {
    Hash hash = 0;
    Number next_number = 0;  // 0: the slot is empty.
  };
  // So few are compared one by one, without a table.
  static constexpr std::size_t few = 8;

  // Their number, if the id is new.
  Number number_among_few(std::string_view id) const {
    Number number = 0;
    while (number < names_.size() && (*this)[number] != id) ++number;
    return number;
  }
  // The slot that has it, or an empty one.
  std::size_t slot_for(Hash hash, std::string_view id) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash & mask;
    const auto is_other = [&](const Slot& slot) {
      return slot.hash != hash || (*this)[slot.next_number - 1] != id;
    };
    while (slots_[at].next_number != 0 && is_other(slots_[at])) at = (at + 1) & mask;
    return at;
  }

  Buffer text_;
  std::vector<Name> names_;
  std::vector<Slot> slots_;  // A power of two, or none.
};

}  // namespace tarry::delay
