#pragma once

// Identifiers that every folder uses: topic ids, partitions, offsets.

#include <array>
#include <bit>
#include <compare>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tarry {

using Offset = std::int64_t;          // A record's position in its partition.
using PartitionIndex = std::int32_t;  // A partition's number in its topic.
using ProducerId = std::int64_t;      // -1: none.
using Lsn = std::uint64_t;            // A position in a shard's journal, in bytes; only grows.
using Sequence = std::uint64_t;       // A pending record's place in the order of arrival.

// The number of a principal (User:alice), which stored records have instead of its name.
using PrincipalId = std::uint32_t;
inline constexpr PrincipalId unknown_principal = 0;    // In records of former versions.
inline constexpr PrincipalId anonymous_principal = 1;  // User:ANONYMOUS
// All principals together that came when there were as many numbers as there may be.
inline constexpr PrincipalId further_principals = 2;

// Everything that is stored names a topic by its id, because a topic's name may be reused after the
// topic was deleted.
struct TopicId {
  std::array<std::uint8_t, 16> bytes{};  // All zero: none.

  auto operator<=>(const TopicId&) const = default;
  // By words, because each record is asked for its topic several times, and the default calls
  // memcmp.
  constexpr bool operator==(const TopicId& other) const {
    using Words = std::array<std::uint64_t, 2>;
    const auto ours = std::bit_cast<Words>(bytes), theirs = std::bit_cast<Words>(other.bytes);
    return ((ours[0] ^ theirs[0]) | (ours[1] ^ theirs[1])) == 0;
  }
  bool is_zero() const { return *this == TopicId{}; }
  std::string text() const;  // As Kafka writes it: base64url without padding, 22 characters.
  static std::optional<TopicId> parse(std::string_view text);
};

struct TopicPartition {
  TopicId topic;
  PartitionIndex partition = 0;

  auto operator<=>(const TopicPartition&) const = default;
};

}  // namespace tarry

template <>
struct std::hash<tarry::TopicId> {
  std::size_t operator()(const tarry::TopicId& id) const noexcept {
    std::uint64_t high, low;  // Random bytes: any of them will do.
    std::memcpy(&high, id.bytes.data(), 8);
    std::memcpy(&low, id.bytes.data() + 8, 8);
    return high ^ low;
  }
};

template <>
struct std::hash<tarry::TopicPartition> {
  std::size_t operator()(const tarry::TopicPartition& tp) const noexcept {
    return (std::hash<tarry::TopicId>{}(tp.topic) + static_cast<std::uint32_t>(tp.partition)) *
           0x9e3779b97f4a7c15u;
  }
};
