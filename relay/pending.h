#pragma once

// Pending: one pending record of a source partition, and its row in the state topic.
//
//   key    the handle: @orders.delayed-3-1047, its place in the source
//   value  0  version  u8 = 1
//          1  flags    u8   1: plain, it has no schedule and leaves as it came
//          2  due      i64  ms; big-endian
//         10  expires  i64  ms; the largest number: never
//         18  id       size u16, bytes; empty: none
//             target   size u16, bytes; the topic that it goes to
//             body          delay/pending_record.h: timestamp, recurrence, key, value, headers
//
// PendingRecords: those of one source partition, in memory, by offset, by (due, offset) and by id.
// No two have the same id.  How many are due in each minute is kept, so that nobody has to look at
// all of them to count them.

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "relay/cluster.h"

namespace tarry::relay {

struct Pending {
  WallTime due{};
  WallTime expires{};
  bool is_plain = false;
  std::string id;
  std::string target;
  Buffer body;

  // Its memory, with its places in the maps.
  std::size_t bytes() const {
    constexpr std::size_t places = 410;
    return places + 2 * id.size() + target.size() + body.size();
  }
};

std::string handle_of(const Source& source, Offset offset);
// Empty: it is no handle of this partition.
std::optional<Offset> offset_in_handle(const Source& source, std::string_view handle);

Buffer encode_row(const Pending& record);
// Errc::corrupt or unsupported for other bytes.
Result<Pending> decode_row(Bytes bytes);

class PendingRecords {
 public:
  using ByDue = std::set<std::pair<WallTime, Offset>>;
  using ByMinute = std::map<std::chrono::sys_time<std::chrono::minutes>, std::size_t>;

  void put(Offset offset, Pending record);
  void erase(Offset offset);
  void clear();

  const Pending* find(Offset offset) const;
  std::optional<Offset> find_id(const std::string& id) const;
  const ByDue& by_due() const { return by_due_; }
  const ByMinute& by_minute() const { return by_minute_; }
  std::size_t size() const { return records_.size(); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::unordered_map<Offset, Pending> records_;
  ByDue by_due_;
  ByMinute by_minute_;  // Those with a record.
  std::unordered_map<std::string, Offset> by_id_;
  std::size_t bytes_ = 0;
};

}  // namespace tarry::relay
