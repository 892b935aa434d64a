#pragma once

// BatchIds: the ids of a batch, each once, numbered from 0 in the order in which they came.
//
//   numbers   which ids have a hash (hashed_numbers.h); nothing while there are few ids
//   names     [ where the id begins and ends in the text ] ...
//   text      the ids, one behind the other
//
// A producer chooses the ids, so the hash has a key that nobody knows: with the standard library's
// a batch could be made of ids that all collide, and each search would pass all of them.
//
// Belongs to the accepted batch; one thread at a time has it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/keyed_hash.h"
#include "delay/hashed_numbers.h"

namespace tarry::delay {

class BatchIds {
 public:
  using Number = HashedNumbers::Number;
  using Hash = HashedNumbers::Hash;

  static Hash hash_of(std::string_view id) {
    return static_cast<Hash>(keyed_hash(process_hash_key(), id));
  }

  BatchIds() = default;
  // For so many ids at most.
  explicit BatchIds(std::size_t max_ids) {
    names_.reserve(max_ids);
    if (max_ids > few) numbers_.reserve(max_ids);
  }

  // The id's number, and whether it is new.
  std::pair<Number, bool> add(std::string_view id) {
    Number number = 0;
    if (numbers_.slots() == 0) {
      number = number_among_few(id);
      if (number < names_.size()) return {number, false};
    } else {
      const Hash hash = hash_of(id);
      auto& slot = numbers_.slot(hash, HasId{*this, id});
      if (!slot.is_empty()) return {slot.number(), false};
      number = static_cast<Number>(names_.size());
      slot.take(hash, number);
    }
    names_.push_back({text_.size(), id.size()});
    append_bytes(text_, as_bytes(id));
    return {number, true};
  }
  std::optional<Number> find(std::string_view id) const { return find(hash_of(id), id); }
  // For whoever asks several: with its hash_of().
  std::optional<Number> find(Hash hash, std::string_view id) const {
    if (numbers_.slots() == 0) {
      const Number number = number_among_few(id);
      return number < names_.size() ? std::optional(number) : std::nullopt;
    }
    const auto& slot = numbers_.slot(hash, HasId{*this, id});
    return slot.is_empty() ? std::nullopt : std::optional(slot.number());
  }

  std::string_view operator[](Number number) const {
    const Name& name = names_[number];
    return as_text(Bytes(text_).subspan(name.at, name.size));
  }
  std::size_t size() const { return names_.size(); }
  std::size_t memory_bytes() const {
    return text_.capacity() + names_.capacity() * sizeof(Name) + numbers_.memory_bytes();
  }
  // The most ids that a search passes.
  std::size_t longest_search() const {
    return numbers_.slots() == 0 ? names_.size() : numbers_.longest_search();
  }

 private:
  struct Name {
    std::size_t at, size;
  };
  struct HasId {
    const BatchIds& ids;
    std::string_view id;
    bool operator()(Number number) const { return ids[number] == id; }
  };
  // So few are compared one by one, without a table.
  static constexpr std::size_t few = 8;

  // Their number, if the id is new.
  Number number_among_few(std::string_view id) const {
    Number number = 0;
    while (number < names_.size() && (*this)[number] != id) ++number;
    return number;
  }

  Buffer text_;
  std::vector<Name> names_;
  HashedNumbers numbers_;
};

}  // namespace tarry::delay
