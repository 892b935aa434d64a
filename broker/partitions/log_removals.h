#pragma once

// LogRemovals: takes the files of a shard's deleted partitions off the disk, one log after the
// other.
//
//   add(removals) --> [ waiting ] --> one piece of work on the pool, until nothing waits
//
// A topic may have ten thousands of partitions, of which a shard lets go in many small steps.  If
// each step were a piece of work of its own, all threads of the pool would be at it at once: they
// would take the cores from those who serve clients, and the pool from those who wait for a read.
//
// What was added is removed even if the shard stops meanwhile, because the pool finishes its work:
// nobody else would find a log that still has its name.
//
// Belongs to its shard and its thread; files are removed on the shard's background.

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/background.h"
#include "base/result.h"
#include "storage/retention.h"

namespace tarry::broker {

class LogRemovals {
 public:
  // Without memory for the work they wait for the next ones, and std::bad_alloc is thrown.
  void add(Background& background, std::vector<storage::LogRemoval> removals);

 private:
  // The work has it too, and may outlive the shard.
  struct Waiting {
    Result<> remove();  // All of them; the first error.

    std::mutex mutex;  // Protects what follows.
    std::deque<storage::LogRemoval> logs;
    bool is_at_work = false;
  };
  const std::shared_ptr<Waiting> waiting_ = std::make_shared<Waiting>();
};

}  // namespace tarry::broker
