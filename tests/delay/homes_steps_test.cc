#include "delay/homes.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "storage/bucket.h"
#include "storage/bucket_change.h"
#include "storage/chunk.h"

namespace tarry::delay {
namespace {

using storage::BucketLevel;

// An hour of chunks that are on disk and in memory; each has one record, a second after the last
// one.
struct ManyChunks {
  static constexpr std::size_t count = 100;
  static constexpr std::string_view body = "body";

  const storage::Bucket hour = storage::bucket_of(BucketLevel::hour, from_ms(1'795'000'000'000));
  Homes homes{std::size_t{1} << 30};

  ManyChunks() {
    homes.set_hours_end(hour.end());
    for (std::size_t i = 0; i < count; ++i) write(i);
  }
  storage::PendingKey key(std::size_t i) const {
    return {hour.start + std::chrono::seconds(i), static_cast<Sequence>(i + 1)};
  }
  // Records before number `i` are near.
  storage::PendingKey horizon(std::size_t i) const { return {key(i).due, 0}; }

  void write(std::size_t i) {
    storage::PendingView record{};
    record.key = key(i);
    record.first = record.key.due;
    record.accepted = hour.start;
    record.record = as_bytes(body);
    REQUIRE(homes.add(storage::JournalPlace{2 * i + 1}, record).has_value());
    Homes::Sealed sealed;
    Homes::Removals gone;
    const auto change = homes.seal(hour, storage::JournalPlace{2 * i + 2}, sealed, gone);
    REQUIRE(sealed.size() == 1);
    homes.written(change, sealed, {storage::ChunkKey{hour, record.key.sequence, change.place}});
  }
  // How many chunks left memory.
  std::size_t evict_all(const storage::PendingKey& horizon_now, std::size_t budget) {
    std::size_t left = 0, turns = 0;
    for (; homes.is_evicting(); ++turns) {
      REQUIRE(turns < 10 * count);
      const auto some = homes.evict(horizon_now, budget);
      CHECK(some.size() <= budget);
      left += some.size();
    }
    CHECK(turns >= count / budget);
    return left;
  }
};

TEST_SUITE("homes") {
  TEST_CASE("records of hours far apart go to their own, and none to one that was written later") {
    Homes homes{std::size_t{1} << 30};
    const auto near = storage::bucket_of(BucketLevel::hour, from_ms(1'795'000'000'000));
    const storage::Bucket far{BucketLevel::hour, near.start + 1'024 * span_of(BucketLevel::hour)};
    homes.set_hours_end(far.end());
    const auto add = [&](const storage::Bucket& to, Sequence sequence, std::uint64_t lsn) {
      storage::PendingView record{};
      record.key = {to.start, sequence};
      record.first = record.accepted = to.start;
      return homes.add(storage::JournalPlace{lsn}, record).has_value();
    };
    CHECK(add(near, 1, 1));
    CHECK(add(far, 2, 2));
    CHECK(add(near, 3, 3));
    CHECK(homes.find(near)->unwritten > 0);
    CHECK(homes.find(far)->unwritten > 0);
    CHECK(homes.read({near.start, 1}).has_value());
    CHECK(homes.read({far.start, 2}).has_value());
    CHECK(homes.read({near.start, 3}).has_value());
    homes.set_written(near, storage::JournalPlace{100});
    CHECK_FALSE(add(near, 4, 50));
    CHECK(add(far, 5, 51));
    CHECK(add(near, 6, 101));
  }

  TEST_CASE("chunks leave memory in steps, and none that has a near record") {
    for (const std::size_t budget : {std::size_t{1}, std::size_t{10}}) {
      CAPTURE(budget);
      ManyChunks many;
      CHECK(many.evict_all(many.horizon(40), budget) == 60);
      CHECK(many.homes.live() == 40);
      CHECK(many.homes.find(many.hour)->on_disk);
      for (std::size_t i = 0; i < ManyChunks::count; ++i) {
        CAPTURE(i);
        CHECK(many.homes.read(many.key(i)).has_value() == (i < 40));
      }
    }
  }

  TEST_CASE("records that are far again when the horizon moves back leave in steps, counted once") {
    ManyChunks many;
    CHECK(many.evict_all(many.horizon(100), 10) == 0);
    many.homes.pulled_back(many.horizon(100), many.horizon(40));
    CHECK(many.evict_all(many.horizon(40), 10) == 60);
    CHECK(many.homes.levels()[static_cast<std::size_t>(BucketLevel::hour)].came_back == 60);
  }

  TEST_CASE("chunks that ended while they were written leave in steps, and the disk with them") {
    constexpr std::size_t count = 50;
    const std::string body(storage::Chunk::full_bytes, 'b');  // Each is a chunk.
    const auto hour = storage::bucket_of(BucketLevel::hour, from_ms(1'795'000'000'000));
    Homes homes{std::size_t{1} << 30};
    homes.set_hours_end(hour.end());
    std::vector<storage::PendingKey> records;
    for (std::size_t i = 0; i < count; ++i) {
      storage::PendingView record{};
      record.key = {hour.start + std::chrono::seconds(i), static_cast<Sequence>(i + 1)};
      record.first = record.key.due;
      record.accepted = hour.start;
      record.record = as_bytes(body);
      records.push_back(record.key);
      REQUIRE(homes.add(storage::JournalPlace{i + 1}, record).has_value());
    }
    Homes::Sealed sealed;
    Homes::Removals gone;
    const auto change = homes.seal(hour, storage::JournalPlace{100}, sealed, gone);
    REQUIRE(sealed.size() == count);
    std::vector<storage::ChunkKey> keys;
    for (const auto& key : records) {
      REQUIRE(homes.remove(storage::JournalPlace{100 + key.sequence}, key, {}, {}, {}));
      keys.push_back({hour, key.sequence, change.place});
    }
    homes.written(change, sealed, keys);
    const storage::PendingKey horizon{hour.start, 0};
    const auto in_memory = [&] {
      return homes.levels()[static_cast<std::size_t>(BucketLevel::hour)].chunks;
    };
    CHECK(homes.live() == 0);
    CHECK(in_memory() == count);
    CHECK(homes.find(hour)->known_keys().size() == count);
    CHECK(homes.evict(horizon, 10).size() == 10);
    CHECK(in_memory() == count - 10);
    CHECK(homes.find(hour)->known_keys().size() == count);  // None may be loaded again.
    for (int turns = 0; homes.is_evicting(); ++turns) {
      REQUIRE(turns < 10);
      CHECK(homes.evict(horizon, 10).size() <= 10);
    }
    CHECK(in_memory() == 0);
    CHECK_FALSE(homes.find(hour)->may_have_records());
    Homes::Sealed nothing;
    Homes::Removals marks;
    CHECK(homes.seal(hour, storage::JournalPlace{1'000}, nothing, marks).dead.size() == count);
    CHECK(marks.of_chunks.empty());
    CHECK(marks.of_home.empty());
  }

  TEST_CASE("a chunk that ends while others leave memory hides none of them") {
    ManyChunks many;
    // The next one to be looked at is the first far one.
    CHECK(many.homes.evict(many.horizon(9), 9).empty());
    REQUIRE(many.homes.remove(storage::JournalPlace{1'000}, many.key(3), {}, {}, {}));
    CHECK(many.evict_all(many.horizon(9), 10) == 91);
    CHECK(!many.homes.read(many.key(9)).has_value());
    CHECK(many.homes.live() == 8);
  }
}

}  // namespace
}  // namespace tarry::delay
