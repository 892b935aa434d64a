#include "delay/recurrence.h"

#include <doctest/doctest.h>

#include <random>
#include <set>

#include "base/time_text.h"
#include "delay/time_zones.h"
#include "tests/delay/zone_files.h"
#include "tests/given.h"

namespace tarry::delay {
namespace {

using namespace std::chrono;
using NextRun = Recurrence::NextRun;

const WallTime nine = moment("2026-11-23T09:00:00Z");  // A Monday.

Recurrence every(milliseconds period, Recurrence::End end = {}, WallTime first = nine) {
  return Recurrence(Recurrence::Every{period, first}, end, first);
}
Recurrence by_cron(std::string_view expression, std::string_view zone, WallTime first,
                   Recurrence::End end = {}) {
  return Recurrence(Recurrence::InZone{Cron::parse(expression).value(),
                                       TimeZones::of_system().find(zone).value()},
                    end, first);
}

// The deliveries if the engine runs from `since` on and looks at the clock at `until`.
std::vector<WallTime> deliveries(Recurrence recurrence, WallTime since, WallTime until,
                                 const MissedPolicy& policy = {}) {
  std::vector<WallTime> made;
  WallTime due = recurrence.run();
  while (due <= until) {
    const NextRun planned = recurrence.plan_run(due, since, policy);
    if (planned.deliver) made.push_back(*planned.deliver);
    if (!planned.next) break;
    CHECK(*planned.next > due);
    due = *planned.next;
    recurrence.take(planned);
  }
  return made;
}
std::vector<WallTime> hours_of_day(std::initializer_list<int> numbers) {
  std::vector<WallTime> times;
  for (const int number : numbers) times.push_back(floor<days>(nine) + hours{number});
  return times;
}

Buffer encoded(const Recurrence& recurrence) {
  Buffer bytes;
  recurrence.append_to(bytes);
  return bytes;
}
Result<Recurrence> decoded(Bytes bytes) {
  return Recurrence::parse(bytes, TimeZones::of_system());
}

TEST_SUITE("recurrence") {
  TEST_CASE("a period counts from its anchor: late runs do not move it") {
    Recurrence recurrence = every(minutes{15});
    for (int i = 0; i < 1'000; ++i) {
      CHECK(recurrence.run() == nine + i * minutes{15});
      // When it is delivered is no argument at all.
      const NextRun planned = recurrence.plan_run(recurrence.run(), WallTime::min(), {});
      CHECK(planned.deliver == nine + i * minutes{15});
      REQUIRE(planned.next == nine + (i + 1) * minutes{15});
      CHECK_FALSE(planned.left_out);
      recurrence.take(planned);
      CHECK(recurrence.delivered() == static_cast<std::uint64_t>(i + 1));
    }
  }

  TEST_CASE("a first run beside the series is followed by the next time of the series") {
    const Recurrence recurrence(Recurrence::Every{hours{1}, nine}, {}, nine + minutes{37});
    const NextRun planned = recurrence.plan_run(nine + minutes{37}, nine, {});
    CHECK(planned.deliver == nine + minutes{37});
    CHECK(planned.next == nine + hours{1});
  }

  TEST_CASE("cron runs at the times of its expression in its zone") {
    const auto recurrence =
        by_cron("0 9 * * MON-FRI", "Europe/Berlin", moment("2027-03-25T08:00:00Z"));
    CHECK(deliveries(recurrence, WallTime::min(), moment("2027-03-30T00:00:00Z")) ==
          std::vector{moment("2027-03-25T08:00:00Z"), moment("2027-03-26T08:00:00Z"),
                      moment("2027-03-29T07:00:00Z")});
  }

  TEST_CASE("x-count is the number of deliveries in all") {
    for (const std::uint64_t count : {1, 2, 10}) {
      Recurrence::End end;
      end.count = count;
      CHECK(deliveries(every(seconds{1}, end), WallTime::min(), nine + hours{1}).size() == count);
    }
  }

  TEST_CASE("a run at x-until is delivered, none after it") {
    Recurrence::End end;
    end.until = nine + hours{2};
    CHECK(deliveries(every(hours{1}, end), WallTime::min(), nine + hours{24}) ==
          hours_of_day({9, 10, 11}));
    end.until = nine + hours{2} - milliseconds{1};
    CHECK(deliveries(every(hours{1}, end), WallTime::min(), nine + hours{24}) ==
          hours_of_day({9, 10}));
    end.until = nine;
    CHECK(deliveries(every(hours{1}, end), WallTime::min(), nine + hours{24}) == hours_of_day({9}));
    end.until = nine + days{2};
    CHECK(deliveries(by_cron("@daily", "UTC", nine, end), WallTime::min(), nine + days{9}).size() ==
          3);
  }

  TEST_CASE("nothing is due after the year 9999") {
    const WallTime late = last_due - hours{1};
    const Recurrence hourly(Recurrence::Every{minutes{40}, late}, {}, late);
    CHECK(deliveries(hourly, WallTime::min(), WallTime::max()).size() == 2);
    CHECK(deliveries(by_cron("@hourly", "UTC", late), WallTime::min(), WallTime::max()).size() ==
          2);
  }
}

TEST_SUITE("missed runs") {
  TEST_CASE("the policy is once, all or skip, and nothing else") {
    CHECK(parse_missed_runs("once") == MissedRuns::once);
    CHECK(parse_missed_runs("all") == MissedRuns::all);
    CHECK(parse_missed_runs("skip") == MissedRuns::skip);
    const auto refused = parse_missed_runs("Once");
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == Errc::invalid);
    CHECK(refused.error().message ==
          "\"Once\" is not a policy for missed runs; write once, all or skip");
  }

