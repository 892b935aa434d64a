#include "storage/index.h"

#include <doctest/doctest.h>

#include "batches.h"
#include "tests/memory_disk.h"

TEST_SUITE_BEGIN("index");

namespace tarry::storage {
namespace {

std::unique_ptr<File> file_of(MemoryDisk& disk, const Buffer& bytes) {
  auto file = disk.open("index", {.write = true, .create = OpenOptions::Create::if_absent});
  REQUIRE(file);
  REQUIRE((*file)->pwrite(0, bytes));
  return std::move(*file);
}

TEST_CASE(
    "an entry of .index is the relative offset and the position, one of .timeindex the "
    "timestamp and the relative offset") {
  Buffer index, times;
  append_entry(index, 1000, IndexEntry{1042, 0x01020304});
  append_entry(times, 1000, TimeEntry{0x0102030405060708, 1042});
  CHECK(index == Buffer{0, 0, 0, 42, 1, 2, 3, 4});
  CHECK(times == Buffer{1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 42});
  CHECK(index_entry_at(index.data(), 1000) == IndexEntry{1042, 0x01020304});
  CHECK(time_entry_at(times.data(), 1000) == TimeEntry{0x0102030405060708, 1042});
}

TEST_CASE("the last entry at or before an offset is found among any number of entries") {
  for (const std::uint32_t entries : {0u, 1u, 2u, 3u, 511u, 512u, 513u, 1024u, 5000u}) {
    SeededRandom random(entries);
    MemoryDisk disk(random);
    Buffer bytes;
    for (std::uint32_t i = 0; i < entries; ++i)
      append_entry(bytes, 100, IndexEntry{100 + 3 * Offset{i} + 2, i * 10});
    const auto file = file_of(disk, bytes);
    for (Offset offset = 100; offset < 100 + 3 * Offset{entries} + 5; ++offset) {
      const auto found = find_entry(*file, 100, entries, offset);
      REQUIRE(found);
      const Offset which = (offset - 102 + 3) / 3 - 1;  // The entries are 102, 105, 108 ...
      if (offset < 102 || entries == 0) {
        REQUIRE(!found->has_value());
      } else {
        const Offset last = std::min<Offset>(which, Offset{entries} - 1);
        REQUIRE(**found == IndexEntry{102 + 3 * last, static_cast<std::uint32_t>(last * 10)});
      }
    }
  }
}

TEST_CASE("the last time entry below a timestamp is found among any number of entries") {
  for (const std::uint32_t entries : {0u, 1u, 2u, 341u, 342u, 2000u}) {
    SeededRandom random(entries);
    MemoryDisk disk(random);
    Buffer bytes;
    for (std::uint32_t i = 0; i < entries; ++i)
      append_entry(bytes, 7, TimeEntry{1000 + 2 * std::int64_t{i}, 7 + Offset{i}});
    const auto file = file_of(disk, bytes);
    for (std::int64_t time = 998; time < 1000 + 2 * std::int64_t{entries} + 3; ++time) {
      const auto found = find_time_entry(*file, 7, entries, time);
      REQUIRE(found);
      if (time <= 1000 || entries == 0) {
        REQUIRE(!found->has_value());
      } else {
        const auto last = std::min<std::int64_t>((time - 1001) / 2, std::int64_t{entries} - 1);
        REQUIRE(**found == TimeEntry{1000 + 2 * last, 7 + last});
      }
    }
  }
}

TEST_CASE("entries that are not there are an error, not zeros") {
  SeededRandom random(1);
  MemoryDisk disk(random);
  Buffer bytes;
  append_entry(bytes, 0, IndexEntry{1, 1});
  const auto file = file_of(disk, bytes);
  CHECK(read_index_entry(*file, 0, 1).error().code == Errc::corrupt);
  CHECK(find_entry(*file, 0, 2, 5).error().code == Errc::corrupt);
}

}  // namespace
}  // namespace tarry::storage

TEST_SUITE_END();
