#include "base/owner_thread.h"

#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "tests/death.h"

namespace tarry {
namespace {

TEST_SUITE("owner thread") {
  TEST_CASE(
      "an object may not be used on a thread that does not own it, and the message names the "
      "file") {
    OwnerThread owner;
    std::thread([&owner] { owner.bind(); }).join();
    const std::string said = last_words([&owner] { owner.check(); });
    CHECK(said.find("used on another thread than its own") != std::string::npos);
    CHECK(said.find("owner_thread_test.cc") != std::string::npos);
  }

  TEST_CASE("any thread may use it before it is bound, and its owner afterwards") {
    OwnerThread owner;
    owner.check();
    std::thread([&owner] {
      owner.check();
      owner.bind();
      owner.check();
    }).join();
    owner.bind();  // It may be handed on: the last one that is bound has it.
    owner.check();
  }
}

}  // namespace
}  // namespace tarry
