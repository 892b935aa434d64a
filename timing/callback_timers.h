#pragma once

// CallbackTimers: plain callbacks on a TimingWheel, for callers that have no object to derive from
// Timer and no place to keep one.
//
//    CallbackTimers callbacks(wheel);
//    const CallbackTimers::Handle retry = callbacks.schedule(now + 500, [&] { send_again(); });
//    ...
//    callbacks.cancel(retry);              // The answer came.  False when it has fired already.
//
// A callback is in a node of a pool: blocks of 64 nodes with a free list through them, so that a
// callback that fits into std::move_only_function needs no allocation.  A handle is a node's number
// and the number of the node's life:
//
//    handle  [ node 7 | life 3 ]     node 7: life 3, armed  -> this is the timer
//                                            life 4         -> fired or cancelled: gone
//
// Invariants
//   - A callback is called at most once; after that, or when it is cancelled, its node is free.
//   - A handle that is kept after that names nothing, even if its node is used again.  (A node that
//     has had all of its 2^32 lives is not used again.)
//   - A callback may schedule, cancel and move any other, and destroy this object.  Its own
//     handle names nothing while it runs.  It must not throw.
//
// A caller that can keep an object should derive from Timer instead (24 bytes a timer, against 72
// plus the callback's own allocations), or keep a CallbackTimer.
//
// Belongs to its wheel's thread, and is destroyed before the wheel.  Blocks are kept for reuse.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "timing/timing_wheel.h"

namespace tarry::timing {

class CallbackTimers {
 public:
  // A default-constructed handle names nothing.
  class Handle {
   public:
    Handle() = default;
    bool operator==(const Handle&) const = default;

   private:
    friend class CallbackTimers;
    Handle(std::uint32_t node, std::uint32_t life) : node_(node), life_(life) {}
    std::uint32_t node_ = 0;
    std::uint32_t life_ = 0;
  };

  explicit CallbackTimers(TimingWheel& wheel) : wheel_(wheel) {}
  CallbackTimers(const CallbackTimers&) = delete;
  CallbackTimers& operator=(const CallbackTimers&) = delete;
  ~CallbackTimers();  // Pending callbacks are not called.

  // Calls `callback`, which must not be empty, in the first advance() that reaches `deadline`;
  // one that has passed in the next, as TimingWheel does.
  Handle schedule(Tick deadline, std::move_only_function<void()> callback);

  // All three: false, or nothing, when the handle's callback was called, is running or was
  // cancelled.  The callback of a timer that is cancelled is destroyed here.
  bool reschedule(Handle handle, Tick deadline);
  bool cancel(Handle handle);
  std::optional<Tick> deadline(Handle handle) const;

  std::size_t size() const { return pending_; }
  std::size_t bytes() const;  // Without what the callbacks themselves allocated.

 private:
  static constexpr std::uint32_t none = 0xffff'ffff;

  class Node final : public Timer {
   public:
    CallbackTimers* owner = nullptr;
    std::uint32_t number = 0;  // Its place in blocks_.
    std::uint32_t life = 1;    // Grows each time that it becomes free; 0 when it has had them all.
    std::uint32_t next_free = none;
    std::move_only_function<void()> callback;

   private:
    void on_expired() override;
  };
  static constexpr std::size_t block_size = 64;
  using Block = std::array<Node, block_size>;

  Node& node(std::uint32_t number) const {
    return (*blocks_[number / block_size])[number % block_size];
  }
  Node* find(Handle handle) const;
  Node& take();
  void release(Node& node);

  TimingWheel& wheel_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::uint32_t free_ = none;
  std::size_t pending_ = 0;
};

}  // namespace tarry::timing
