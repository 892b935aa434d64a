#include "storage/chunk.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "scratch.h"

namespace tarry::storage {
namespace {

constexpr std::int64_t chunk_hour_ms = 3'600'000;
const Bucket chunk_hour = bucket_of(BucketLevel::hour, from_ms(500'000 * chunk_hour_ms));

PendingView entry(Sequence sequence, std::int64_t after_ms, std::string_view record = "record") {
  PendingView out;
  out.key = {chunk_hour.start + std::chrono::milliseconds(after_ms), sequence};
  out.first = out.key.due;
  out.partition = {test_topic(1), 0};
  out.accepted = from_ms(1'000);
  out.record = as_bytes(record);
  return out;
}

Result<Chunk> again(const Chunk& chunk, const LiveEntries& live = {}) {
  return Chunk::parse(chunk.bucket(), SharedBytes(chunk.encode(live)));
}

// As brokers wrote it before there were principals.
Buffer in_version_1(const Buffer& chunk) {
  constexpr std::size_t header = 40, partition_bytes = 20;
  const auto partitions = load_be<std::uint32_t>(&chunk[36]);
  Buffer out(chunk.begin(), chunk.begin() + header);
  out[0] = 1;
  std::size_t at = header;
  for (std::uint32_t i = 0; i < partitions; ++i, at += partition_bytes + 4)
    append_bytes(out, Bytes(chunk).subspan(at, partition_bytes));
  append_bytes(out, Bytes(chunk).subspan(at));
  store_be(&out[4], crc32c(Bytes(out).subspan(8)));
  return out;
}

std::string text_of(const PendingView& view) {
  return std::to_string(to_ms(view.key.due)) + " " + std::to_string(view.key.sequence) + " " +
         std::to_string(to_ms(view.first)) + " " + view.partition.topic.text() + "-" +
         std::to_string(view.partition.partition) + " " + std::to_string(to_ms(view.accepted)) +
         " " + std::to_string(to_ms(view.expires)) + " by " + std::to_string(view.principal) + " " +
         std::string(view.id) + " " + std::string(as_text(view.record));
}

TEST_SUITE("chunk") {
  TEST_CASE("a bucket is found by its level and a due time, also before 1970") {
    CHECK(bucket_of(BucketLevel::minute, from_ms(60'000)).start == from_ms(60'000));
    CHECK(bucket_of(BucketLevel::minute, from_ms(119'999)).start == from_ms(60'000));
    CHECK(bucket_of(BucketLevel::hour, from_ms(-1)).start == from_ms(-chunk_hour_ms));
    CHECK(bucket_of(BucketLevel::hour, from_ms(-chunk_hour_ms)).start == from_ms(-chunk_hour_ms));
    for (BucketLevel level = BucketLevel::month; level != BucketLevel::run; level = finer(level)) {
      const Bucket bucket = bucket_of(level, from_ms(1'795'000'123'457));
      CHECK(bucket.holds(from_ms(1'795'000'123'457)));
      CHECK(bucket_of(finer(level), bucket.start).start == bucket.start);
      CHECK(bucket_of(finer(level), bucket.end()).start == bucket.end());
    }
  }

  TEST_CASE("every field of an entry comes back, whatever its value") {
    Chunk chunk(chunk_hour);
    std::vector<std::string> expected;
    Sequence sequence = 1;
    for (const WallTime odd : {from_ms(0), from_ms(-1), WallTime::min(), WallTime::max(),
                               from_ms(253'402'300'799'999)}) {
      PendingView view = entry(sequence, chunk_hour_ms - 1, std::string_view("a\0b", 3));
      sequence += 1'000'000'000'000;
      view.first = odd;
      view.accepted = odd;
      view.expires = odd;
      view.partition.partition = static_cast<PartitionIndex>(sequence % 7);
      view.id = "an id";
      view.principal = static_cast<PrincipalId>(odd.time_since_epoch().count());
      chunk.append(view);
      expected.push_back(text_of(view));
    }
    chunk.append(entry(std::numeric_limits<Sequence>::max(), 0, ""));
    expected.push_back(text_of(entry(std::numeric_limits<Sequence>::max(), 0, "")));
    const auto read = again(chunk);
    REQUIRE(read.has_value());
    REQUIRE(read->size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CHECK(text_of(chunk.at(i)) == expected[i]);
      CHECK(text_of(read->at(i)) == expected[i]);
    }
  }

  TEST_CASE("removed entries are left out, and the others are sorted by sequence number") {
    Chunk chunk(chunk_hour);
    for (const Sequence sequence : {5, 3, 9, 4}) chunk.append(entry(sequence, 10));
    const auto read = again(chunk, {true, true, false, true});
    REQUIRE(read.has_value());
    REQUIRE(read->size() == 3);
    CHECK(read->key_at(0).sequence == 3);
    CHECK(read->key_at(1).sequence == 4);
    CHECK(read->key_at(2).sequence == 5);
    CHECK(read->first() == 3);
    CHECK(read->last() == 5);
    CHECK(read->find(4) == 1);
    CHECK_FALSE(read->find(9).has_value());
    CHECK_FALSE(read->find(6).has_value());
    CHECK(chunk.find(9) == 2);
  }

  TEST_CASE("a chunk of which all is pending, in order, is written as it is entry by entry") {
    Chunk in_order(chunk_hour), shuffled(chunk_hour);
    for (const Sequence sequence : {3, 4, 9}) in_order.append(entry(sequence, 10));
    for (const Sequence sequence : {3, 9, 4}) shuffled.append(entry(sequence, 10));
    const LiveEntries all(3, true);
    const Buffer one_by_one = shuffled.encode(all);
    CHECK(in_order.encode(all) == one_by_one);
    CHECK(in_order.encode({}) == one_by_one);
    const auto read = again(in_order, all);
    REQUIRE(read.has_value());
    CHECK(read->size() == 3);
    CHECK(read->find(9) == 2);
  }

  TEST_CASE("a number is found wherever the gaps between the others are, and no other one is") {
    std::mt19937_64 random(7);
    for (const int spread : {1, 2, 1'000, 0}) {
      CAPTURE(spread);
      Chunk chunk(chunk_hour);
      std::vector<Sequence> numbers{3};
      for (int i = 0; i < 500; ++i) {
        // 0: each gap is larger than all numbers before it, up to the largest number.
        const Sequence gap = spread == 0 ? (i % 9 == 0 ? numbers.back() : 1)
                                         : 1 + random() % static_cast<unsigned>(spread);
        if (numbers.back() > std::numeric_limits<Sequence>::max() - gap) break;
        numbers.push_back(numbers.back() + gap);
      }
      for (const Sequence number : numbers) chunk.append(entry(number, 10));
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        CHECK(chunk.find(numbers[i]) == i);
        const bool is_next = i + 1 < numbers.size() && numbers[i + 1] == numbers[i] + 1;
        if (!is_next) CHECK_FALSE(chunk.find(numbers[i] + 1).has_value());
      }
      CHECK_FALSE(chunk.find(0).has_value());
    }
  }

  TEST_CASE("a chunk may have the keys between its first and last numbers and times, no others") {
    const auto key = [](Sequence sequence, std::int64_t after_ms) {
      return entry(sequence, after_ms).key;
    };
    Chunk chunk(chunk_hour);
    CHECK_FALSE(chunk.may_have(key(5, 20)));
    chunk.append(entry(5, 10));
    chunk.append(entry(3, 20));
    chunk.append(entry(9, 30));
    const auto look_at = [&key](const Chunk& one) {
      for (std::size_t i = 0; i < one.size(); ++i) CHECK(one.may_have(one.key_at(i)));
      CHECK(one.may_have(key(4, 25)));
      CHECK_FALSE(one.may_have(key(2, 20)));
      CHECK_FALSE(one.may_have(key(10, 20)));
      CHECK_FALSE(one.may_have(key(5, 9)));
      CHECK_FALSE(one.may_have(key(5, 31)));
    };
    look_at(chunk);
    const auto written = again(chunk);
    REQUIRE(written.has_value());
    look_at(*written);
  }

  TEST_CASE("numbers in any order are found while more come, and none costs more than it did") {
    Chunk chunk(chunk_hour);
    std::map<Sequence, std::size_t> places;
    std::mt19937_64 random(7);  // NOLINT(*-msc51-cpp): the same run each time.
    for (std::size_t i = 0; i < 500; ++i) {
      const Sequence sequence = 1 + random() % 300;
      chunk.append(entry(sequence, 10));
      places[sequence] = i;  // Of two the last one counts.
      const std::size_t bytes = chunk.memory_bytes();
      const Sequence asked = 1 + random() % 300;
      // Some places are never asked for until the end.
      if (i % 7 == 0) {
        const auto known = places.find(asked);
        const auto found = chunk.find(asked);
        REQUIRE(found.has_value() == (known != places.end()));
        if (found) REQUIRE(*found == known->second);
      }
      REQUIRE(chunk.memory_bytes() == bytes);
    }
    for (Sequence sequence = 1; sequence <= 300; ++sequence) {
      const auto known = places.find(sequence);
      const auto found = chunk.find(sequence);
      REQUIRE(found.has_value() == (known != places.end()));
      if (found) REQUIRE(*found == known->second);
    }
  }

  TEST_CASE("an entry of a hundred bytes costs no more than 15 more") {
    Chunk chunk(chunk_hour);
    const std::string body(100, 'b');
    std::size_t entries = 0;
    for (; !chunk.is_full(); ++entries)
      chunk.append(entry(1'000'000'000 + 37 * entries, static_cast<std::int64_t>(entries), body));
    CHECK(chunk.encode({}).size() <= entries * 115 + 60);
  }

  TEST_CASE("a full chunk takes little more memory than its entries") {
    for (const std::size_t size : {10, 100, 112, 1'000, 3'000}) {
      CAPTURE(size);
      const std::string record(size, 'r');
      Chunk chunk(chunk_hour);
      for (Sequence sequence = 1; !chunk.is_full(); ++sequence)
        chunk.append(entry(sequence, 10, record));
      const std::size_t places = 2 * chunk.size() * sizeof(std::uint32_t);
      CHECK(chunk.memory_bytes() <= Chunk::full_bytes + Chunk::full_bytes / 16 + places);
    }
    // One that is larger than a chunk alone takes what it needs.
    Chunk chunk(chunk_hour);
    chunk.append(entry(1, 10, std::string(3 * Chunk::full_bytes, 'r')));
    CHECK(chunk.memory_bytes() <= 3 * Chunk::full_bytes + 1'024);
  }

  TEST_CASE("a chunk of a thousand partitions finds all of them again") {
    Chunk chunk(chunk_hour);
    for (int i = 0; i < 3'000; ++i) {
      PendingView view = entry(static_cast<Sequence>(i), i);
      view.partition = {test_topic(static_cast<std::uint8_t>(i % 100)), i % 1'000};
      view.principal = static_cast<PrincipalId>(i / 1'500);
      chunk.append(view);
    }
    const auto read = again(chunk);
    REQUIRE(read.has_value());
    for (int i = 0; i < 3'000; ++i) {
      const auto found = read->find(static_cast<Sequence>(i));
      REQUIRE(found.has_value());
      CHECK(read->at(*found).partition ==
            TopicPartition{test_topic(static_cast<std::uint8_t>(i % 100)), i % 1'000});
      CHECK(read->at(*found).principal == static_cast<PrincipalId>(i / 1'500));
    }
  }

  TEST_CASE("a chunk of the version before is read, and its records are of nobody") {
    Chunk chunk(chunk_hour);
    std::vector<std::string> expected;
    const std::string record(20, 'r');
    for (int i = 0; i < 50; ++i) {
      PendingView view = entry(static_cast<Sequence>(i), i, record);
      view.partition.partition = i % 12;
      view.id = "an id";
      chunk.append(view);
      expected.push_back(text_of(view));
    }
    const Buffer old = in_version_1(chunk.encode({}));
    REQUIRE(old.size() == chunk.encode({}).size() - std::size_t{12} * 4);
    const auto read = Chunk::parse(chunk_hour, SharedBytes(old));
    REQUIRE(read.has_value());
    REQUIRE(read->size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(text_of(read->at(i)) == expected[i]);
    // Written again it has the version of today, and the same records.
    const auto twice = again(*read);
    REQUIRE(twice.has_value());
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(text_of(twice->at(i)) == expected[i]);
  }

  TEST_CASE("a record's principal adds nothing to its entry") {
    const auto size_with = [](PrincipalId principal) {
      Chunk chunk(chunk_hour);
      for (int i = 0; i < 1'000; ++i) {
        PendingView view = entry(static_cast<Sequence>(i), i);
        view.principal = principal;
        chunk.append(view);
      }
      return chunk.encode({}).size();
    };
    CHECK(size_with(9'999) == size_with(unknown_principal));
  }

  TEST_CASE("a chunk with any byte changed, or cut anywhere, is damage that names its bucket") {
    Chunk chunk(chunk_hour);
    for (Sequence sequence = 1; sequence < 4; ++sequence) chunk.append(entry(sequence, 10));
    const Buffer whole = chunk.encode({});
    for (std::size_t i = 0; i < whole.size(); ++i) {
      CAPTURE(i);
      Buffer changed = whole;
      changed[i] ^= 0x10;
      if (i == 1 || (i > 1 && i < 4)) continue;  // Not in the checksum: level (below), zeros.
      const auto read = Chunk::parse(chunk_hour, SharedBytes(changed));
      REQUIRE_FALSE(read.has_value());
      CHECK(read.error().message.contains(i == 0 ? "version" : "hour 20"));
      const auto cut = Chunk::parse(
          chunk_hour,
          SharedBytes(Buffer(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(i))));
      CHECK_FALSE(cut.has_value());
    }
    const auto other =
        Chunk::parse(bucket_of(BucketLevel::hour, chunk_hour.end()), SharedBytes(whole));
    REQUIRE_FALSE(other.has_value());
    CHECK(other.error().message.contains("another bucket"));
    CHECK_FALSE(
        Chunk::parse({BucketLevel::minute, chunk_hour.start}, SharedBytes(whole)).has_value());
  }

  TEST_CASE("bytes that nobody encoded are refused, though their checksum is right") {
    SeededRandom random(7);
    Chunk chunk(chunk_hour);
    for (Sequence sequence = 1; sequence < 40; ++sequence)
      chunk.append(entry(sequence, 10, std::string(sequence, 'x')));
    const Buffer whole = chunk.encode({});
    int read_all_the_same = 0;
    for (int i = 0; i < tries(5'000); ++i) {
      Buffer changed = whole;
      for (auto n = 1 + random.below(3); n > 0; --n)
        changed[8 + random.below(changed.size() - 8)] = static_cast<std::uint8_t>(random.u64());
      if (random.below(4) == 0) changed.resize(40 + random.below(changed.size() - 40));
      store_be(&changed[4], crc32c(Bytes(changed).subspan(8)));
      const auto read = Chunk::parse(chunk_hour, SharedBytes(changed));
      if (!read) continue;
      ++read_all_the_same;  // A body or a time that is another one; what counts is that it holds.
      for (std::size_t at = 0; at < read->size(); ++at)
        CHECK(chunk_hour.holds(read->at(at).key.due));
    }
    CHECK(read_all_the_same > 0);
  }
}

}  // namespace
}  // namespace tarry::storage
