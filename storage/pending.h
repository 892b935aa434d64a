#pragma once

// A pending record, by name and as a whole, and the questions that are asked about many.
//
// Pure; any thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"

namespace tarry::storage {

// A pending record's part in what its principal has pending: whose it is, and its bytes.
struct PendingShare {
  PrincipalId principal = unknown_principal;
  std::uint32_t bytes = 0;  // Its id's and its record's; 0 where the principal is unknown.

  static PendingShare of(PrincipalId principal, std::size_t id_bytes, std::size_t record_bytes) {
    if (principal == unknown_principal) return {};
    return {principal, static_cast<std::uint32_t>(id_bytes + record_bytes)};
  }
  bool operator==(const PendingShare&) const = default;
};

// The pending records of a principal, and their bytes.
struct PendingUse {
  std::int64_t records = 0;
  std::int64_t bytes = 0;

  bool operator==(const PendingUse&) const = default;
  void add(const PendingUse& more) {
    records += more.records;
    bytes += more.bytes;
  }
};

// The key of a pending record; its order is the order of delivery.
struct PendingKey {
  WallTime due;
  Sequence sequence = 0;

  auto operator<=>(const PendingKey&) const = default;
  // Written out, because each record is compared many times, and the default is a call.
  bool operator<(const PendingKey& other) const {
    return due != other.due ? due < other.due : sequence < other.sequence;
  }
};

struct PendingRecord {
  PendingKey key;
  TopicPartition partition;
  WallTime accepted;
  WallTime expires;
  std::string id;  // Empty: none.
  Buffer record;   // PendingAdded::record.
  WallTime first_due;
  PrincipalId principal = unknown_principal;  // The producer of the record.

  // The key that it had first: its handle for ever.
  PendingKey first_key() const { return {first_due, key.sequence}; }
  PendingShare share() const { return PendingShare::of(principal, id.size(), record.size()); }
};

// Topics whose records a query leaves out.  Copies share them: a request asks for page after page,
// and there may be a hundred thousand.
class HiddenTopics {
 public:
  HiddenTopics() = default;
  HiddenTopics(std::initializer_list<TopicId> topics)
      : HiddenTopics(std::vector<TopicId>(topics)) {}
  // Sorts them.
  explicit HiddenTopics(std::vector<TopicId> topics) {
    if (topics.empty()) return;
    std::ranges::sort(topics);
    sorted_ = std::make_shared<const std::vector<TopicId>>(std::move(topics));
  }

  bool empty() const { return sorted_ == nullptr; }
  bool contains(const TopicId& topic) const {
    return sorted_ != nullptr && std::ranges::binary_search(*sorted_, topic);
  }
  // As long as this or a copy of it exists.
  std::span<const TopicId> all() const {
    return sorted_ == nullptr ? std::span<const TopicId>() : std::span<const TopicId>(*sorted_);
  }

 private:
  std::shared_ptr<const std::vector<TopicId>> sorted_;  // Null: none.
};

struct PendingQuery {
  std::optional<TopicId> topic = std::nullopt;
  std::optional<PartitionIndex> partition = std::nullopt;
  WallTime from = WallTime::min();
  WallTime until = WallTime::max();  // Exclusive.
  std::string id = {};               // A pattern with * and ?; empty: any, with id or without.
  std::size_t limit = 100;           // Records in a page.
  HiddenTopics hidden = {};
  std::optional<PendingKey> after = std::nullopt;  // PendingPage::next of the page before.
};

struct PendingPage {
  std::vector<PendingRecord> records;  // In due order.
  std::optional<PendingKey> next;      // Empty: there is no more.
};

// A record's handle, by which people and programs name a pending record, with an id or without.  It
// is made of the first due time and the sequence number, reversibly, in '@' and letters and digits.
std::string encode_handle(PendingKey first);
// Its two parts, into memory of the caller's, together max_handle_bytes: what handles of one due
// time have in common, and the rest.  Each returns the end of its text.
inline constexpr std::size_t max_handle_bytes = 24;
char* put_handle_begin(WallTime first_due, char* to);
char* put_handle_end(Sequence sequence, char* to);
std::optional<PendingKey> parse_handle(std::string_view text);

}  // namespace tarry::storage
