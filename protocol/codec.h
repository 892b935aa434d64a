#pragma once

// Reader and Writer: Kafka's primitive types from bytes and to bytes.  The generated messages
// (protocol/messages/*.h) are made of calls to these two.
//
//   ordinary                                  flexible ("compact")
//   +--------+---------------+                +------------+---------------+
//   | i16 n  | n bytes       |  string        | uvarint n+1| n bytes       |  string
//   | i32 n  | n bytes       |  bytes         | uvarint n+1| n bytes       |  bytes
//   | i32 n  | n elements    |  array         | uvarint n+1| n elements    |  array
//   +--------+---------------+                +------------+---------------+
//     n = -1: null                              0: null
//                                             and at the end of each struct its tagged fields:
//                                             uvarint count, count x { uvarint tag, uvarint size,
//                                             size bytes }, tags ascending
//
// Numbers are big-endian; a uvarint has groups of 7 bits, the lowest first, at most 5 bytes.
//
// Invariants
//   - A Reader never reads past the end of what it was given.
//   - A length is compared with the remaining bytes before anything is allocated for it; a message
//     has at most max_elements array elements in all.
//   - The first error sticks: all later reads give zeros and empty things, so that decoders need
//     no checks of their own, and error() says what was wrong and at which byte.
//   - A Writer never copies the records it is given: it keeps them, between pieces of its own.
//
// Neither has a thread or a lock: each lives in one function call.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "protocol/error_code.h"

namespace tarry::protocol {

// A tool that asks for all partitions of a broker names 200 000; the bound keeps a request that is
// all empty structs from becoming gigabytes of vectors.
constexpr std::size_t max_elements = 1 << 18;
// Kafka's own messages have less than ten tagged fields, of some bytes each.
constexpr std::size_t max_tagged_fields = 64;
constexpr std::size_t max_tagged_field_size = 128 * 1024;
// Room made before the elements themselves have been seen.
constexpr std::size_t max_reserved_elements = 1024;

// Record batches in a response: pieces of the log, one after another, shared with it.
struct Records {
  std::vector<SharedBytes> pieces;
  bool null = false;  // Null is not the same as empty on the wire; then there are no pieces.

  std::size_t size() const {
    std::size_t sum = 0;
    for (const SharedBytes& piece : pieces) sum += piece.size();
    return sum;
  }
};

class Reader {
 public:
  explicit Reader(Bytes bytes)
      : begin_(bytes.data()), at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool ok() const { return problem_.what == nullptr; }
  std::size_t remaining() const { return static_cast<std::size_t>(end_ - at_); }
  std::size_t position() const { return static_cast<std::size_t>(at_ - begin_); }

  // The first error; only when !ok().
  Error error() const;
  // Succeeds when there was no error and every byte has been read.
  Result<> finish();

  template <typename T>
  void number(T& into) {
    static_assert(std::is_integral_v<T>);
    if (remaining() < sizeof(T)) [[unlikely]]
      return fail("a number of {} bytes", sizeof(T));
    into = load_be<T>(at_);
    at_ += sizeof(T);
  }
  void number(double& into) {
    std::uint64_t bits = 0;
    number(bits);
    into = std::bit_cast<double>(bits);
  }
  void number(ErrorCode& into) {
    std::int16_t value = 0;
    number(value);
    into = error_code_from(value);
  }
  void boolean(bool& into) {
    std::uint8_t value = 0;
    number(value);
    into = value != 0;
  }
  void uuid(TopicId& into) {
    if (remaining() < into.bytes.size()) [[unlikely]]
      return fail("an id of {} bytes", into.bytes.size());
    std::copy_n(at_, into.bytes.size(), into.bytes.begin());
    at_ += into.bytes.size();
  }
  std::uint32_t uvarint();

  // Text is std::string_view (a view of what is read) or std::string.
  template <typename Text>
  void string(bool compact, Text& into) {
    const auto bytes = counted(compact, 2, "a string of {} bytes");
    if (bytes) return void(into = as_text(*bytes));
    if (ok()) fail("null where a string is required", 0);
  }
  template <typename Text>
  void nullable_string(bool compact, std::optional<Text>& into) {
    const auto bytes = counted(compact, 2, "a string of {} bytes");
    if (bytes) into.emplace(as_text(*bytes));
  }
  // Blob is Bytes (a view of what is read) or Buffer.
  template <typename Blob>
  void bytes(bool compact, Blob& into) {
    const auto bytes = counted(compact, 4, "{} opaque bytes");
    if (bytes) return void(into = Blob(bytes->begin(), bytes->end()));
    if (ok()) fail("null where bytes are required", 0);
  }
  template <typename Blob>
  void nullable_bytes(bool compact, std::optional<Blob>& into) {
    const auto bytes = counted(compact, 4, "{} opaque bytes");
    if (bytes) into.emplace(bytes->begin(), bytes->end());
  }
  void nullable_records(bool compact, Records& into);  // Copies: only tools read responses.

