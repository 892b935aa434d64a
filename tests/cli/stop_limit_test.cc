#include "cli/stop_limit.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "cli/io/exit_status.h"

namespace tarry::cli {
namespace {

TEST_SUITE("stop limit") {
  TEST_CASE("a process that does not stop ends at its limit, says why, and has failed") {
    std::array<int, 2> said{};
    REQUIRE(::pipe(said.data()) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::dup2(said[1], STDERR_FILENO);
      exit_after(std::chrono::milliseconds{30});
      for (;;) ::pause();
    }
    ::close(said[1]);
    std::string text(200, ' ');
    const auto size = ::read(said[0], text.data(), text.size());
    ::close(said[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == failed);
    REQUIRE(size > 0);
    CHECK(std::string_view(text).find("did not stop within 30 ms") != std::string_view::npos);
  }
}

}  // namespace
}  // namespace tarry::cli
