#pragma once

// LargeAnswer: the turn of a request whose answer may take tens of megabytes while it is made:
// lists of what clients have named, and the metrics.
//
//   co_await wait_for_turn(call.context);
//   const LargeAnswer turn(call.context);   // With no wait in between.
//
// One is made at a time, so what they take together does not grow with the connections that ask.
// No turn waits for a disk: one that hangs would hold up the others.  When it is made, http_server
// bounds what is being sent.
//
// On shard 0's thread.

#include <chrono>

#include <boost/asio/awaitable.hpp>

#include "admin/context.h"
#include "base/assert.h"
#include "web/question.h"

namespace tarry::admin {

class LargeAnswer {
 public:
  explicit LargeAnswer(Context& context) : context_(context) {
    TARRY_ASSERT(!context.makes_large_answer, "large answers are made one at a time");
    context.makes_large_answer = true;
  }
  ~LargeAnswer() { context_.makes_large_answer = false; }
  LargeAnswer(const LargeAnswer&) = delete;
  LargeAnswer& operator=(const LargeAnswer&) = delete;

 private:
  Context& context_;
};

// Refuses with 503 after ten seconds.
inline boost::asio::awaitable<void> wait_for_turn(Context& context) {
  constexpr std::chrono::milliseconds look_again{20};
  constexpr std::chrono::milliseconds longest{10'000};
  for (std::chrono::milliseconds waited{0}; context.makes_large_answer; waited += look_again) {
    if (waited >= longest || !co_await context.pauses->wait(look_again))
      throw Refused{503, "another large answer is being prepared; try again"};
  }
}

}  // namespace tarry::admin
