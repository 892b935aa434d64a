#include "storage/checkpoint.h"

#include <doctest/doctest.h>

#include <vector>

namespace tarry::storage {
namespace {

using Step = Checkpoint::Step;
using std::chrono::seconds;

constexpr MonoTime start{};
constexpr Checkpoint::Policy policy{.dirty_bytes = 1000, .interval = seconds(30)};

void finish(Checkpoint& checkpoint) {
  while (checkpoint.step() != Step::idle) checkpoint.finished({});
}

TEST_SUITE("checkpoint") {
  TEST_CASE("nothing is noted before logs and databases are durable") {
    Checkpoint checkpoint(policy, 100, 100, start);
    checkpoint.appended(200, start);
    std::vector<Step> steps{checkpoint.begin(300, start)};
    while (steps.back() != Step::idle) {
      CHECK(checkpoint.noted() == 100);
      CHECK(checkpoint.target() == 300);
      steps.push_back(checkpoint.finished({}));
    }
    CHECK(steps == std::vector{Step::save_states, Step::write_logs, Step::sync_logs,
                               Step::flush_pending, Step::flush_meta, Step::note_position,
                               Step::idle});
    CHECK(checkpoint.noted() == 300);
  }

  TEST_CASE("a step that failed is not tried again and nothing is noted") {
    Checkpoint checkpoint(policy, 100, 100, start);
    checkpoint.appended(200, start);
    checkpoint.begin(300, start);
    checkpoint.finished({});
    CHECK(checkpoint.finished(fail(Errc::io, "no")) == Step::failed);
    CHECK(checkpoint.noted() == 100);
    CHECK_FALSE(checkpoint.wanted(start + seconds(1000)));
    CHECK_FALSE(checkpoint.wanted_at().has_value());
  }

  TEST_CASE("without dirty records no checkpoint and no timer is wanted") {
    Checkpoint checkpoint(policy, 100, 100, start);
    CHECK_FALSE(checkpoint.wanted_at().has_value());
    CHECK_FALSE(checkpoint.wanted(start + seconds(1000)));
    checkpoint.appended(100, start);
    CHECK(checkpoint.wanted_at() == start + seconds(30));
    checkpoint.begin(150, start + seconds(30));
    finish(checkpoint);
    CHECK_FALSE(checkpoint.wanted_at().has_value());
  }

  TEST_CASE("the interval counts from the first dirty record, not from the last") {
    Checkpoint checkpoint(policy, 0, 0, start);
    checkpoint.appended(10, start + seconds(5));
    checkpoint.appended(20, start + seconds(34));
    CHECK_FALSE(checkpoint.wanted(start + seconds(34)));
    CHECK(checkpoint.wanted(start + seconds(35)));
  }

  TEST_CASE("many dirty bytes, or a journal that runs full, are wanted at once") {
    Checkpoint checkpoint(policy, 0, 0, start);
    checkpoint.appended(10, start);
    checkpoint.appended(1009, start);
    CHECK_FALSE(checkpoint.wanted(start));
    checkpoint.appended(1010, start);
    CHECK(checkpoint.wanted(start));
    checkpoint.begin(2000, start);
    finish(checkpoint);
    checkpoint.appended(2000, start);
    CHECK_FALSE(checkpoint.wanted(start));
    checkpoint.hurry();
    CHECK(checkpoint.wanted(start));
  }

  TEST_CASE(
      "records that were appended but not applied at the begin are dirty for the next checkpoint") {
    Checkpoint checkpoint(policy, 0, 0, start);
    checkpoint.appended(10, start);
    checkpoint.appended(500, start);
    checkpoint.begin(500, start + seconds(30));
    finish(checkpoint);
    CHECK(checkpoint.wanted_at() == start + seconds(60));
  }

  TEST_CASE("replayed records are dirty") {
    Checkpoint checkpoint(policy, 100, 300, start);
    CHECK(checkpoint.wanted_at() == start + seconds(30));
    checkpoint.begin(300, start);
    finish(checkpoint);
    CHECK_FALSE(checkpoint.wanted_at().has_value());
  }
}

}  // namespace
}  // namespace tarry::storage
