#pragma once

// ScopeExit: calls a function on destruction unless dismiss() was called.
//
//   ScopeExit give_back([&] { pool.give_back(held); });
//   ...                   // Every way out of here gives back,
//   give_back.dismiss();  // but for this one.
//
// It can be moved, so that an object that travels can carry what must happen if it is dropped.  The
// function must not throw.  It runs on the thread that destroys its owner.

#include <functional>
#include <utility>

namespace tarry {

class ScopeExit {
 public:
  ScopeExit() = default;
  explicit ScopeExit(std::move_only_function<void()> call) : call_(std::move(call)) {}
  ScopeExit(ScopeExit&& other) noexcept : call_(std::exchange(other.call_, nullptr)) {}
  ScopeExit& operator=(ScopeExit&& other) noexcept {
    std::swap(call_, other.call_);
    return *this;
  }
  ~ScopeExit() {
    if (call_) call_();
  }
  void dismiss() { call_ = nullptr; }

 private:
  std::move_only_function<void()> call_;
};

}  // namespace tarry
