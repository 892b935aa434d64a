#pragma once

// Turns: a request that names many things is answered in many turns of its shard, so that others
// get theirs in between.
//
//   Turns turns(context.shard, &context.connection);
//   for (const auto& name : request.names) {
//     if (turns.over() && !co_await turns.next()) co_return response;  // Nobody waits for it.
//     ... a microsecond's work ...
//   }
//
// How many it may name is bounded by most_request_bytes (table.h).

#include <cstddef>

#include <boost/asio/awaitable.hpp>

namespace tarry::broker {

class Connection;
class Shard;

class Turns {
 public:
  // On the shard's thread.  `connection`: of this shard; null when its end ends nothing.
  Turns(Shard& shard, const Connection* connection) : shard_(shard), connection_(connection) {}

  // Another step, of `microseconds` or so; true: it is the others' turn.
  bool over(std::size_t microseconds = 1) {
    spent_ += microseconds;
    return spent_ > turn;
  }

  // False when nobody waits for the answer any more.
  boost::asio::awaitable<bool> next();

 private:
  // A millisecond or two: short enough that nobody notices, and its end costs a thousandth of it.
  static constexpr std::size_t turn = 1000;

  Shard& shard_;
  const Connection* const connection_;
  std::size_t spent_ = 0;
};

}  // namespace tarry::broker
