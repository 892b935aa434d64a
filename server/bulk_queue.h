#pragma once

// BulkQueue: the connections of a shard that have much to receive or to send do it in turn, so that
// those with little to say wait for none of them.
//
//   sockets, timers, small requests --> all that is ready --.
//        ^                                                  |
//        '------- a quarter of a megabyte of large <--------'
//                  requests and answers, in turn
//
// The kernel has a megabyte ready for each of a hundred connections.  To read all of it takes a
// tenth of a second: the kernel copies it into memory that nobody has used yet.  So much would
// every other connection wait, each time that its request is read or its answer is sent.
//
// Everything runs on the shard's thread.

#include <cstddef>
#include <deque>
#include <functional>

#include <boost/asio/any_io_executor.hpp>

namespace tarry::server {

class BulkQueue {
 public:
  // Moves the next bytes of one connection, and returns how many; if it has done other work as
  // well, `bytes_a_round`, which ends the round.  It does not throw.
  using Move = std::move_only_function<std::size_t()>;

  explicit BulkQueue(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}
  BulkQueue(const BulkQueue&) = delete;
  BulkQueue& operator=(const BulkQueue&) = delete;

  // Calls it when what is ready now has run, and it is its turn.  std::bad_alloc: it does not.
  void add(Move move);

  std::size_t waiting() const { return waiting_.size(); }

  // What all connections move before the shard looks at its sockets again, which takes some tenths
  // of a millisecond.  The last one may exceed it by what one reads or sends at once.
  static constexpr std::size_t bytes_a_round = 256 * 1024;

 private:
  void run();
  void post_run();

  const boost::asio::any_io_executor executor_;
  std::deque<Move> waiting_;
  bool is_posted_ = false;  // run(), or it runs.
};

}  // namespace tarry::server
