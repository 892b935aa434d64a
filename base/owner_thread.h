#pragma once

// OwnerThread: asserts that what one thread owns is used on that thread alone.
//
//   owner_.bind();   // On the thread that has it from now on; before that, any thread may use it.
//   owner_.check();  // At each door.
//
// An object that a thread owns has no lock, so a call from another one is a data race that a test
// need not see.  A check is a load and a compare, 0.6 ns, and on in production like every
// assertion.

#include <source_location>

#include "base/assert.h"

namespace tarry {

class OwnerThread {
 public:
  void bind() { owner_ = this_thread(); }

  // `door` is where the wrong thread came in.
  void check(std::source_location door = std::source_location::current()) const {
    if (owner_ != nullptr && owner_ != this_thread()) [[unlikely]]
      assertion_failed("owner_ == this_thread()", "it is used on another thread than its own",
                       door);
  }

 private:
  // An address that no other living thread has: cheaper than an id, which is a call.
  static const void* this_thread() {
    static thread_local constinit char mark = 0;
    return &mark;
  }

  const void* owner_ = nullptr;
};

}  // namespace tarry
