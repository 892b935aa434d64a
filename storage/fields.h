#pragma once

// Fields: big-endian numbers and names one after the other, as the journal's operations and the
// databases' keys and values have them.
//
//   put(out, partition), put(out, due), put_short(out, id)
//   Fields fields(bytes): fields.partition(), fields.time(), fields.short_text()

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"

namespace tarry::storage {

// Past the end of what it reads, everything is zero and good() is false.
class Fields {
 public:
  explicit Fields(Bytes bytes) : left_(bytes) {}

  template <typename T>
  T number() {
    const Bytes bytes = take(sizeof(T));
    return bytes.empty() ? T{} : load_be<T>(bytes.data());
  }
  TopicId topic() {
    TopicId id;
    const Bytes bytes = take(id.bytes.size());
    if (!bytes.empty()) std::memcpy(id.bytes.data(), bytes.data(), bytes.size());
    return id;
  }
  TopicPartition partition() {
    const TopicId id = topic();
    return {id, number<PartitionIndex>()};
  }
  WallTime time() { return from_ms(number<std::int64_t>()); }
  std::string_view short_text() { return as_text(take(number<std::uint16_t>())); }
  Bytes take(std::size_t count) {
    if (count > left_.size()) {
      whole_ = false;
      left_ = {};
      return {};
    }
    const Bytes taken = left_.first(count);
    left_ = left_.subspan(count);
    return taken;
  }
  Bytes rest() { return take(left_.size()); }

  bool at_end() const { return left_.empty(); }
  // Nothing was missing so far.  A loop over a count asks it, since the count may be damaged.
  bool whole() const { return whole_; }
  // Nothing was missing, and nothing is left over.
  bool good() const { return whole_ && left_.empty(); }

 private:
  Bytes left_;
  bool whole_ = true;
};

inline void put(Buffer& out, const TopicId& topic) {
  append_bytes(out, topic.bytes);
}
inline void put(Buffer& out, const TopicPartition& partition) {
  put(out, partition.topic);
  append_be(out, partition.partition);
}
inline void put(Buffer& out, WallTime time) {
  append_be(out, to_ms(time));
}
inline void put_short(Buffer& out, std::string_view text) {
  TARRY_ASSERT(text.size() <= 0xffff, "names are checked before they are kept");
  append_be(out, static_cast<std::uint16_t>(text.size()));
  append_bytes(out, as_bytes(text));
}

}  // namespace tarry::storage