  const MissedPolicy once{MissedRuns::once, 100}, skip{MissedRuns::skip, 100};
  MissedPolicy all(std::uint32_t max) {
    return {MissedRuns::all, max};
  }
  // Down from before 09:00, running again at 14:30.
  const WallTime back = nine + hours{5} + minutes{30};
  const WallTime evening = nine + hours{7};

  TEST_CASE("the policy once delivers the latest of the missed runs and continues") {
    CHECK(deliveries(every(hours{1}), back, evening, once) == hours_of_day({14, 15, 16}));
    CHECK(deliveries(by_cron("@hourly", "UTC", nine), back, evening, once) ==
          hours_of_day({14, 15, 16}));
    CHECK(every(hours{1}).plan_run(nine, back, once).left_out);
    // One alone is not left out.
    CHECK_FALSE(every(hours{6}).plan_run(nine, back, once).left_out);
    CHECK(deliveries(every(hours{6}), back, evening, once) == hours_of_day({9, 15}));
  }

  TEST_CASE("the policy all delivers each of them, in order of time") {
    CHECK(deliveries(every(hours{1}), back, evening, all(100)) ==
          hours_of_day({9, 10, 11, 12, 13, 14, 15, 16}));
    CHECK(deliveries(by_cron("@hourly", "UTC", nine), back, evening, all(100)) ==
          hours_of_day({9, 10, 11, 12, 13, 14, 15, 16}));
    CHECK_FALSE(every(hours{1}).plan_run(nine, back, all(100)).left_out);
    CHECK_FALSE(every(hours{1}).plan_run(nine, back, all(6)).left_out);
  }

  TEST_CASE("the policy all with a maximum delivers the latest of them") {
    for (const auto& recurrence : {every(hours{1}), by_cron("@hourly", "UTC", nine)}) {
      CHECK(deliveries(recurrence, back, evening, all(2)) == hours_of_day({13, 14, 15, 16}));
      CHECK(deliveries(recurrence, back, evening, all(1)) == hours_of_day({14, 15, 16}));
      CHECK(deliveries(recurrence, back, evening, all(5)) ==
            hours_of_day({10, 11, 12, 13, 14, 15, 16}));
      CHECK(recurrence.plan_run(nine, back, all(5)).left_out);
    }
  }

  TEST_CASE("the policy skip delivers none of them") {
    for (const auto& recurrence : {every(hours{1}), by_cron("@hourly", "UTC", nine)}) {
      CHECK(deliveries(recurrence, back, evening, skip) == hours_of_day({15, 16}));
      const NextRun planned = recurrence.plan_run(nine, back, skip);
      CHECK_FALSE(planned.deliver.has_value());
      CHECK(planned.left_out);
      CHECK(planned.next == nine + hours{6});
    }
  }

  TEST_CASE("a run at the moment when the engine began is not missed") {
    CHECK(deliveries(every(hours{1}), nine + hours{3}, evening, skip) ==
          hours_of_day({12, 13, 14, 15, 16}));
    CHECK(deliveries(every(hours{1}), nine, nine, skip) == hours_of_day({9}));
  }

  TEST_CASE("a run that becomes due while the engine runs is delivered, however late") {
    for (const auto& policy : {once, skip, all(1)})
      CHECK(deliveries(every(hours{1}), nine, evening, policy) ==
            hours_of_day({9, 10, 11, 12, 13, 14, 15, 16}));
  }