  // `element_size`: how many bytes an element takes at the least, in any version.
  template <typename T, typename ReadElement>
  void array(bool compact, std::size_t element_size, std::vector<T>& into, ReadElement&& read) {
    const auto count = array_count(compact, element_size);
    if (count) return elements(*count, into, read);
    if (ok()) fail("null where an array is required", 0);
  }
  template <typename T, typename ReadElement>
  void nullable_array(bool compact, std::size_t element_size, std::optional<std::vector<T>>& into,
                      ReadElement&& read) {
    const auto count = array_count(compact, element_size);
    if (count) elements(*count, into.emplace(), read);
  }

  template <typename T, typename ReadStruct>
  void nullable_struct(std::optional<T>& into, ReadStruct&& read) {
    std::int8_t present = 0;
    number(present);
    if (present == 1) return read(into.emplace());
    if (present != -1 && ok())
      fail("{} as the mark of a struct, which is 1 (present) or -1 (null)", present);
  }

  // Calls read(tag) with this reader limited to that field's bytes; it reads them all and
  // returns true, or returns false for a tag that it does not know, which is passed over.
  template <typename ReadField>
  void tagged_fields(ReadField&& read) {
    const std::uint32_t count = uvarint();
    if (count > max_tagged_fields) return fail("{} tagged fields (the limit is 64)", count);
    std::int64_t previous = -1;
    for (std::uint32_t i = 0; i < count && ok(); ++i) {
      const std::uint32_t tag = uvarint();
      const std::uint32_t size = uvarint();
      if (!ok()) return;
      if (tag <= previous) return fail("tag {} after a tag that is not lower", tag);
      previous = tag;
      if (size > remaining()) return fail("a tagged field of {} bytes", size);
      if (size > max_tagged_field_size)
        return fail("a tagged field of {} bytes (the limit is 131072)", size);

      const std::uint8_t* const outer_end = end_;
      const std::uint8_t* const field_end = at_ + size;
      end_ = field_end;
      if (!read(tag)) at_ = field_end;
      if (ok() && at_ != field_end) fail("tagged field {} is longer than its contents", tag);
      if (!ok()) return;
      end_ = outer_end;
    }
  }
  void skip_tagged_fields() {
    tagged_fields([](std::uint32_t) { return false; });
  }

  // For decoders that find something wrong themselves.  `what` may hold one {} for `value`, and
  // has to live for ever.
  [[gnu::cold]] void fail(const char* what, std::int64_t value);
  [[gnu::cold]] void fail(const char* what, std::size_t value) {
    fail(what, static_cast<std::int64_t>(value));
  }
  template <typename T>
  requires std::is_integral_v<T>
  void fail(const char* what, T value) { fail(what, static_cast<std::int64_t>(value)); }

 private:
  struct Problem {
    const char* what = nullptr;  // Null: none.
    std::int64_t value = 0;
    std::size_t position = 0;
    std::size_t remaining = 0;
  };

  // The bytes behind a length, which is compact or `width` bytes wide.  Empty for null, and when
  // something is wrong: then `what` says it.
  std::optional<Bytes> counted(bool compact, int width, const char* what);
  std::optional<std::size_t> array_count(bool compact, std::size_t element_size);

  template <typename T, typename ReadElement>
  void elements(std::size_t count, std::vector<T>& into, ReadElement& read) {
    into.clear();
    into.reserve(std::min(count, max_reserved_elements));
    for (std::size_t i = 0; i < count && ok(); ++i) read(into.emplace_back());
  }

  const std::uint8_t* const begin_;
  const std::uint8_t* at_;
  const std::uint8_t* end_;  // at_ <= end_ always; equal to it once something is wrong.
  std::size_t elements_left_ = max_elements;
  Problem problem_;
};

// Writes one message, or a frame: what is small goes into one buffer of its own, and records stay
// where they are.
//
//   own buffer   [ header, fields ....... | ........ | .... ]
//                                         ^          ^
//   records                       [ shared ]   [ shared ]
//
// finish() gives it as pieces for one gather-write: fields, records, fields, records, fields.
class Writer {
 public:
  // `expected` bytes, records aside, are room for most answers.
  explicit Writer(std::size_t expected = 256);

  // Bytes written so far, records with them.
  std::size_t size() const { return own_size_ + shared_size_; }
  // The pieces in order, none of them empty.  The writer is empty after it.
  std::vector<SharedBytes> finish();
  // The same in one piece, records copied: for tools and tests.
  Buffer flatten();

