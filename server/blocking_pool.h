#pragma once

// BlockingPool: the threads that block on the disk, so that no shard's thread does.
//
//   shard 0 --run--> [ work work work ] --> tarry-io-0 ... tarry-io-3 --post--> shard 0: then
//   shard 1 --run-->    one queue                                     --post--> shard 1: then
//
//   shard 0 --run--> [ round ]          --> tarry-round-0           --post--> shard 0: then
//   shard 1 --run--> [ round ]          --> tarry-round-1           --post--> shard 1: then
//
// All shards share one queue for opens, reads of old segments, decompression and checkpoints.  Many
// of these may be queued, and every client waits for the journals.  So each journal's rounds have a
// lane and a thread of their own and never queue behind other work: there is one round of a journal
// at a time.  A thread costs some kilobytes and sleeps while it has nothing to do.
//
// Invariants: `then` runs on its shard's io_context, never inside run(), and only after its work is
// done.  Work that was begun is finished: stop() waits for it.
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

  // Throws when the system refuses another thread; the threads that had begun are ended first.
  explicit BlockingPool(std::size_t threads, StartThread start = start_thread);
  ~BlockingPool();

  // A shard has at most three checks of batches (two in the usual lane, one in the large one), one
  // checkpoint step (with a RocksDB flush in it) and a few reads at a time; no other work has to
  // wait for the checks.
  static std::size_t threads_for(std::size_t shards) { return 4 * shards + 2; }

  // A shard's own handle to the pool.  `context` lives until the pool is stopped; the pool until
  // the last use of the handle.
  std::unique_ptr<Background> background_for(boost::asio::io_context& context);

  // The same with a thread of its own, which has this name and does nothing else.  Before stop().
  std::unique_ptr<Background> dedicated_lane(boost::asio::io_context& context, std::string name);

  // Finishes the work that was handed in, then ends the threads.  Work that is handed in later is
  // dropped, because nothing waits for it any more.
  void stop();

 private:
  class Door;
  class Queue;

  static std::thread start_thread(std::move_only_function<void()> run) {
    return std::thread(std::move(run));
  }

  const StartThread start_;

  std::vector<std::unique_ptr<Queue>> queues_;  // The first one is shared by all shards.
};

}  // namespace tarry::server
