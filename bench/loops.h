#pragma once

// Event loops as peers: Boost.Asio's steady_timer, libevent and libuv, on a virtual clock.
//
// Each is used as its own programs do: one object a timer that lives as long as what it is for, and
// the loop's turn without waiting.  The work they do besides timers in a turn (asking epoll, which
// answers at once here) is in their figures.  Without locks: one thread, and Asio is told so.
//
// Times are milliseconds from the beginning, as everywhere; libevent and libuv take a delay.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/io_context.hpp>

#include "bench/peers.h"
#include "bench/virtual_clock.h"

#ifdef TARRY_HAS_LIBEVENT
#include <event2/event.h>
#include <event2/event_struct.h>
#endif
#ifdef TARRY_HAS_LIBUV
#include <uv.h>
#endif

namespace tarry::peers {

// steady_timer is basic_waitable_timer<std::chrono::steady_clock>; this is it with another clock.
struct AsioClock {
  using duration = std::chrono::milliseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<AsioClock>;
  static constexpr bool is_steady = true;

  static time_point at(Tick tick) { return time_point(duration(static_cast<rep>(tick))); }
  static time_point now() { return at(VirtualClock::now_ms()); }
};

template <class User>
class Asio {
 public:
  static constexpr const char* name = "Boost.Asio";
  static constexpr bool can_cancel = true;
  static constexpr bool can_move = true;
  static constexpr bool has_budget = false;

  explicit Asio(std::size_t count) {
    slots_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) slots_.push_back({Timer(context_), {}});
  }

  User& user(std::size_t i) { return slots_[i].user; }
  void arm(std::size_t i, Tick deadline) {
    Slot& slot = slots_[i];
    slot.timer.expires_at(AsioClock::at(deadline));
    slot.timer.async_wait([this, &slot](const boost::system::error_code& error) {
      if (error) return;
      --size_;
      slot.user.fire();
    });
    ++size_;
  }
  // The handler is called all the same, with an error, when the loop turns.
  bool disarm(std::size_t i) {
    const bool was = slots_[i].timer.cancel() > 0;
    size_ -= was ? 1 : 0;
    return was;
  }
  void move(std::size_t i, Tick deadline) {
    disarm(i);
    arm(i, deadline);
  }
  bool advance(Tick now, std::size_t = no_budget) {
    VirtualClock::set(now);
    settle();
    return false;
  }
  void settle() {
    context_.restart();
    context_.poll();
  }
  std::size_t size() const { return size_; }

 private:
  using Timer = boost::asio::basic_waitable_timer<AsioClock, boost::asio::wait_traits<AsioClock>,
                                                  boost::asio::io_context::executor_type>;
  struct Slot {
    Timer timer;
    User user;
  };
  VirtualClock clock_;
  boost::asio::io_context context_{BOOST_ASIO_CONCURRENCY_HINT_UNSAFE};
  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

#ifdef TARRY_HAS_LIBEVENT
template <class User>
class Libevent {
 public:
  static constexpr const char* name = "libevent";
  static constexpr bool can_cancel = true;
  static constexpr bool can_move = true;
  static constexpr bool has_budget = false;

  explicit Libevent(std::size_t count)
      : base_(event_base_new()), slots_(std::make_unique<Slot[]>(count)) {
    for (std::size_t i = 0; i < count; ++i) {
      slots_[i].loop = this;
      event_assign(&slots_[i].event, base_, -1, 0, fired, &slots_[i]);
    }
  }
  ~Libevent() { event_base_free(base_); }  // Forgets what is pending.

  User& user(std::size_t i) { return slots_[i].user; }
  void arm(std::size_t i, Tick deadline) {
    move(i, deadline);
    ++size_;
  }
  bool disarm(std::size_t i) {
    if (event_pending(&slots_[i].event, EV_TIMEOUT, nullptr) == 0) return false;
    event_del(&slots_[i].event);
    --size_;
    return true;
  }
  void move(std::size_t i, Tick deadline) {
    const Tick delay = deadline - std::min(deadline, VirtualClock::now_ms());
    const timeval time{static_cast<time_t>(delay / 1000),
                       static_cast<suseconds_t>(delay % 1000 * 1000)};
    event_add(&slots_[i].event, &time);
  }
  bool advance(Tick now, std::size_t = no_budget) {
    VirtualClock::set(now);
    event_base_loop(base_, EVLOOP_NONBLOCK);
    return false;
  }
  void settle() {}
  std::size_t size() const { return size_; }

 private:
  struct Slot {
    struct event event {};
    Libevent* loop = nullptr;
    User user;
  };
  static void fired(int, short, void* argument) {
    Slot& slot = *static_cast<Slot*>(argument);
    --slot.loop->size_;
    slot.user.fire();
  }

  VirtualClock clock_;
  event_base* const base_;
  std::unique_ptr<Slot[]> slots_;
  std::size_t size_ = 0;
};
#endif

#ifdef TARRY_HAS_LIBUV
template <class User>
class Libuv {
 public:
  static constexpr const char* name = "libuv";
  static constexpr bool can_cancel = true;
  static constexpr bool can_move = true;
  static constexpr bool has_budget = false;

  explicit Libuv(std::size_t count) : count_(count), slots_(std::make_unique<Slot[]>(count)) {
    uv_loop_init(&loop_);
    loop_.data = this;
    for (std::size_t i = 0; i < count; ++i) uv_timer_init(&loop_, &slots_[i].timer);
  }
  ~Libuv() {
    for (std::size_t i = 0; i < count_; ++i) {
      uv_close(reinterpret_cast<uv_handle_t*>(&slots_[i].timer), nullptr);
    }
    uv_run(&loop_, UV_RUN_DEFAULT);
    uv_loop_close(&loop_);
  }

  User& user(std::size_t i) { return slots_[i].user; }
  void arm(std::size_t i, Tick deadline) {
    move(i, deadline);
    ++size_;
  }
  bool disarm(std::size_t i) {
    if (uv_is_active(reinterpret_cast<uv_handle_t*>(&slots_[i].timer)) == 0) return false;
    uv_timer_stop(&slots_[i].timer);
    --size_;
    return true;
  }
  void move(std::size_t i, Tick deadline) {
    uv_timer_start(&slots_[i].timer, fired, deadline - std::min(deadline, VirtualClock::now_ms()),
                   0);
  }
  bool advance(Tick now, std::size_t = no_budget) {
    VirtualClock::set(now);
    uv_run(&loop_, UV_RUN_NOWAIT);
    return false;
  }
  void settle() {}
  std::size_t size() const { return size_; }

 private:
  struct Slot {
    uv_timer_t timer;  // First: it is what the callback is given.
    User user;
  };
  static void fired(uv_timer_t* timer) {
    --static_cast<Libuv*>(timer->loop->data)->size_;
    reinterpret_cast<Slot*>(timer)->user.fire();
  }

  VirtualClock clock_;
  const std::size_t count_;
  uv_loop_t loop_{};
  std::unique_ptr<Slot[]> slots_;
  std::size_t size_ = 0;
};
#endif

}  // namespace tarry::peers
