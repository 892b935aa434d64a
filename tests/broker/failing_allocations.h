#pragma once

// Allocations that fail: the nth one of this thread, in a process of its own, because some of them
// end a broker.
//
//   const After after = in_a_child([&] {
//     allocations_left = nth;
//     ... the request ...
//     return std::exchange(allocations_left, 0) == 0 ? After::refused : After::no_such_allocation;
//   });
//
// It replaces the program's operators new and delete, so one file of a program includes it.

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>

#include <doctest/doctest.h>

#include "storage/journal_recovery.h"
#include "tests/broker/world.h"

namespace tarry::broker::test {

// 0: none fails.
inline thread_local long allocations_left = 0;

inline void* allocate(std::size_t bytes) noexcept {
  if (allocations_left > 0 && --allocations_left == 0) return nullptr;
  return std::malloc(bytes == 0 ? 1 : bytes);
}

inline void* allocate_or_throw(std::size_t bytes) {
  void* const memory = allocate(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace tarry::broker::test

void* operator new(std::size_t bytes) {
  return tarry::broker::test::allocate_or_throw(bytes);
}
void* operator new[](std::size_t bytes) {
  return tarry::broker::test::allocate_or_throw(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return tarry::broker::test::allocate(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return tarry::broker::test::allocate(bytes);
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
inline bool is_child = false;
inline constexpr int ended_by_database = 103;  // After::ended
}  // namespace tarry::broker::test

// Debian's RocksDB asserts that nothing throws while it puts a row into a write batch, so a lack of
// memory there ends the process, as it does in the journal's append.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" void __assert_fail(const char* assertion, const char* file, unsigned line,
                              const char* function) noexcept {
  if (tarry::broker::test::is_child &&
      std::string_view(file).ends_with("db/write_batch_internal.h"))
    ::_exit(tarry::broker::test::ended_by_database);
  std::fprintf(stderr, "%s:%u: %s: assertion `%s' failed\n", file, line, function, assertion);
  std::abort();
}

namespace tarry::broker::test {

// What became of a broker in which an allocation has failed.  A sanitizer ends a process with 1.
enum class After : int {
  no_such_allocation = 100,  // There were fewer.
  answered,
  wrong,
  ended,    // On purpose, or in a step that may not fail (noexcept): it recovers at a start.
  refused,  // It got an error, or its connection ended; the next one is answered.
  lost,     // It got no answer, and its connection goes on.
  stuck,    // The next one gets no answer.
  leaked,   // It left a group that nobody uses, and nothing takes out.
  fenced,   // It left a topic that takes nothing, although it was not deleted.
};
static_assert(static_cast<int>(After::ended) == ended_by_database);

// In a process of its own: what ends it ends only that.  Without a database's threads, so no more
// than a moment may pass there.
template <typename Work>
After in_a_child(Work work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    is_child = true;
    ::alarm(60);  // Rather than that it hangs.
    for (const int signal : {SIGABRT, SIGSEGV}) std::signal(signal, SIG_DFL);
    std::set_terminate([] { ::_exit(static_cast<int>(After::ended)); });
    try {
      ::_exit(static_cast<int>(work()));
    } catch (const std::bad_alloc&) {
      ::_exit(static_cast<int>(After::ended));
    } catch (...) {  // A check of the test.
      ::_exit(static_cast<int>(After::wrong));
    }
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE_MESSAGE(WIFEXITED(status), "the process ended by signal " << WTERMSIG(status));
  REQUIRE_MESSAGE(WEXITSTATUS(status) >= static_cast<int>(After::no_such_allocation),
                  "the process ended with " << WEXITSTATUS(status));
  return static_cast<After>(WEXITSTATUS(status));
}

// Whether a record behind `from` has these bytes.
inline bool is_in_journal(const World& world, Lsn from, std::string_view evidence) {
  storage::PosixDisk disk;
  bool found = false;
  const auto read = storage::recover_journal(
      disk, world.directory() + "/data/journal/0", [&](Lsn lsn, Bytes record) -> Result<> {
        found = found || (lsn >= from && as_text(record).find(evidence) != std::string_view::npos);
        return {};
      });
  REQUIRE_MESSAGE(read.has_value(), read.error().message);
  return found;
}

inline const char* complaint_about(After after) {
  switch (after) {
    case After::wrong:
      return "its answer is an error, or cannot be read";
    case After::lost:
      return "it gets no answer";
    case After::stuck:
      return "the next one gets no answer";
    case After::leaked:
      return "a group that nobody uses is left";
    case After::fenced:
      return "a topic that was not deleted takes no records";
    case After::no_such_allocation:
    case After::answered:
    case After::ended:
    case After::refused:
      break;
  }
  return nullptr;
}

}  // namespace tarry::broker::test
