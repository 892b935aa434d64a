#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include "base/log.h"
#include "relay/held_targets.h"

namespace tarry::relay {

namespace {

using std::chrono::milliseconds;

// Targets "t0" and so on are held in vain.
class ManyHeld {
 public:
  ManyHeld() { set_log_level(LogLevel::off); }
  ~ManyHeld() { set_log_level(LogLevel::info); }
  ManyHeld(const ManyHeld&) = delete;
  ManyHeld& operator=(const ManyHeld&) = delete;

  void hold(const std::string& topic, milliseconds at) {
    held.hold(topic, "it has no leader", MonoTime{at}, milliseconds(200), milliseconds(10'000));
  }
  void hold_many(std::size_t count, milliseconds at) {
    for (std::size_t i = 0; i < count; ++i) hold("t" + std::to_string(i), at);
  }

  HeldTargets held;
};

}  // namespace

TEST_CASE("held targets that nobody wants any more are forgotten when too many have come") {
  ManyHeld many;
  many.hold_many(HeldTargets::max_idle, milliseconds(0));
  many.hold("last", milliseconds(1'000));
  CHECK(many.held.find("t0") == nullptr);
  CHECK(many.held.find("t999") == nullptr);
  CHECK(many.held.find("last") != nullptr);
}

TEST_CASE("no held target is forgotten while it is not to be tried, however many there are") {
  ManyHeld many;
  many.hold_many(2 * HeldTargets::max_idle, milliseconds(0));
  many.hold("last", milliseconds(199));
  CHECK(many.held.waiting(MonoTime{milliseconds(199)}).size() == 2 * HeldTargets::max_idle + 1);
}

TEST_CASE("a held target that fails again keeps its first time and its wait, among however many") {
  ManyHeld many;
  many.hold_many(HeldTargets::max_idle + 1, milliseconds(0));
  many.hold("t0", milliseconds(1'000));
  REQUIRE(many.held.find("t0") != nullptr);
  CHECK(many.held.find("t0")->since == MonoTime{milliseconds(0)});
  // Twice the first wait.
  CHECK(many.held.find("t0")->retry.at() == MonoTime{milliseconds(1'400)});
}

}  // namespace tarry::relay