  TEST_CASE("x-count counts only deliveries, and x-until applies to missed runs too") {
    Recurrence::End three;
    three.count = 3;
    CHECK(deliveries(every(hours{1}, three), back, evening, once) == hours_of_day({14, 15, 16}));
    CHECK(deliveries(every(hours{1}, three), back, evening, skip) == hours_of_day({15, 16}));
    CHECK(deliveries(every(hours{1}, three), back, evening, all(100)) == hours_of_day({9, 10, 11}));
    Recurrence::End noon;
    noon.until = nine + hours{3};
    for (const auto& recurrence : {every(hours{1}, noon), by_cron("@hourly", "UTC", nine, noon)}) {
      CHECK(deliveries(recurrence, back, evening, once) == hours_of_day({12}));
      CHECK(deliveries(recurrence, back, evening, all(2)) == hours_of_day({11, 12}));
      // Nothing is left to wait for.
      const NextRun planned = recurrence.plan_run(nine, back, skip);
      CHECK_FALSE(planned.deliver.has_value());
      CHECK_FALSE(planned.next.has_value());
    }
  }

  TEST_CASE("a crash between two runs of all changes nothing but what was missed by then") {
    Recurrence recurrence = every(hours{1});
    const NextRun first = recurrence.plan_run(nine, back, all(3));
    CHECK(first.deliver == nine + hours{3});
    recurrence.take(first);
    const auto again = decoded(encoded(recurrence)).value();
    CHECK(deliveries(again, back, evening, all(3)) == hours_of_day({13, 14, 15, 16}));
    CHECK(deliveries(again, back + hours{1}, evening, all(3)) == hours_of_day({13, 14, 15, 16}));
    CHECK(deliveries(again, back + hours{2}, evening, all(3)) == hours_of_day({14, 15, 16}));
  }

  TEST_CASE("a run that was moved still is that run") {
    // Ahead of its time: it does not come again at its time.
    CHECK(every(hours{1}).plan_run(nine - minutes{50}, WallTime::min(), once).next ==
          nine + hours{1});
    // Behind others: they do not come all at once.
    CHECK(every(hours{1}).plan_run(nine + minutes{150}, WallTime::min(), once).next ==
          nine + hours{3});
    CHECK(every(hours{1}).plan_run(nine + minutes{150}, WallTime::min(), once).deliver ==
          nine + minutes{150});
    // Moved ahead to a time that was missed, while its own is still to come.
    const NextRun planned = every(hours{1}, {}, evening).plan_run(nine, back, skip);
    CHECK(planned.next == evening + hours{1});
  }

