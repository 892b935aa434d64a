#pragma once

// CancellationToken: cancels the operation that a request waits for when its client disconnects.
//
//   if (token.cancelled()) give up;
//   CancellationToken::Attached attached(token, operation);
//   co_await operation.wait();                      // cancel() ends it with Outcome::cancelled.
//
// A request has one token for each shard that it waits on, made by a CancelOnClose; everything in
// it runs on that shard.

#include "purgatory/delayed_operation.h"

namespace tarry::broker {

class CancellationToken {
 public:
  CancellationToken() = default;
  CancellationToken(const CancellationToken&) = delete;
  CancellationToken& operator=(const CancellationToken&) = delete;

  bool cancelled() const { return cancelled_; }

  // Ends the attached operation, if there is one.
  void cancel() {
    cancelled_ = true;
    if (operation_ != nullptr) operation_->cancel();
  }

  // While it lives, `operation` is the one that cancel() ends.
  class Attached {
   public:
    Attached(CancellationToken& token, purgatory::DelayedOperation& operation) : token_(token) {
      token_.operation_ = &operation;
    }
    ~Attached() { token_.operation_ = nullptr; }
    Attached(const Attached&) = delete;
    Attached& operator=(const Attached&) = delete;

   private:
    CancellationToken& token_;
  };

 private:
  bool cancelled_ = false;
  purgatory::DelayedOperation* operation_ = nullptr;
};

}  // namespace tarry::broker