  // Writes over four bytes that are there, `position` bytes from the start and before any
  // records: the length of a frame is known last and comes first.
  void overwrite_i32(std::size_t position, std::int32_t value);

  template <typename T>
  void number(T value) {
    static_assert(std::is_integral_v<T>);
    store_be(room(sizeof(T)), value);
  }
  void number(double value) { number(std::bit_cast<std::uint64_t>(value)); }
  void number(ErrorCode code) { number(to_int16(code)); }
  void boolean(bool value) { *room(1) = value ? 1 : 0; }
  void uuid(const TopicId& id) { raw(id.bytes); }
  void uvarint(std::uint32_t value);
  void raw(Bytes bytes) {
    if (!bytes.empty()) std::memcpy(room(bytes.size()), bytes.data(), bytes.size());
  }

  // A string whose length i16 cannot say is cut after 32767 bytes: it can only be a text of ours.
  void string(bool compact, std::string_view text);
  // Null is written as empty, for versions where null may not be.
  template <typename Text>
  void string(bool compact, const std::optional<Text>& text) {
    string(compact, text ? std::string_view(*text) : std::string_view());
  }
  template <typename Text>
  void nullable_string(bool compact, const std::optional<Text>& text) {
    if (text) return string(compact, std::string_view(*text));
    compact ? uvarint(0) : number(std::int16_t{-1});
  }
  void bytes(bool compact, Bytes bytes) {
    count(compact, bytes.size());
    raw(bytes);
  }
  template <typename Blob>
  void nullable_bytes(bool compact, const std::optional<Blob>& blob) {
    if (blob) return bytes(compact, Bytes(*blob));
    null(compact);
  }
  void nullable_records(bool compact, const Records& records);

  template <typename T, typename WriteElement>
  void array(bool compact, const std::vector<T>& elements, WriteElement&& write) {
    count(compact, elements.size());
    for (const T& element : elements) write(element);
  }
  // Null is written as empty, for versions where null may not be.
  template <typename T, typename WriteElement>
  void array(bool compact, const std::optional<std::vector<T>>& elements, WriteElement&& write) {
    if (elements) return array(compact, *elements, write);
    count(compact, 0);
  }
  template <typename T, typename WriteElement>
  void nullable_array(bool compact, const std::optional<std::vector<T>>& elements,
                      WriteElement&& write) {
    if (elements) return array(compact, *elements, write);
    null(compact);
  }
  template <typename T, typename WriteStruct>
  void nullable_struct(const std::optional<T>& value, WriteStruct&& write) {
    number(std::int8_t{value ? std::int8_t{1} : std::int8_t{-1}});
    if (value) write(*value);
  }

  // One tagged field, of which write() writes the inside; uvarint(count) came before the first.
  template <typename WriteField>
  void tagged_field(std::uint32_t tag, WriteField&& write) {
    uvarint(tag);
    const std::size_t from = own_size_;
    write();
    insert_uvarint(from, static_cast<std::uint32_t>(own_size_ - from));
  }

 private:
  struct Shared {
    std::size_t before;  // How many of our own bytes come before it.
    SharedBytes bytes;
  };

  std::uint8_t* room(std::size_t size) {
    if (capacity_ - own_size_ < size) [[unlikely]]
      grow(size);
    std::uint8_t* const to = own_.get() + own_size_;
    own_size_ += size;
    return to;
  }
  void grow(std::size_t size);
  void count(bool compact, std::size_t count);
  void null(bool compact) { compact ? uvarint(0) : number(std::int32_t{-1}); }
  void insert_uvarint(std::size_t position, std::uint32_t value);

  std::shared_ptr<std::uint8_t[]> own_;
  std::size_t capacity_;
  std::size_t own_size_ = 0;
  std::vector<Shared> shared_;  // Ascending by `before`.
  std::size_t shared_size_ = 0;
};

// The parts of decode_message() that are the same for all messages; `name` is the message's.
Error no_version_error(const char* name, int version);
Result<> finish_message(Reader& reader, const char* name, int version);

// Reads a whole message from the body of a frame; M is one of the generated structs.  M views bytes
// of `body`.
template <typename M>
Result<> decode_into(M& message, Bytes body, int version) {
  if (!M::has_version(version)) return std::unexpected(no_version_error(M::name, version));
  Reader reader(body);
  message.decode(reader, version);
  return finish_message(reader, M::name, version);
}
template <typename M>
Result<M> decode_message(Bytes body, int version) {
  M message;
  if (auto decoded = decode_into(message, body, version); !decoded)
    return std::unexpected(std::move(decoded.error()));
  return message;
}

}  // namespace tarry::protocol
