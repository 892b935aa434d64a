#include "storage/producer_states.h"

#include <doctest/doctest.h>

#include <limits>

#include "scratch.h"
#include "storage/database.h"

namespace tarry::storage {
namespace {

using Append = ProducerStates::Append;
using Duplicate = ProducerStates::Duplicate;
using InvalidEpoch = ProducerStates::InvalidEpoch;
using OutOfOrder = ProducerStates::OutOfOrder;

constexpr ProducerId producer = 7;
constexpr std::int32_t last_of_all = std::numeric_limits<std::int32_t>::max();

template <typename T>
bool is(const ProducerStates::Verdict& verdict) {
  return std::holds_alternative<T>(verdict);
}

ProducerStates::Answered batch(std::int16_t epoch, std::int32_t first, std::int32_t count,
                               Offset base, std::int64_t at = 0) {
  return {epoch, first, sequence_after(first, count - 1), base, from_ms(at)};
}

// Ten records a batch: batch i has the sequences 10 i to 10 i + 9 and base offset 100 + 10 i.
void add_batches(ProducerStates& states, int from, int until, Lsn lsn = 1) {
  for (int i = from; i < until; ++i) states.add(producer, batch(0, 10 * i, 10, 100 + 10 * i), lsn);
}

Buffer header_of(ProducerId id, std::int16_t epoch, std::int32_t first, std::int32_t count,
                 Offset base) {
  Buffer out(61);
  store_be(out.data(), base);
  store_be(out.data() + 8, std::int32_t{61 - 12});
  store_be(out.data() + 23, count - 1);
  store_be(out.data() + 43, id);
  store_be(out.data() + 51, epoch);
  store_be(out.data() + 53, first);
  return out;
}

TEST_SUITE("producer states") {
  TEST_CASE("each of the last five batches is answered again with its own base offset") {
    ProducerStates states;
    add_batches(states, 0, 7);
    for (int i = 2; i < 7; ++i) {
      const auto verdict = states.check(producer, 0, 10 * i, 10);
      REQUIRE(is<Duplicate>(verdict));
      CHECK(std::get<Duplicate>(verdict).base_offset == 100 + 10 * i);
    }
    const auto sixth = states.check(producer, 0, 10, 10);
    REQUIRE(is<OutOfOrder>(sixth));
    CHECK(std::get<OutOfOrder>(sixth).expected == 70);
  }

  TEST_CASE("a batch that shares only its first sequence with a known one is not a duplicate") {
    ProducerStates states;
    add_batches(states, 0, 3);
    CHECK(is<OutOfOrder>(states.check(producer, 0, 20, 9)));
    CHECK(is<OutOfOrder>(states.check(producer, 0, 20, 11)));
  }

  TEST_CASE("a duplicate of a delayed batch is answered -n again") {
    ProducerStates states;
    states.add(producer, batch(0, 0, 3, -3), 50);
    const auto verdict = states.check(producer, 0, 0, 3);
    REQUIRE(is<Duplicate>(verdict));
    CHECK(std::get<Duplicate>(verdict).base_offset == -3);
  }

  TEST_CASE("a duplicate of a batch that is not durable says for which lsn to wait") {
    ProducerStates states;
    states.add(producer, batch(0, 0, 3, 12), 4711);
    const auto verdict = states.check(producer, 0, 0, 3);
    REQUIRE(is<Duplicate>(verdict));
    CHECK(std::get<Duplicate>(verdict).lsn == 4711);
  }

  TEST_CASE("an older epoch is refused, also for a batch that was known under it") {
    ProducerStates states;
    states.add(producer, batch(3, 0, 10, 100), 1);
    states.add(producer, batch(4, 0, 10, 110), 1);
    const auto verdict = states.check(producer, 3, 10, 10);
    REQUIRE(is<InvalidEpoch>(verdict));
    CHECK(std::get<InvalidEpoch>(verdict).current == 4);
    CHECK(is<InvalidEpoch>(states.check(producer, 3, 0, 10)));
  }

  TEST_CASE("a newer epoch begins with sequence 0 or is out of order") {
    ProducerStates states;
    add_batches(states, 0, 2);
    CHECK(is<OutOfOrder>(states.check(producer, 1, 20, 10)));
    CHECK(is<Append>(states.check(producer, 1, 0, 10)));
    states.add(producer, batch(1, 0, 10, 500), 1);
    CHECK(std::get<Duplicate>(states.check(producer, 1, 0, 10)).base_offset == 500);
    CHECK(is<Append>(states.check(producer, 1, 10, 1)));
  }

  TEST_CASE("within an epoch a batch follows the one before it without a gap") {
    ProducerStates states;
    add_batches(states, 0, 2);
    CHECK(is<Append>(states.check(producer, 0, 20, 1)));
    CHECK(is<OutOfOrder>(states.check(producer, 0, 21, 1)));
    CHECK(is<OutOfOrder>(states.check(producer, 0, 15, 10)));
  }

  TEST_CASE("sequence 0 follows 2147483647") {
    ProducerStates states;
    states.add(producer, batch(0, last_of_all - 9, 10, 100), 1);
    CHECK(is<Append>(states.check(producer, 0, 0, 10)));
    CHECK(is<OutOfOrder>(states.check(producer, 0, 1, 10)));
    states.add(producer, batch(0, 0, 10, 110), 1);
    CHECK(is<Append>(states.check(producer, 0, 10, 10)));
    CHECK(is<Duplicate>(states.check(producer, 0, last_of_all - 9, 10)));
  }

  TEST_CASE("a batch whose own sequences wrap is followed and found again") {
    ProducerStates states;
    states.add(producer, batch(0, last_of_all - 1, 5, 100), 1);  // Ends with sequence 2.
    CHECK(is<Append>(states.check(producer, 0, 3, 1)));
    CHECK(std::get<Duplicate>(states.check(producer, 0, last_of_all - 1, 5)).base_offset == 100);
  }

  TEST_CASE("an unknown producer may begin with any sequence") {
    ProducerStates states;
    CHECK(is<Append>(states.check(producer, 5, 123456, 10)));
    add_batches(states, 0, 1);
    CHECK(is<Append>(states.check(producer + 1, 5, 123456, 10)));
  }

  TEST_CASE("state expires by the wall clock of the last append and any sequence is taken then") {
    ProducerStates states({.max_producers = 10});
    states.add(producer, batch(0, 0, 10, 100, 5000), 1);
    states.add(producer + 1, batch(0, 0, 10, 110, 5500), 1);
    using std::chrono::milliseconds;
    // The setting may have changed since the last time.
    CHECK(states.expire(from_ms(6000), milliseconds(2000)) == 0);
    CHECK(states.expire(from_ms(5999), milliseconds(1000)) == 0);
    CHECK(states.expire(from_ms(6000), milliseconds(1000)) == 1);
    CHECK(is<Append>(states.check(producer, 0, 777, 1)));
    CHECK(is<OutOfOrder>(states.check(producer + 1, 0, 777, 1)));
  }

  TEST_CASE("with too many producers the least recently used one is dropped first") {
    ProducerStates states({.max_producers = 3});
    for (ProducerId id : {1, 2, 3, 1, 4}) {
      const std::int32_t first = id == 1 && states.size() == 3 ? 10 : 0;
      states.add(id, batch(0, first, 10, 0), 1);
    }
    CHECK(states.size() == 3);
    CHECK(is<Append>(states.check(2, 0, 555, 1)));  // Gone: anything goes.
    CHECK(is<OutOfOrder>(states.check(1, 0, 555, 1)));
    CHECK(is<OutOfOrder>(states.check(3, 0, 555, 1)));
  }

  TEST_CASE("a flood of producers that send once pushes out no producer that has sent more") {
    ProducerStates states({.max_producers = 100});
    for (ProducerId live = 0; live < 10; ++live) {
      states.add(live, batch(0, 0, 1, 100), 1);
      states.add(live, batch(0, 1, 1, 101), 1);
    }
    for (ProducerId flood = 1000; flood < 6000; ++flood) states.add(flood, batch(0, 0, 1, 7), 1);
    CHECK(states.size() == 100);
    for (ProducerId live = 0; live < 10; ++live) {
      CAPTURE(live);
      CHECK(is<Duplicate>(states.check(live, 0, 1, 1)));
    }
  }

  TEST_CASE(
      "a flood of producers that send many times pushes out none that has sent within a quarter of "
      "an hour, and then those that were idle for longer") {
    ProducerStates states({.max_producers = 100});
    constexpr std::int64_t minute = 60'000;
    for (ProducerId live = 0; live < 10; ++live) {
      states.add(live, batch(0, 0, 1, 100, 0), 1);
      states.add(live, batch(0, 1, 1, 101, 0), 1);
    }
    const auto flood = [&](ProducerId from, std::int64_t at) {
      for (ProducerId id = from; id < from + 5000; ++id)
        for (int i = 0; i < 6; ++i) states.add(id, batch(0, i, 1, 7, at), 1);
    };
    flood(1000, 14 * minute);
    CHECK(states.size() == 100);
    for (ProducerId live = 0; live < 10; ++live) {
      CAPTURE(live);
      CHECK(is<Duplicate>(states.check(live, 0, 1, 1)));
    }
    // One of them goes on, and one comes back while the flood lasts.
    states.add(3, batch(0, 2, 1, 102, 14 * minute), 1);
    flood(10'000, 16 * minute);
    CHECK(states.size() == 100);
    CHECK(is<Duplicate>(states.check(3, 0, 2, 1)));
    CHECK(is<Append>(states.check(4, 0, 555, 1)));
    // A restart keeps who is who.
    auto rows = states.changes(2);
    std::erase_if(rows, [](const auto& row) { return row.answers.empty(); });
    ProducerStates loaded({.max_producers = 100});
    loaded.restore(std::move(rows));
    CHECK(loaded.size() == 100);
    for (ProducerId id = 20'000; id < 25'000; ++id)
      for (int i = 0; i < 2; ++i) loaded.add(id, batch(0, i, 1, 7, 17 * minute), 1);
    CHECK(is<Duplicate>(loaded.check(3, 0, 2, 1)));
  }

  TEST_CASE("only durable answers are persisted, and the rest with the next checkpoint") {
    ScratchDirectory scratch;
    const TopicPartition partition{test_topic(1), 3};
    auto meta = Database::make(scratch.path("meta"));
    REQUIRE(meta.has_value());

    ProducerStates states;
    states.add(producer, batch(0, 0, 10, 100), 10);
    states.add(producer, batch(0, 10, 10, -10), 20);
    states.add(producer, batch(0, 20, 10, 110), 30);
    // Everything before lsn 30 is durable; the record at 30 is not.
    REQUIRE(save_producer_states(**meta, partition, states.changes(30)).has_value());
    CHECK(states.changed());

    ProducerStates loaded;
    auto rows = load_producer_states(**meta, partition);
    REQUIRE(rows.has_value());
    loaded.restore(*rows);
    CHECK(is<Append>(loaded.check(producer, 0, 20, 10)));
    CHECK(std::get<Duplicate>(loaded.check(producer, 0, 10, 10)).base_offset == -10);
    CHECK(std::get<Duplicate>(loaded.check(producer, 0, 10, 10)).lsn == 0);

    REQUIRE(save_producer_states(**meta, partition, states.changes(31)).has_value());
    CHECK_FALSE(states.changed());
    CHECK(states.changes(31).empty());
    ProducerStates again;
    again.restore(*load_producer_states(**meta, partition));
    CHECK(std::get<Duplicate>(again.check(producer, 0, 20, 10)).base_offset == 110);
  }

  TEST_CASE("five batches that are not durable do not push out what is to be persisted") {
    ProducerStates states;
    add_batches(states, 0, 5, 10);
    add_batches(states, 5, 10, 99);
    const auto rows = states.changes(50);
    REQUIRE(rows.size() == 1);
    REQUIRE(rows[0].answers.size() == 5);
    CHECK(rows[0].answers.front().base_offset == 100);
    CHECK(rows[0].answers.back().base_offset == 140);
  }

  TEST_CASE("an epoch that is not durable leaves the durable one in its row") {
    ProducerStates states;
    states.add(producer, batch(0, 0, 10, 100), 10);
    states.add(producer, batch(1, 0, 10, 110), 20);
    const auto rows = states.changes(20);
    REQUIRE(rows.size() == 1);
    REQUIRE(rows[0].answers.size() == 1);
    CHECK(rows[0].answers[0].epoch == 0);
  }

  TEST_CASE("rows of forgotten producers go, and those of a dropped topic too") {
    ScratchDirectory scratch;
    auto meta = Database::make(scratch.path("meta"));
    REQUIRE(meta.has_value());
    const TopicPartition one{test_topic(1), 0}, other{test_topic(2), 0};
    ProducerStates states({.max_producers = 10});
    states.add(1, batch(0, 0, 10, 100, 0), 1);
    states.add(2, batch(0, 0, 10, 100, 500), 1);
    const auto rows = states.changes(2);
    REQUIRE(save_producer_states(**meta, one, rows).has_value());
    REQUIRE(save_producer_states(**meta, other, rows).has_value());
    states.expire(from_ms(1000), std::chrono::milliseconds(1000));
    REQUIRE(save_producer_states(**meta, one, states.changes(2)).has_value());
    CHECK(load_producer_states(**meta, one)->size() == 1);
    CHECK(load_producer_states(**meta, other)->size() == 2);
    REQUIRE(drop_producer_states(**meta, other.topic).has_value());
    CHECK(load_producer_states(**meta, one)->size() == 1);
    CHECK(load_producer_states(**meta, other)->empty());
  }

  TEST_CASE("replaying batches that a row is ahead of changes nothing") {
    ProducerStates states;
    add_batches(states, 0, 8);
    const auto rows = states.changes(2);
    ProducerStates loaded;
    loaded.restore(rows);
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 10; ++i) loaded.replay(producer, batch(0, 10 * i, 10, 100 + 10 * i));
      CHECK(is<Append>(loaded.check(producer, 0, 100, 1)));
      for (int i = 5; i < 10; ++i) {
        CHECK(std::get<Duplicate>(loaded.check(producer, 0, 10 * i, 10)).base_offset ==
              100 + 10 * i);
      }
    }
    loaded.replay(producer, batch(1, 0, 10, 300));
    loaded.replay(producer, batch(0, 90, 10, 190));  // This batch is of the older epoch again.
    CHECK(is<Append>(loaded.check(producer, 1, 10, 1)));
  }

  TEST_CASE("replay reads the producer from every batch and passes over those without one") {
    ProducerStates states;
    Buffer batches;
    append_bytes(batches, header_of(producer, 2, last_of_all, 3, 40));
    append_bytes(batches, header_of(-1, -1, -1, 5, 43));
    append_bytes(batches, header_of(producer + 1, 0, 0, 1, 48));
    REQUIRE(states.replay_batches(batches, from_ms(5)).has_value());
    CHECK(states.size() == 2);
    CHECK(is<Append>(states.check(producer, 2, 2, 1)));
    CHECK(std::get<Duplicate>(states.check(producer + 1, 0, 0, 1)).base_offset == 48);
    batches.pop_back();
    const auto cut = states.replay_batches(batches, from_ms(5));
    REQUIRE_FALSE(cut.has_value());
    CHECK(cut.error().code == Errc::corrupt);
  }
}

}  // namespace
}  // namespace tarry::storage
