#pragma once

// BlockingPool: the threads that wait for the disk, so that no shard's thread does.
//
//   shard 0 --run--> [ work work work ] --> tarry-io-0 ... tarry-io-3 --post--> shard 0: then
//   shard 1 --run-->    one queue                                     --post--> shard 1: then
//
//   shard 0 --run--> [ round ]          --> tarry-round-0           --post--> shard 0: then
//   shard 1 --run--> [ round ]          --> tarry-round-1           --post--> shard 1: then
//
// One queue for what all shards want: opens, reads of old segments, decompression, checkpoints.
// Any number of these may be waiting, and every client waits for the journals, so a journal's
// rounds have a lane and a thread of their own and stand behind nobody: there is one round of a
// journal at a time.  A thread costs some kilobytes, and sleeps while there is nothing to do.
//
// What always holds: `then` runs on its shard's io_context, never inside run(), and only after
// its work is done.  What was begun is finished: stop() waits for it.
//
// Any thread may hand work in.  An exception out of a piece of work ends the process: work says
// what went wrong in what it returns (base/background.h).

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "base/background.h"

namespace tarry::server {

class BlockingPool {
 public:
  using StartThread = std::function<std::thread(std::move_only_function<void()>)>;

  // Throws when there can be no more threads; those that have begun have ended then.
  explicit BlockingPool(std::size_t threads, StartThread start = start_thread);
  ~BlockingPool();

  // A shard has at most three checks of batches, one checkpoint step (with a flush of RocksDB in
  // it) and a few reads at a time; none of them is to wait for the checks.
  static std::size_t threads_for(std::size_t shards) { return 4 * shards + 2; }

  // A shard's own door to the pool.  `context` lives until the pool is stopped; the pool until
  // the last use of the door.
  std::unique_ptr<Background> background_for(boost::asio::io_context& context);

  // The same with a thread of its own, which has this name and does nothing else.  Before stop().
  std::unique_ptr<Background> own_lane_for(boost::asio::io_context& context, std::string name);

  // Finishes what was handed in, and ends the threads.  What is handed in later is let go: nobody
  // waits for it any more.
  void stop();

 private:
  class Door;
  class Queue;

  static std::thread start_thread(std::move_only_function<void()> run) {
    return std::thread(std::move(run));
  }

  const StartThread start_;

  std::vector<std::unique_ptr<Queue>> queues_;  // The first one is everybody's.
};

}  // namespace tarry::server
