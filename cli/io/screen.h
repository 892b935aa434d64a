#pragma once

// Screen: the whole terminal for a while, and the terminal as it was afterwards.
//
//   [ the shell's lines ] --> Screen --> [ a screen of its own, no cursor, keys one by one ]
//                         <-- ~Screen, a signal that ends the process, Ctrl-Z
//
// Invariant: the terminal is restored whatever ends the process, but for SIGKILL.  The
// first SIGINT, SIGTERM or SIGHUP only makes ended() true, so that the owner ends in order; the
// second one ends the process.
//
// One in a process.  It belongs to the command; one thread.

#include <chrono>
#include <cstddef>
#include <string_view>

namespace tarry::cli {

class Screen {
 public:
  struct Size {
    std::size_t columns, rows;
  };
  enum class Event { time, key, resized, ended };

  // Both must be terminals.
  Screen(int input, int output);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  Size size() const;
  // Shows these lines, and nothing else.  False: the terminal is gone.
  bool show(std::string_view text);
  // Waits for the first thing that happens.  `key` is what was typed.
  Event wait(std::chrono::milliseconds time, char& key);
  bool ended() const;

 private:
  const int input_;
};

}  // namespace tarry::cli
