// A record's owner against its delivery: cancels, replacements, moves and "deliver now" come at any
// step of a delivery, and what they answer is so.
//
//   pending --- due --- handed over --- in the journal --- durable --- told
//      ^         ^          ^                 ^               ^         ^      one of them here
//
// TARRY_RACES=N: so many of them (1 000 otherwise).

#include <cstdlib>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

struct Races {
  explicit Races(std::uint64_t seed) : random(seed) {
    host.finds_at_once = false;
    // A record that is moved to the past is due before those being packed.
    host.checks_order = false;
  }

  enum class What { cancel, cancel_by_record, replace, move, deliver_now };
  struct Race {
    std::string value, id;
    What what = What::cancel;
    WallTime moved_to{};
    std::shared_ptr<std::optional<ControlOutcome>> cancelled;
    TestHost::Answer moved;
  };

  // One small step of what goes on, or some.
  void steps(std::uint64_t left) {
    for (; left > 0; --left) {
      switch (random.below(4)) {
        case 0:
          host.sync(1);
          break;
        case 1:
          host.background.step();
          break;
        case 2:
          host.turn(1);
          break;
        default:
          host.clock.pass(milliseconds{1});
      }
    }
  }

  void act(Race& race) {
    switch (race.what) {
      case What::cancel:
        race.cancelled = host.cancel(orders, race.id);
        break;
      case What::cancel_by_record:
        host.cancel_by_record(orders, race.id);
        break;
      case What::replace:
        host.schedule(orders, race.value + " again", "3", race.id);
        break;
      case What::move:
        race.moved_to = host.clock.wall() + milliseconds{random.below(6)};
        race.moved = host.move(orders, race.id, race.moved_to);
        break;
      case What::deliver_now:
        race.moved = host.deliver_now(orders, race.id);
        break;
    }
  }

  // Some records of a few milliseconds, each with its own race.
  void round() {
    std::vector<Race> races(1 + random.below(6));
    const auto from = host.log(orders).size();
    for (auto& race : races) {
      race.value = "v" + std::to_string(next++);
      race.id = "id" + std::to_string(next % 50);
      race.what = static_cast<What>(random.below(5));
      host.schedule(orders, race.value, std::to_string(1 + random.below(4)), race.id);
      if (random.below(3) == 0) steps(random.below(4));
    }
    if (random.below(4) != 0) host.sync();
    for (auto& race : races) {
      steps(random.below(10));
      act(race);
    }
    host.pass(milliseconds{20});
    std::map<std::string, std::pair<int, std::size_t>> seen;  // How often, and where last.
    for (std::size_t at = from; at < host.log(orders).size(); ++at) {
      auto& [times, last] = seen[host.log(orders)[at].value];
      ++times;
      last = at;
    }
    for (const auto& race : races) judge(race, seen);
    REQUIRE(host.pending().empty());
    count += races.size();
  }

  void judge(const Race& race, std::map<std::string, std::pair<int, std::size_t>>& seen) {
    CAPTURE(race.value);
    CAPTURE(static_cast<int>(race.what));
    const auto [times, at] = seen[race.value];
    CHECK(times <= 1);
    if (race.what == What::cancel) {
      REQUIRE(race.cancelled->has_value());
      CHECK((**race.cancelled == ControlOutcome::done) == (times == 0));
      if (times == 0) ++won;
    } else if (race.what == What::replace) {
      CHECK(seen[race.value + " again"].first == 1);
      if (times == 0) ++won;
    } else if (race.what == What::cancel_by_record) {
      if (times == 0) ++won;
    } else {
      CHECK(times == 1);
      REQUIRE(race.moved->has_value());
      const auto& told = **race.moved;
      if (!told || told->outcome != ControlOutcome::done) return;
      ++won;
      if (race.what == What::deliver_now) {
        CHECK(told->offset == static_cast<Offset>(at));
        return;
      }
      // A time that has passed when the move is made gives way to that moment.
      CHECK(told->due >= race.moved_to);
      CHECK(host.log(orders)[at].header("x-scheduled-for") == std::to_string(to_ms(told->due)));
    }
  }

  SeededRandom random;
  TestHost host;
  std::uint64_t next = 0;
  std::uint64_t count = 0;
  std::uint64_t won = 0;  // The owner was in time.
};

TEST_SUITE("race") {
  TEST_CASE("the answer to a request during a delivery turns out to be true") {
    set_log_level(LogLevel::off);
    const char* const given = std::getenv("TARRY_RACES");
    const char* const seed_given = std::getenv("TARRY_SEED");
    const auto races = given != nullptr ? std::strtoull(given, nullptr, 10)
                                        : static_cast<unsigned long long>(tries(1'000));
    std::uint64_t count = 0, won = 0;
    for (std::uint64_t seed = seed_given ? std::strtoull(seed_given, nullptr, 10) : 1;
         count < races; ++seed) {
      CAPTURE(seed);
      Races some(seed);
      while (some.count < 10'000 && count + some.count < races) some.round();
      count += some.count;
      won += some.won;
    }
    // Neither side always wins.
    CHECK(won * 10 > count);
    CHECK(won * 10 < count * 9);
    if (given != nullptr) MESSAGE(count << " races; the owner was in time in " << won);
    set_log_level(LogLevel::info);
  }
}

}  // namespace
}  // namespace tarry::delay