  TEST_CASE("years of missed runs cost no more than a few steps") {
    const WallTime later = moment("2999-01-01T00:00:00Z");
    const auto fast = every(Recurrence::min_period);
    CHECK(fast.plan_run(nine, later, once).deliver == later - milliseconds{100});
    CHECK(fast.plan_run(nine, later, all(1'000)).deliver == later - seconds{100});
    CHECK(fast.plan_run(nine, later, skip).next == later);
    const auto each_second = by_cron("* * * * * *", "Europe/Berlin", nine);
    CHECK(each_second.plan_run(nine, later, once).deliver == later - seconds{1});
    CHECK(each_second.plan_run(nine, later, all(1'000)).deliver == later - seconds{1'000});
    CHECK(each_second.plan_run(nine, later, skip).next == later);
    // Only these steps back are many, and it says so.
    CHECK(fast.plan_run(nine, later, all(1'000)).looked_at == 1);
    CHECK(each_second.plan_run(nine, later, once).looked_at == 1);
    CHECK(each_second.plan_run(nine, later, all(1'000)).looked_at == 1'000);
    CHECK(each_second.plan_run(nine, nine + seconds{4}, all(1'000)).looked_at <= 5);
    CHECK(each_second.plan_run(nine, nine, all(1'000)).looked_at == 0);
  }

  TEST_CASE("each policy delivers what a list of all runs says") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    SeededRandom random(seed);
    for (int i = 0; i < tries(3'000); ++i) {
      Recurrence::End end;
      if (random.below(2) == 0) end.count = random.below(30) + 1;
      if (random.below(2) == 0) end.until = nine + minutes{random.below(600)};
      const bool by_period = random.below(2) == 0;
      const auto step = static_cast<int>(random.below(30)) + 1;
      const auto recurrence =
          by_period ? every(minutes{step}, end)
                    : by_cron("*/" + std::to_string(step) + " * * * *", "Europe/Berlin", nine, end);
      const WallTime since = nine + seconds{random.below(20'000)};
      const WallTime until = since + seconds{random.below(20'000)};
      const MissedPolicy policy{static_cast<MissedRuns>(random.below(3)),
                                static_cast<std::uint32_t>(random.below(20)) + 1};

      std::vector<WallTime> missed, later;
      for (WallTime run = nine; run <= until && run <= end.until.value_or(run); run += minutes{1}) {
        const auto minute = (run - nine) / minutes{1};
        if ((by_period ? minute : minute % 60) % step == 0)
          (run < since ? missed : later).push_back(run);
      }
      const std::size_t kept = policy.runs == MissedRuns::all    ? policy.max
                               : policy.runs == MissedRuns::once ? 1
                                                                 : 0;
      if (missed.size() > kept)
        missed.erase(missed.begin(), missed.end() - static_cast<std::ptrdiff_t>(kept));
      std::vector<WallTime> expected = missed;
      expected.insert(expected.end(), later.begin(), later.end());
      if (end.count && expected.size() > *end.count) expected.resize(*end.count);
      REQUIRE(deliveries(recurrence, since, until, policy) == expected);
    }
  }
}

TEST_SUITE("stored recurrence") {
  std::vector<Recurrence> samples() {
    Recurrence::End count, until, both;
    both.count = count.count = 10;
    both.until = until.until = nine + days{900};
    std::vector<Recurrence> all;
    for (const auto& end : {Recurrence::End{}, count, until, both}) {
      all.push_back(every(minutes{15}, end));
      all.push_back(by_cron("0 9 * * MON-FRI", "Europe/Berlin", nine, end));
      all.push_back(by_cron("@daily", "UTC", nine, end));
      for (auto i = all.size() - 3, last = all.size(); i < last; ++i) {
        Recurrence used = all[i];
        for (int turns = 0; turns < 7; ++turns)
          used.take(used.plan_run(used.run(), WallTime::min(), {}));
        all.push_back(used);
      }
    }
    return all;
  }

  TEST_CASE("a stored recurrence is read back and continues as before") {
    for (const auto& recurrence : samples()) {
      const auto bytes = encoded(recurrence);
      CHECK(bytes.size() <= Recurrence::max_encoded_bytes);
      const auto again = decoded(bytes);
      REQUIRE(again.has_value());
      CHECK(encoded(*again) == bytes);
      CHECK(again->run() == recurrence.run());
      CHECK(again->delivered() == recurrence.delivered());
      CHECK(again->text() == recurrence.text());
      CHECK(again->upcoming(100) == recurrence.upcoming(100));
    }
  }

  TEST_CASE("the stored form is what its page says") {
    Recurrence::End end;
    end.until = from_ms(0x0102030405);
    end.count = 5;
    Recurrence recurrence(Recurrence::Every{seconds{1}, from_ms(16)}, end, from_ms(16));
    recurrence.take(recurrence.plan_run(from_ms(16), WallTime::min(), {}));
    CHECK(encoded(recurrence) == Buffer{1, 6,                                   // version, flags
                                        0, 0, 0, 0,    0,    0,    0,    1,     // delivered
                                        0, 0, 0, 0,    0,    0,    0x03, 0xf8,  // run
                                        0, 0, 0, 0,    0,    0,    0x03, 0xe8,  // period
                                        0, 0, 0, 0,    0,    0,    0,    0x10,  // anchor
                                        0, 0, 0, 0x01, 0x02, 0x03, 0x04, 0x05,  // until
                                        0, 0, 0, 0,    0,    0,    0,    5});   // count
    const Recurrence daily = by_cron("@daily", "UTC", from_ms(0));
    CHECK(encoded(daily) == Buffer{1, 1,                                // version, flags
                                   0, 0,   0,   0,   0,   0,   0,   0,  // delivered
                                   0, 0,   0,   0,   0,   0,   0,   0,  // run
                                   6, '@', 'd', 'a', 'i', 'l', 'y', 3, 'U', 'T', 'C'});
  }

  TEST_CASE("cut or changed bytes are refused, or are the form of another recurrence") {
    int refused = 0, others = 0;
    for (const auto& recurrence : samples()) {
      const auto whole = encoded(recurrence);
      for (std::size_t size = 0; size < whole.size(); ++size) {
        const auto cut = decoded(Bytes(whole).first(size));
        REQUIRE_FALSE(cut.has_value());
        CHECK(cut.error().code == Errc::corrupt);
      }
      Buffer longer = whole;
      longer.push_back(0);
      CHECK_FALSE(decoded(longer).has_value());
      for (std::size_t i = 0; i < whole.size(); ++i) {
        for (int bit = 0; bit < 8; ++bit) {
          Buffer damaged = whole;
          damaged[i] = static_cast<std::uint8_t>(damaged[i] ^ (1 << bit));
          const auto other = decoded(damaged);
          ++(other ? others : refused);
          // One recurrence has one form: nothing in it goes unread.
          if (other) {
            CHECK(encoded(*other) == damaged);
            other->plan_run(other->run(), nine, {MissedRuns::all, 3});
            other->upcoming(3);
          }
        }
      }
    }
    CHECK(refused > 1'000);
    CHECK(others > 1'000);
  }

  TEST_CASE("values that no recurrence has are refused") {
    const auto refused = [](std::size_t position, std::uint64_t value,
                            const Recurrence& recurrence) {
      Buffer bytes = encoded(recurrence);
      store_be(bytes.data() + position, value);
      const auto parsed = decoded(bytes);
      REQUIRE_FALSE(parsed.has_value());
      CHECK(parsed.error().code == Errc::corrupt);
    };
    Recurrence::End end;
    end.until = nine + days{1};
    end.count = 10;
    const auto some = every(minutes{15}, end);
    refused(2, 10, some);                                                  // delivered = count
    refused(2, ~std::uint64_t{0}, some);                                   //
    refused(10, static_cast<std::uint64_t>(to_ms(nine + days{2})), some);  // run behind until
    refused(10, ~std::uint64_t{0} >> 1, some);                             // run
    refused(10, std::uint64_t{1} << 63, some);                             //
    refused(10, static_cast<std::uint64_t>(to_ms(nine)) - 1, some);        // run before its anchor
    refused(18, 99, some);                                                 // period
    refused(18, 0, some);                                                  //
    refused(18, ~std::uint64_t{0}, some);                                  //
    refused(18, ~std::uint64_t{0} >> 1, some);                             //
    refused(26, std::uint64_t{1} << 63, some);                             // anchor
    refused(34, ~std::uint64_t{0} >> 1, some);                             // until
    refused(42, 0, some);                                                  // count
  }

  TEST_CASE("another version, and a zone that is not there any more, are told apart from damage") {
    Buffer bytes = encoded(by_cron("@daily", "Europe/Berlin", nine));
    const auto gone = Recurrence::parse(bytes, TimeZones("/nonexistent"));
    REQUIRE_FALSE(gone.has_value());
    CHECK(gone.error().code == Errc::not_found);
    CHECK(gone.error().message.find("Europe/Berlin") != std::string::npos);
    bytes[0] = 2;
    CHECK(decoded(bytes).error().code == Errc::unsupported);
    CHECK(decoded(bytes).error().message ==
          "a stored recurrence has version 2; this program knows version 1");
  }

  TEST_CASE("its text says how often, where, how many are left and until when") {
    Recurrence::End end;
    CHECK(every(minutes{15}).text() == "every 15m");
    CHECK(every(milliseconds{5'400'500}).text() == "every 1h30m500ms");
    end.count = 10;
    end.until = moment("2027-01-01T00:00:00Z");
    Recurrence recurrence = by_cron("0  9 * * MON-FRI", "Europe/Berlin", nine, end);
    for (int i = 0; i < 7; ++i)
      recurrence.take(recurrence.plan_run(recurrence.run(), WallTime::min(), {}));
    CHECK(recurrence.text() ==
          "cron 0 9 * * MON-FRI Europe/Berlin, 3 of 10 left, until 2027-01-01T00:00:00.000Z");
    CHECK(by_cron("@daily", "UTC", nine).text() == "cron @daily UTC");
  }

  TEST_CASE("the upcoming runs end where the recurrence does") {
    Recurrence::End end;
    end.count = 3;
    CHECK(every(hours{1}, end).upcoming(10) == hours_of_day({10, 11}));
    end.count = 1;
    CHECK(every(hours{1}, end).upcoming(10).empty());
    CHECK(every(hours{1}).upcoming(3) == hours_of_day({10, 11, 12}));
    end = {};
    end.until = nine + minutes{61};
    CHECK(every(hours{1}, end).upcoming(10) == hours_of_day({10}));
  }
}

}  // namespace
}  // namespace tarry::delay
