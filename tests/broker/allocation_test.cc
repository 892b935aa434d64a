// Each allocation of a request is made to fail once, in turn: its client may get no answer, and
// nobody else notices.

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include "protocol/messages/create_topics.h"
#include "protocol/messages/describe_groups.h"
#include "protocol/messages/find_coordinator.h"
#include "protocol/messages/list_offsets.h"
#include "protocol/messages/metadata.h"
#include "protocol/messages/offset_fetch.h"
#include "protocol/messages/produce.h"
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

// What became of a broker in which an allocation has failed.  A sanitizer ends a process with 1.
enum class After : int {
  no_such_allocation = 100,  // There were fewer.
  answered,
  wrong,
  ended,  // On purpose, or in a step that may not fail (noexcept): it recovers at a start.
};

// In a process of its own: what ends it ends only that.  Without a database's threads, so no time
// may pass there.
template <typename Work>
After in_a_child(Work work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    for (const int signal : {SIGABRT, SIGSEGV}) std::signal(signal, SIG_DFL);
    std::set_terminate([] { ::_exit(static_cast<int>(After::ended)); });
    try {
      ::_exit(static_cast<int>(work()));
    } catch (const std::bad_alloc&) {
      ::_exit(static_cast<int>(After::ended));
    }
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE_MESSAGE(WIFEXITED(status), "the process ended by signal " << WTERMSIG(status));
  REQUIRE_MESSAGE(WEXITSTATUS(status) >= static_cast<int>(After::no_such_allocation),
                  "the process ended with " << WEXITSTATUS(status));
  return static_cast<After>(WEXITSTATUS(status));
}

TEST_SUITE("allocations") {
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
      "whichever allocation of a Produce with an id fails, the next one is answered, or the broker "
      "ends") {
    World world({.shards = 1});
    create_topic(world, "t");
    const Buffer batch = batch_of(world.clock.wall(),
                                  {NewRecord{"v", {{"x-delay", "1h"}, {"x-schedule-id", "id"}}}});
    const auto request = produce_request("t", 0, batch);
    world.runs_at_once = false;
    long answered = 0;
    for (long nth = 1;; ++nth) {
      CAPTURE(nth);
      const After after = in_a_child([&] {
        const auto first = world.begin(request, 8);
        world.runs_at_once = true;
        allocations_left = nth;
        world.run();
        if (std::exchange(allocations_left, 0) != 0) return After::no_such_allocation;
        if (world.failure) return After::ended;
        const auto next = world.begin(request, 8);
        world.run();
        if (!next->answer) return After::wrong;
        const auto told = world.read<protocol::ProduceResponse>(*next, 8);
        const auto error = told.responses.at(0).partition_responses.at(0).error_code;
        return error == ErrorCode::none ? After::answered : After::wrong;
      });
      REQUIRE(after != After::wrong);
      if (after == After::no_such_allocation) break;
      if (after == After::answered) ++answered;
    }
    CHECK(answered > 10);
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
