#pragma once

// PendingRecord: one pending record of a source partition, and its row in the state topic.
//
//   key    the handle: @orders.delayed-3-1047, its place in the source
//   value  0  version  u8 = 1
//          1  flags    u8   1: plain, it has no schedule and is delivered as it came
//          2  due      i64  ms; big-endian
//         10  expires  i64  ms; the largest number: never
//         18  id       size u16, bytes; empty: none
//             target   size u16, bytes; the topic that it goes to
//             body          delay/pending_record.h: timestamp, recurrence, key, value, headers
//
// PendingRecords: those of one source partition, as rows of a store (storage/sorted_rows.h) that
// may lag behind Kafka and is never ahead of it.
//
//   d SOURCE due offset   the row, as in the state topic
//   r SOURCE offset       due, id
//   i SOURCE id           offset
//   m SOURCE block        for each minute of 256 that has a record: minute u8, count u32
//   p SOURCE              the place: up to which offset of the state topic the store has the rows,
//                         and when it was last known to have all
//
// SOURCE is the topic, a zero byte and the partition; numbers are big-endian, with the sign bit
// turned, so that their order as bytes is their order.
//
// Invariants
//   - No two have the same id.
//   - A look-up sees a change at once.  After commit() a walk sees it, and it is on the disk,
//     together with the place, as a whole or not at all.
//   - Memory has the minutes, and nothing for each record.
//
// Belongs to its partition.  The thread of the member's steps alone changes it; others read under
// the member's lock (member.h).  Its calls may read the disk.

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "relay/cluster.h"
#include "storage/sorted_rows.h"

namespace tarry::relay {

struct PendingRecord {
  WallTime due{};
  WallTime expires{};
  bool is_plain = false;
  std::string id;
  std::string target;
  Buffer body;

  // The size of its row, about.
  std::size_t bytes() const {
    constexpr std::size_t fixed = 22;
    return fixed + id.size() + target.size() + body.size();
  }
};

std::string handle_of(const Source& source, Offset offset);
// Empty: it is no handle of this partition.
std::optional<Offset> offset_in_handle(const Source& source, std::string_view handle);

Buffer encode_row(const PendingRecord& record);
// Errc::corrupt or unsupported for other bytes.
Result<PendingRecord> decode_row(Bytes bytes);

// How far the rows of a state partition are in a store.
struct RowsPlace {
  Offset next = 0;         // All before it are.
  Offset source = -1;      // The source was taken in to here, at least, and that is committed.
  WallTime complete_at{};  // When they were known to be all.
};

class PendingRecords {
 public:
  // In their order.
  using Place = std::pair<WallTime, Offset>;
  using ByMinute = std::map<std::chrono::sys_time<std::chrono::minutes>, std::size_t>;

  class Walk {
   public:
    bool valid() const { return cursor_->valid(); }
    Place place() const;
    PendingRecord record() const;
    void next() { cursor_->next(); }

   private:
    friend class PendingRecords;
    explicit Walk(std::unique_ptr<storage::SortedRows::Cursor> cursor)
        : cursor_(std::move(cursor)) {}

    std::unique_ptr<storage::SortedRows::Cursor> cursor_;
  };

  // With what the store has of the source.
  PendingRecords(storage::SortedRows& store, const Source& source);

  // In place of the record that has its offset, and of the one that has its id.
  void put(Offset offset, const PendingRecord& record);
  // The same where there are none, as for a record that has just been taken in: `offset` is not
  // below unused_from(), and its id is free.  It asks the store nothing, which is half of put().
  void add(Offset offset, const PendingRecord& record);
  void erase(Offset offset);
  // All of them, and the place.
  void clear();
  void commit(const RowsPlace& place);

  bool contains(Offset offset) const { return due_of(offset).has_value(); }
  std::optional<PendingRecord> find(Offset offset) const;
  std::optional<Offset> find_id(const std::string& id) const;
  // Without reading its row.
  std::optional<WallTime> due_of(Offset offset) const;
  // From `from` on.  It ends before the next change.
  Walk walk(const Place& from) const;
  // The first offset, from `next` on, behind those of all records.
  Offset unused_from(Offset next);
  // The first one's.
  const std::optional<Place>& first() const { return first_; }
  const ByMinute& by_minute() const { return by_minute_; }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return bytes_; }  // The size of their rows.
  const RowsPlace& place() const { return place_; }

  // The sources in a store that were known to be complete before `before`.
  static std::vector<Source> older(const storage::SortedRows& store, WallTime before);

 private:
  std::string key(char kind, std::string_view rest = {}) const;
  std::string key(char kind, std::int64_t number) const;
  std::string key(char kind, std::int64_t first, std::int64_t second) const;
  std::optional<std::string> get(const std::string& key) const;
  void count(WallTime due, int by);
  void read_block(std::int64_t block, std::string_view row);
  std::optional<std::string> block_row(std::int64_t block) const;
  void forget_changes();
  void find_first(const Place& from);

  storage::SortedRows& store_;
  const std::string source_;
  storage::SortedRows::Changes changes_;   // Not committed.
  std::set<std::int64_t> changed_blocks_;  // Blocks of minutes.
  RowsPlace place_;
  // No record has this offset or a later one; empty: not known.  The store is not asked for what
  // cannot be there.
  std::optional<Offset> unused_from_ = 0;
  std::optional<Place> first_;
  bool is_first_gone_ = false;
  ByMinute by_minute_;  // The minutes that have a record.
  std::size_t size_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace tarry::relay
