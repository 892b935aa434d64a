// Each allocation of a request is made to fail once, in turn: its client may get no answer, and
// nobody else notices.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "protocol/messages/create_topics.h"
#include "protocol/messages/delete_records.h"
#include "protocol/messages/describe_groups.h"
#include "protocol/messages/find_coordinator.h"
#include "protocol/messages/init_producer_id.h"
#include "protocol/messages/join_group.h"
#include "protocol/messages/list_offsets.h"
#include "protocol/messages/metadata.h"
#include "protocol/messages/offset_fetch.h"
#include "tests/broker/batches.h"
#include "tests/broker/offset_requests.h"

namespace {

// 0: none fails.
thread_local long allocations_left = 0;

void* allocate(std::size_t bytes) noexcept {
  if (allocations_left > 0 && --allocations_left == 0) return nullptr;
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void* allocate_or_throw(std::size_t bytes) {
  void* const memory = allocate(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) {
  return allocate_or_throw(bytes);
}
void* operator new[](std::size_t bytes) {
  return allocate_or_throw(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}

namespace tarry::broker::test {
namespace {

// How many allocations the request makes until it first waits for the disk, or is answered.
template <typename Request>
long fail_each(World& world, const Request& request, int version) {
  for (long nth = 1;; ++nth) {
    CAPTURE(Request::name);
    CAPTURE(nth);
    world.runs_at_once = false;
    const auto pending = world.begin(request, version);
    allocations_left = nth;
    try {
      world.turn();
    } catch (const std::bad_alloc&) {
    }
    const bool failed = allocations_left == 0;
    allocations_left = 0;
    world.runs_at_once = true;
    world.run();
    CHECK_FALSE(world.failure.has_value());
    if (failed) continue;
    REQUIRE(pending->answer.has_value());
    return nth - 1;
  }
}

// What became of a world in which an allocation of a request has failed.
enum class After : int {
  no_such_allocation,  // The request has made fewer.
  answered,            // Or failed; and all is as the model says.
  wrong,
  ended,  // The broker, on purpose or in a step that may not fail (noexcept): it recovers at a start.
};

// In a process of its own: what ends it ends only that.
template <typename Work>
After in_a_child(Work work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    for (const int signal : {SIGABRT, SIGSEGV}) std::signal(signal, SIG_DFL);
    std::set_terminate([] { ::_exit(static_cast<int>(After::ended)); });
    const After after = work();
    ::_exit(static_cast<int>(after));
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE_MESSAGE(WIFEXITED(status), "the process ended by signal " << WTERMSIG(status));
  return static_cast<After>(WEXITSTATUS(status));
}

// Runs all that is ready, and returns false if an exception has left the shard's loop: it ends the
// broker.  One of a request's coroutine ends the connection, and does not come here.
bool run_through(World& world) {
  world.runs_at_once = true;
  try {
    world.run();
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

struct Tally {
  long survived = 0, ended = 0;
};

// Fails each allocation of the request in turn, in whichever of its turns that is.  `is_right`
// says whether the world is as it has to be, with or without the request, and whether the same
// request succeeds then.
template <typename Request, typename IsRight>
Tally fail_each_to_the_end(World& world, const Request& request, int version, IsRight is_right) {
  Tally tally;
  for (long nth = 1;; ++nth) {
    CAPTURE(Request::name);
    CAPTURE(nth);
    const After after = in_a_child([&] {
      world.runs_at_once = false;
      const auto pending = world.begin(request, version);
      allocations_left = nth;
      const bool goes_on = run_through(world);
      const bool failed = std::exchange(allocations_left, 0) == 0;
      if (!failed) return After::no_such_allocation;
      if (!goes_on || world.failure) return After::ended;
      if (!pending->answer && !pending->has_failed) world.pass(std::chrono::seconds{60});
      if (!pending->answer && !pending->has_failed) return After::wrong;
      return is_right(pending->answer.has_value() && !pending->has_failed) ? After::answered
                                                                           : After::wrong;
    });
    REQUIRE(after != After::wrong);
    if (after == After::no_such_allocation) return tally;
    ++(after == After::ended ? tally.ended : tally.survived);
  }
}

std::size_t count_of(const std::vector<std::string>& all, const std::string& value) {
  return static_cast<std::size_t>(std::ranges::count(all, value));
}

TEST_SUITE("allocations") {
  TEST_CASE(
      "whichever allocation of a Produce fails, in any of its turns, it is answered or fails, the "
      "log has it whole or not at all, and the same request succeeds next") {
    World world({.shards = 1});
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"before"}}));
    const NewRecord plain{"plain"}, delayed{"delayed", {{"x-delay", "1s"}}};
    const NewRecord named{"named", {{"x-delay", "1s"}, {"x-schedule-id", "id"}}};
    const std::vector<std::vector<NewRecord>> batches{
        {plain}, {delayed}, {plain, delayed}, {named}};
    for (const auto& records : batches) {
      const Buffer batch = batch_of(world.clock.wall(), records);
      const auto request = produce_request("t", 0, batch);
      const bool replaces = records.front().value == "named";
      const auto tally = fail_each_to_the_end(world, request, 8, [&](bool) {
        // Without the failure: once more, as a client does that got no answer.
        const auto again = produce(world, "t", 0, batch);
        if (again.error_code != ErrorCode::none) return false;
        world.pass(std::chrono::seconds{3});
        const auto all = values(read_all(world, "t"));
        if (all.front() != "before") return false;
        for (const auto& record : records) {
          const auto times = count_of(all, record.value);
          if (times < 1 || times > (replaces ? 1 : 2)) return false;
          // All of a batch is there as often.
          if (times != count_of(all, records.front().value)) return false;
        }
        return all.size() <= 1 + 2 * records.size();
      });
      MESSAGE(records.front().value << " of " << records.size() << ": " << tally.survived
                                    << " survived, " << tally.ended << " ended the broker");
      CHECK(tally.survived > 10);
    }
    CHECK(values(read_all(world, "t")) == std::vector<std::string>{"before"});
  }

  TEST_CASE(
      "whichever allocation of a change of topics, offsets, producers or groups fails, in any of "
      "its turns, it is answered or fails, and the same request succeeds next") {
    World world({.shards = 1});
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}, {"b"}, {"c"}}));

    const auto offsets = commit_request("g", "t", 0, 2);
    const auto committed = fail_each_to_the_end(world, offsets, 9, [&](bool) {
      return commit(world, "g", "t", 0, 2) == ErrorCode::none &&
             fetch_all(world, "g") == "t-0:2/-1/ ";
    });
    CHECK(committed.survived > 5);

    protocol::CreateTopicsRequest create;
    create.timeout_ms = 30'000;
    auto& topic = create.topics.emplace_back();
    topic.name = "new";
    topic.num_partitions = 2;
    topic.replication_factor = 1;
    const auto created = fail_each_to_the_end(world, create, 5, [&](bool) {
      const auto again =
          world.call<protocol::CreateTopicsResponse>(create, 5).topics.front().error_code;
      if (again != ErrorCode::none && again != ErrorCode::topic_already_exists) return false;
      return produce(world, "new", 1, batch_of(world.clock.wall(), {{"x"}})).error_code ==
             ErrorCode::none;
    });
    CHECK(created.survived > 5);

    const protocol::InitProducerIdRequest init;
    const auto begun = fail_each_to_the_end(world, init, 4, [&](bool) {
      return world.call<protocol::InitProducerIdResponse>(init, 4).error_code == ErrorCode::none;
    });
    CHECK(begun.survived > 3);

    protocol::DeleteRecordsRequest remove;
    remove.timeout_ms = 30'000;
    auto& from = remove.topics.emplace_back();
    from.name = "t";
    from.partitions.push_back({0, 2});
    const auto removed = fail_each_to_the_end(world, remove, 2, [&](bool) {
      const auto again = world.call<protocol::DeleteRecordsResponse>(remove, 2);
      return again.topics[0].partitions[0].error_code == ErrorCode::none &&
             values(read_all(world, "t", 0, 2)) == std::vector<std::string>{"c"};
    });
    CHECK(removed.survived > 5);

    protocol::JoinGroupRequest join;
    join.group_id = "members";
    join.session_timeout_ms = 10'000;
    join.rebalance_timeout_ms = 10'000;
    join.protocol_type = "consumer";
    join.protocols.push_back({"range", {}});
    const auto joined = fail_each_to_the_end(world, join, 3, [&](bool) {
      return world.call<protocol::JoinGroupResponse>(join, 3).error_code == ErrorCode::none;
    });
    CHECK(joined.survived > 5);
    MESSAGE("ended the broker: " << committed.ended << " of a commit, " << created.ended
                                 << " of a topic, " << begun.ended << " of a producer id, "
                                 << removed.ended << " of DeleteRecords, " << joined.ended
                                 << " of a join");
  }

