#include "delay/durable_changes.h"

#include <utility>

namespace tarry::delay {

void DurableChanges::add(const TopicPartition& partition, Apply change) {
  // Most changes are small: they are applied at once and never wait in the queue.
  if (changes_.empty() && !applying_) {
    std::size_t budget = step_records;
    applying_ = true;
    const bool applied = change(budget);
    applying_ = false;
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
