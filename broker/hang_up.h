#pragma once

// HangUp: cancels what waits for a client on another shard when the client goes.
//
//   connection's shard                            the other shard
//   HangUp hang_up(connection, here, there) ----> hang_up.line(), by value
//                                                 if (line->hung_up()) give up;
//                                                 HangUp::Attached attached(*line, operation);
//                                                 co_await operation.wait();
//   connection.close() ----- post ------------->  operation.cancel()
//
// When both are one shard nothing is posted.  The HangUp lives in the coroutine that answers the
// request; the line is looked at on the other shard alone.

#include <memory>

#include "broker/connection.h"
#include "purgatory/delayed_operation.h"

namespace tarry::broker {

class ShardContext;

class HangUp {
 public:
  class Line {
   public:
    bool hung_up() const { return hung_up_; }

   private:
    friend class HangUp;
    bool hung_up_ = false;
    purgatory::DelayedOperation* operation_ = nullptr;
  };

  // While it lives the operation is the one that is cancelled.
  class Attached {
   public:
    Attached(Line& line, purgatory::DelayedOperation& operation) : line_(line) {
      line_.operation_ = &operation;
    }
    ~Attached() { line_.operation_ = nullptr; }
    Attached(const Attached&) = delete;
    Attached& operator=(const Attached&) = delete;

   private:
    Line& line_;
  };

  HangUp(Connection& connection, ShardContext& here, ShardContext& there);

  const std::shared_ptr<Line>& line() const { return line_; }

 private:
  static void hang_up(Line& line);

  const std::shared_ptr<Line> line_ = std::make_shared<Line>();
  const Connection::OnClose on_close_;
};

}  // namespace tarry::broker
