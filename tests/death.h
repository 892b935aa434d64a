#pragma once

// Runs code in a process of its own and returns its last words: for assertions, which end it.

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>

#include <doctest/doctest.h>

namespace tarry {

// Runs `work` in a child that has to abort, and returns what it wrote to stderr.
template <typename F>
std::string last_words(F work) {
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // Not doctest's handler, which would report a failed test.
    ::dup2(pipe[1], STDERR_FILENO);
    work();
    ::_exit(0);
  }
  ::close(pipe[1]);
  std::string said;
  std::array<char, 512> piece{};
  for (ssize_t size; (size = ::read(pipe[0], piece.data(), piece.size())) > 0;)
    said.append(piece.data(), static_cast<std::size_t>(size));
  ::close(pipe[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
  return said;
}

}  // namespace tarry
