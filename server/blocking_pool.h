#pragma once

// BlockingPool: the threads that wait for the disk, so that no shard's thread does.
//
//   shard 0 --run--> [ work work work ] --> tarry-io-0 ... tarry-io-5 --post--> shard 0: then
//   shard 1 --run-->    one queue                                     --post--> shard 1: then
//
// One queue for all shards.  There are so many threads that a journal's round finds one free while
// others sit in a long flush: a shard has at most one round, one checkpoint step (with a flush of
// RocksDB in it) and a few reads of old segments at a time, hence two a shard and two for all.
// A thread costs some kilobytes, and sleeps while there is nothing to do.
//
// What always holds: `then` runs on its shard's io_context, never inside run(), and only after
// its work is done.  What was begun is finished: stop() waits for it.
//
// Any thread may hand work in.  An exception out of a piece of work ends the process: work says
// what went wrong in what it returns.

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "base/background.h"

namespace tarry::server {

class BlockingPool {
 public:
  explicit BlockingPool(std::size_t threads);
  ~BlockingPool();

  static std::size_t threads_for(std::size_t shards) { return 2 * shards + 2; }

  // A shard's own door to the pool.  `context` lives until the pool is stopped; the pool until
  // the last use of the door.
  std::unique_ptr<Background> background_for(boost::asio::io_context& context);

  // Finishes what was handed in, and ends the threads.  What is handed in later is let go: nobody
  // waits for it any more.
  void stop();

 private:
  class Door;
  struct Job {
    boost::asio::io_context& context;
    Background::Work work;
    Background::Work then;
  };

  void hand_in(Job job);
  void run();

  std::mutex mutex_;  // Of all below but threads_.
  std::condition_variable handed_in_;
  std::deque<Job> jobs_;  // Bounded by what the shards have in flight.
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tarry::server
