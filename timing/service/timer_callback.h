#pragma once

// TimerCallback: what a timer runs.
//
// Anything that can be called with nothing or with the timer's own id.  A callable that is small
// and has only trivial copies, such as a lambda that captures up to three pointers, is kept inside,
// everything else on the heap; so to move one is to copy four words.

#include <array>
#include <concepts>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

#include "timing/service/timer_id.h"

namespace tarry::timing {

class TimerCallback {
 public:
  TimerCallback() = default;
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, TimerCallback> &&
           (std::invocable<std::decay_t<F>&> || std::invocable<std::decay_t<F>&, TimerId>))
      TimerCallback(F&& callback)
      : kind_(&kind_of<std::decay_t<F>>) {
    using Stored = std::decay_t<F>;
    if constexpr (fits_inline<Stored>) {
      ::new (static_cast<void*>(words_.data())) Stored(std::forward<F>(callback));
    } else {
      words_[0] = reinterpret_cast<std::uintptr_t>(new Stored(std::forward<F>(callback)));
    }
  }
  TimerCallback(TimerCallback&& other) noexcept
      : kind_(std::exchange(other.kind_, nullptr)), words_(other.words_) {}
  TimerCallback& operator=(TimerCallback&& other) noexcept {
    TimerCallback old(std::move(*this));
    kind_ = std::exchange(other.kind_, nullptr);
    words_ = other.words_;
    return *this;
  }
  ~TimerCallback() {
    if (kind_ != nullptr && kind_->destroy != nullptr) kind_->destroy(words_);
  }

  void operator()(TimerId id) { kind_->call(words_, id); }  // Not when there is none.
  explicit operator bool() const { return kind_ != nullptr; }

 private:
  using Words = std::array<std::uint64_t, 3>;
  struct Kind {
    void (*call)(Words&, TimerId);
    void (*destroy)(Words&);  // Null when there is nothing to do.
  };

  template <class F>
  static constexpr bool fits_inline = std::is_trivially_copyable_v<F> &&
                                      sizeof(F) <= sizeof(Words) && alignof(F) <= alignof(Words);

  template <class F>
  static F& stored(Words& words) {
    if constexpr (fits_inline<F>) {
      return *std::launder(reinterpret_cast<F*>(words.data()));
    } else {
      return *reinterpret_cast<F*>(words[0]);
    }
  }
  template <class F>
  static void call(Words& words, TimerId id) {
    if constexpr (std::invocable<F&, TimerId>) {
      stored<F>(words)(id);
    } else {
      stored<F>(words)();
    }
  }
  template <class F>
  static void destroy(Words& words) {
    delete &stored<F>(words);
  }
  template <class F>
  static constexpr Kind kind_of{&call<F>, fits_inline<F> ? nullptr : &destroy<F>};

  const Kind* kind_ = nullptr;
  Words words_;
};

}  // namespace tarry::timing
