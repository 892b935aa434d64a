#include "protocol/codec.h"

#include <limits>

#include <fmt/core.h>

namespace tarry::protocol {

void Reader::fail(const char* what, std::int64_t value) {
  // The first error stays: the others only follow from it.
  if (!ok()) return;
  problem_ = {what, value, position(), remaining()};
  // All later reads find nothing left, so decoders need no checks of their own.
  at_ = end_;
}

Error Reader::error() const {
  TARRY_ASSERT(!ok(), "error() is called only after a failed read");
  return {Errc::corrupt, fmt::format("{} at byte {}, where {} bytes are left",
                                     fmt::format(fmt::runtime(problem_.what), problem_.value),
                                     problem_.position, problem_.remaining)};
}

Result<> Reader::finish() {
  if (ok() && remaining() > 0) fail("{} bytes after the end of the message", remaining());
  if (!ok()) return std::unexpected(error());
  return {};
}

std::uint32_t Reader::uvarint() {
  std::uint32_t value = 0;
  for (int shift = 0; shift < 35; shift += 7) {
    std::uint8_t byte = 0;
    number(byte);
    if (!ok()) return 0;
    // The fifth byte has room for the last four of 32 bits.
    if (shift == 28 && byte > 0x0f) break;
    value |= static_cast<std::uint32_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  fail("a varint of more than 32 bits", 0);
  return 0;
}

std::optional<Bytes> Reader::counted(bool compact, int width, const char* what) {
  std::int64_t count = -1;
  if (compact) {
    // A compact length is one more than it says, and 0 is null.
    count = std::int64_t{uvarint()} - 1;
  } else if (width == 2) {
    std::int16_t narrow = -1;
    number(narrow);
    count = narrow;
  } else {
    std::int32_t wide = -1;
    number(wide);
    count = wide;
  }
  if (!ok() || count == -1) return std::nullopt;
  // A compact string's length could say more, but is bounded too: as in Kafka, and nobody has to
  // bound the work that a name makes.
  constexpr std::int64_t max_string_bytes = 32'767;
  if (width == 2 && count > max_string_bytes)
    return fail("a string of {} bytes (the limit is 32767)", count), std::nullopt;
  if (count < 0 || static_cast<std::uint64_t>(count) > remaining())
    return fail(what, count), std::nullopt;
  const Bytes found(at_, static_cast<std::size_t>(count));
  at_ += count;
  return found;
}

std::optional<std::size_t> Reader::array_count(bool compact, std::size_t element_size) {
  std::int64_t count = -1;
  if (compact) {
    count = std::int64_t{uvarint()} - 1;
  } else {
    std::int32_t wide = -1;
    number(wide);
    count = wide;
  }
  if (!ok() || count == -1) return std::nullopt;
  // No element is shorter than element_size, so a count that cannot be true takes no memory.
  if (count < 0 || static_cast<std::uint64_t>(count) > remaining() / element_size)
    return fail("an array of {} elements", count), std::nullopt;
  const auto elements = static_cast<std::size_t>(count);
  static_assert(max_elements == 262144, "the message below says it");
  // Counted over the whole message, because arrays lie in arrays.
  if (elements > elements_left_)
    return fail("an array of {} elements (the limit is 262144 in one message)", count),
           std::nullopt;
  elements_left_ -= elements;
  return elements;
}

void Reader::nullable_records(bool compact, Records& into) {
  std::optional<Buffer> copy;
  nullable_bytes(compact, copy);
  into.pieces.clear();
  into.null = !copy;
  if (copy && !copy->empty()) into.pieces.emplace_back(std::move(*copy));
}

Writer::Writer(std::size_t expected)
    : own_(std::make_shared_for_overwrite<std::uint8_t[]>(expected)), capacity_(expected) {}

void Writer::grow(std::size_t size) {
  const std::size_t capacity = std::max(own_size_ + size, capacity_ * 2);
  auto larger = std::make_shared_for_overwrite<std::uint8_t[]>(capacity);
  if (own_size_ > 0) std::memcpy(larger.get(), own_.get(), own_size_);
  own_ = std::move(larger);
  capacity_ = capacity;
}

std::vector<SharedBytes> Writer::finish() {
  std::vector<SharedBytes> pieces;
  pieces.reserve(2 * shared_.size() + 1);
  std::size_t from = 0;
  const auto own_up_to = [&](std::size_t to) {
    if (to > from) pieces.emplace_back(own_, Bytes(own_.get() + from, to - from));
    from = to;
  };
  for (Shared& shared : shared_) {
    // A stretch of our own ends where records were put in.
    own_up_to(shared.before);
    pieces.push_back(std::move(shared.bytes));
  }
  own_up_to(own_size_);
  // The pieces keep the memory from here on.
  own_.reset();
  shared_.clear();
  capacity_ = own_size_ = shared_size_ = 0;
  return pieces;
}

Buffer Writer::flatten() {
  Buffer flat;
  flat.reserve(size());
  for (const SharedBytes& piece : finish()) append_bytes(flat, piece.view());
  return flat;
}

void Writer::overwrite_i32(std::size_t position, std::int32_t value) {
  TARRY_ASSERT(position + 4 <= own_size_, "only written bytes can be overwritten");
  TARRY_ASSERT(shared_.empty() || shared_.front().before >= position + 4,
               "a position after the records is not in this buffer");
  store_be(own_.get() + position, value);
}

void Writer::uvarint(std::uint32_t value) {
  while (value >= 0x80) {
    *room(1) = static_cast<std::uint8_t>(value | 0x80);
    value >>= 7;
  }
  *room(1) = static_cast<std::uint8_t>(value);
}

void Writer::insert_uvarint(std::size_t position, std::uint32_t value) {
  TARRY_ASSERT(shared_.empty() || shared_.back().before <= position,
               "a tagged field holds no records");
  // The size stands before the field and is known after it, and its own width depends on it.
  int width = 1;
  for (std::uint32_t rest = value; rest >= 0x80; rest >>= 7) ++width;
  const std::size_t moved = own_size_ - position;
  room(static_cast<std::size_t>(width));
  std::memmove(own_.get() + position + width, own_.get() + position, moved);
  const std::size_t end = own_size_;
  own_size_ = position;
  uvarint(value);
  own_size_ = end;
}

void Writer::count(bool compact, std::size_t count) {
  TARRY_ASSERT(count < std::numeric_limits<std::int32_t>::max(), "a length fits 31 bits");
  // 0 is taken: it stands for null.
  if (compact) return uvarint(static_cast<std::uint32_t>(count) + 1);
  number(static_cast<std::int32_t>(count));
}

void Writer::string(bool compact, std::string_view text) {
  if (compact) {
    count(true, text.size());
  } else {
    // Only a text of ours can be longer.
    text = text.substr(0, std::numeric_limits<std::int16_t>::max());
    number(static_cast<std::int16_t>(text.size()));
  }
  raw(as_bytes(text));
}

void Writer::nullable_records(bool compact, const Records& records) {
  if (records.null) return null(compact);
  count(compact, records.size());
  for (const SharedBytes& piece : records.pieces) {
    if (piece.empty()) continue;
    shared_.push_back({own_size_, piece});
    shared_size_ += piece.size();
  }
}

Error no_version_error(const char* name, int version) {
  return {Errc::unsupported, fmt::format("{} has no version {}", name, version)};
}

Result<> finish_message(Reader& reader, const char* name, int version) {
  const auto finished = reader.finish();
  if (finished) return {};
  const Error& error = finished.error();
  return tarry::fail(error.code, fmt::format("{} version {}: {}", name, version, error.message));
}

}  // namespace tarry::protocol
