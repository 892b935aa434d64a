#include "storage/index.h"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/core.h>

#include "base/assert.h"

namespace tarry::storage {
namespace {

std::int32_t relative(Offset offset, Offset base) {
  const Offset difference = offset - base;
  TARRY_ASSERT(difference >= 0 && difference <= std::numeric_limits<std::int32_t>::max(),
               "a segment's offsets fit its index");
  return static_cast<std::int32_t>(difference);
}

// `count` entries from `first` on, as bytes; all of them must be there.
Result<> read_entries(const File& file, std::size_t entry_bytes, std::uint32_t first,
                      std::span<std::uint8_t> into) {
  const auto got = file.pread(std::uint64_t{first} * entry_bytes, into);
  if (!got) return std::unexpected(got.error());
  if (*got < into.size()) {
    return fail(Errc::corrupt, fmt::format("{}: entry {} and {} bytes after it are missing",
                                           file.path(), first, into.size()));
  }
  return {};
}

// The last of `entries` entries for which `counts` is true; it is true for a first part of them.
template <typename Entry, typename Decode, typename Counts>
Result<std::optional<Entry>> find_last(const File& file, std::size_t entry_bytes,
                                       std::uint32_t entries, Decode decode, Counts counts) {
  // One page: the last steps of the search are a scan over a single read.
  std::array<std::uint8_t, 4096> memory;
  const auto fit = static_cast<std::uint32_t>(memory.size() / entry_bytes);

  std::uint32_t low = 0, high = entries;  // The last entry that counts lies between these two.
  while (high - low > fit) {
    const std::uint32_t middle = low + (high - low) / 2;
    const auto one = std::span(memory).first(entry_bytes);
    if (const auto read = read_entries(file, entry_bytes, middle, one); !read)
      return std::unexpected(read.error());
    // Keeps `middle` in the range, as it may be the last that counts.
    if (counts(decode(memory.data()))) {
      low = middle;
    } else {
      high = middle;
    }
  }

  const auto rest = std::span(memory).first((high - low) * entry_bytes);
  if (const auto read = read_entries(file, entry_bytes, low, rest); !read)
    return std::unexpected(read.error());
  std::optional<Entry> found;
  for (std::size_t at = 0; at < rest.size(); at += entry_bytes) {
    const Entry entry = decode(rest.data() + at);
    if (!counts(entry)) break;
    found = entry;
  }
  return found;
}

}  // namespace

void append_entry(Buffer& to, Offset base, const IndexEntry& entry) {
  append_be(to, relative(entry.offset, base));
  append_be(to, entry.position);
}

void append_entry(Buffer& to, Offset base, const TimeEntry& entry) {
  append_be(to, entry.timestamp);
  append_be(to, relative(entry.offset, base));
}

IndexEntry index_entry_at(const std::uint8_t* bytes, Offset base) {
  return {base + load_be<std::int32_t>(bytes), load_be<std::uint32_t>(bytes + 4)};
}

TimeEntry time_entry_at(const std::uint8_t* bytes, Offset base) {
  return {load_be<std::int64_t>(bytes), base + load_be<std::int32_t>(bytes + 8)};
}

Result<IndexEntry> read_index_entry(const File& file, Offset base, std::uint32_t number) {
  std::array<std::uint8_t, index_entry_bytes> bytes;
  if (const auto read = read_entries(file, index_entry_bytes, number, bytes); !read)
    return std::unexpected(read.error());
  return index_entry_at(bytes.data(), base);
}

Result<TimeEntry> read_time_entry(const File& file, Offset base, std::uint32_t number) {
  std::array<std::uint8_t, time_entry_bytes> bytes;
  if (const auto read = read_entries(file, time_entry_bytes, number, bytes); !read)
    return std::unexpected(read.error());
  return time_entry_at(bytes.data(), base);
}

Result<std::optional<IndexEntry>> find_entry(const File& file, Offset base, std::uint32_t entries,
                                             Offset offset) {
  return find_last<IndexEntry>(
      file, index_entry_bytes, entries,
      [base](const std::uint8_t* bytes) { return index_entry_at(bytes, base); },
      [offset](const IndexEntry& entry) { return entry.offset <= offset; });
}

Result<std::optional<TimeEntry>> find_time_entry(const File& file, Offset base,
                                                 std::uint32_t entries, std::int64_t timestamp) {
  return find_last<TimeEntry>(
      file, time_entry_bytes, entries,
      [base](const std::uint8_t* bytes) { return time_entry_at(bytes, base); },
      [timestamp](const TimeEntry& entry) { return entry.timestamp < timestamp; });
}

}  // namespace tarry::storage
