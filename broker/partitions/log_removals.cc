#include "broker/partitions/log_removals.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "base/log.h"

namespace tarry::broker {

Result<> LogRemovals::Waiting::remove() {
  Result<> first_failed;
  std::unique_lock lock(mutex);
  while (!logs.empty()) {
    storage::LogRemoval removal = std::move(logs.front());
    logs.pop_front();
    lock.unlock();
    // An exception must not leave it at work for ever.
    auto removed = Background::caught([&removal] { return removal.run(); });
    if (!removed && first_failed) first_failed = std::move(removed);
    lock.lock();
  }
  is_at_work = false;
  return first_failed;
}

void LogRemovals::add(Background& background, std::vector<storage::LogRemoval> removals) {
  if (removals.empty()) return;
  {
    const std::scoped_lock lock(waiting_->mutex);
    std::ranges::move(removals, std::back_inserter(waiting_->logs));
    if (std::exchange(waiting_->is_at_work, true)) return;
  }
  try {
    background.run([waiting = waiting_] { return waiting->remove(); },
                   [](const Result<>& removed) {
                     if (!removed)
                       log_warn("broker", "the files of a deleted log could not be removed: {}",
                                removed.error().message);
                   });
  } catch (const std::bad_alloc&) {
    const std::scoped_lock lock(waiting_->mutex);
    waiting_->is_at_work = false;
    throw;
  }
}

}  // namespace tarry::broker
