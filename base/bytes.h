#pragma once

// Bytes: views of memory, owned memory, and shared memory, with the big-endian numbers that
// Kafka's formats are made of.
//
//   Bytes        a view; the caller sees to it that what it views lives on
//   Buffer       owned, grows
//   SharedBytes  a view that keeps alive what it views: batches in a log's tail and on their
//                way to a consumer are these, so that no byte is copied for a second reader

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tarry {

using Bytes = std::span<const std::uint8_t>;
using Buffer = std::vector<std::uint8_t>;

inline Bytes as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}
inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class SharedBytes {
 public:
  SharedBytes() = default;
  // Takes the buffer over.
  explicit SharedBytes(Buffer buffer) {
    auto owned = std::make_shared<const Buffer>(std::move(buffer));
    view_ = *owned;
    owner_ = std::move(owned);
  }
  // `view` lies in memory that `owner` keeps alive.
  SharedBytes(std::shared_ptr<const void> owner, Bytes view)
      : owner_(std::move(owner)), view_(view) {}

  Bytes view() const { return view_; }
  const std::uint8_t* data() const { return view_.data(); }
  std::size_t size() const { return view_.size(); }
  bool empty() const { return view_.empty(); }
  // So it can be given where Bytes are taken, which do not keep it alive.
  const std::uint8_t* begin() const { return view_.data(); }
  const std::uint8_t* end() const { return view_.data() + view_.size(); }
  // The same bytes, wherever they are.
  friend bool operator==(const SharedBytes& a, const SharedBytes& b) {
    return std::ranges::equal(a.view_, b.view_);
  }
  SharedBytes part(std::size_t from, std::size_t count) const {
    return {owner_, view_.subspan(from, count)};
  }

 private:
  std::shared_ptr<const void> owner_;
  Bytes view_;
};

// A copy of its own; of nothing it takes no memory.
inline SharedBytes shared_copy(Bytes bytes) {
  return bytes.empty() ? SharedBytes() : SharedBytes(Buffer(bytes.begin(), bytes.end()));
}

// Big-endian numbers at an address that need not be aligned.
template <typename T>
T load_be(const std::uint8_t* from) {
  static_assert(std::is_integral_v<T>);
  T value;
  std::memcpy(&value, from, sizeof value);
  if constexpr (sizeof(T) == 2)
    return static_cast<T>(__builtin_bswap16(static_cast<std::uint16_t>(value)));
  if constexpr (sizeof(T) == 4)
    return static_cast<T>(__builtin_bswap32(static_cast<std::uint32_t>(value)));
  if constexpr (sizeof(T) == 8)
    return static_cast<T>(__builtin_bswap64(static_cast<std::uint64_t>(value)));
  return value;
}

template <typename T>
void store_be(std::uint8_t* to, T value) {
  static_assert(std::is_integral_v<T>);
  if constexpr (sizeof(T) == 2)
    value = static_cast<T>(__builtin_bswap16(static_cast<std::uint16_t>(value)));
  if constexpr (sizeof(T) == 4)
    value = static_cast<T>(__builtin_bswap32(static_cast<std::uint32_t>(value)));
  if constexpr (sizeof(T) == 8)
    value = static_cast<T>(__builtin_bswap64(static_cast<std::uint64_t>(value)));
  std::memcpy(to, &value, sizeof value);
}

template <typename T>
void append_be(Buffer& to, T value) {
  const auto at = to.size();
  to.resize(at + sizeof(T));
  store_be(to.data() + at, value);
}

inline void append_bytes(Buffer& to, Bytes bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace tarry