  TEST_CASE("whichever allocation of a request that reads fails, the next request is answered") {
    World world({.shards = 1});
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}, {"b"}}));
    REQUIRE(commit(world, "g", "t", 0, 1) == ErrorCode::none);
    const auto fetch = fetch_request("t", 0, 0);
    CHECK(fail_each(world, fetch, 11) > 5);
    protocol::MetadataRequest metadata;
    metadata.topics.emplace().emplace_back().name = "t";
    CHECK(fail_each(world, metadata, 9) > 5);
    protocol::FindCoordinatorRequest find;
    find.coordinator_keys = {"g", "h"};
    CHECK(fail_each(world, find, 4) > 3);
    protocol::DescribeGroupsRequest describe;
    describe.groups = {"g", "h"};
    CHECK(fail_each(world, describe, 5) > 5);
    protocol::OffsetFetchRequest offsets;
    offsets.groups.emplace_back().group_id = "g";
    CHECK(fail_each(world, offsets, 8) > 5);
    protocol::ListOffsetsRequest list;
    auto& topic = list.topics.emplace_back();
    topic.name = "t";
    topic.partitions.push_back({0, -1, -1});
    CHECK(fail_each(world, list, 5) > 3);
    CHECK(values(read_all(world, "t")) == std::vector<std::string>{"a", "b"});
    CHECK(fetch_all(world, "g") == "t-0:1/4/ ");
  }

  TEST_CASE(
      "whichever allocation of a check of new topics fails, its client does not wait forever") {
    World world({.shards = 1});
    protocol::CreateTopicsRequest create;
    create.validate_only = true;
    create.timeout_ms = 3'600'000;
    auto& topic = create.topics.emplace_back();
    topic.name = "t";
    topic.num_partitions = 1;
    topic.replication_factor = 1;
    bool all_succeeded = false;
    int failed = 0;
    for (long nth = 1; !all_succeeded; ++nth) {
      CAPTURE(nth);
      world.runs_at_once = false;
      const auto pending = world.begin(create, 5);
      allocations_left = nth;
      try {
        world.turn();
      } catch (const std::bad_alloc&) {
      }
      all_succeeded = allocations_left != 0;
      allocations_left = 0;
      world.runs_at_once = true;
      try {
        world.run();
      } catch (const std::bad_alloc&) {
      }
      REQUIRE((pending->answer.has_value() || pending->has_failed));
      if (pending->has_failed) ++failed;
    }
    CHECK(failed > 5);
  }
}

}  // namespace
}  // namespace tarry::broker::test
