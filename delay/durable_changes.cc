#include "delay/durable_changes.h"

#include <algorithm>
#include <utility>

namespace tarry::delay {

bool DurableChanges::has_time() {
  const auto pause = time_.mono() - ended_;
  spent_ = std::max(spent_ - pause, std::chrono::nanoseconds{0});
  return spent_ < turn_time;
}

void DurableChanges::add(const TopicPartition& partition, Apply change) {
  // Most changes are small: they are applied at once and never wait in the queue.
  if (changes_.empty() && !applying_ && has_time()) {
    std::size_t budget = slice_records;
    const MonoTime began = time_.mono();
    applying_ = true;
    const bool applied = change(budget);
    applying_ = false;
    ended_ = time_.mono();
    spent_ += ended_ - began;
    if (applied) return apply(budget);  // Others may have come meanwhile.
    queues_.hold(partition);
    changes_.push_front({partition, std::move(change)});
    return wake_();
  }
  queues_.hold(partition);
  changes_.push_back({partition, std::move(change)});
  wake_();
}

void DurableChanges::apply(std::size_t& budget) {
  // A change may end in a call that adds another one.
  if (std::exchange(applying_, true)) return;
  while (!changes_.empty() && budget > 0) {
    Change& first = changes_.front();
    if (!first.apply(budget)) break;
    const TopicPartition partition = first.partition;
    changes_.pop_front();
    queues_.release(partition);
  }
  applying_ = false;
  if (!changes_.empty()) wake_();
}

}  // namespace tarry::delay
