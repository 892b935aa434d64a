#pragma once

// KafkaWheel: wheels of 20 buckets, each a linked list, and a heap of the buckets in use.
//
//    wheel 0   20 buckets of 1 tick     --+
//    wheel 1   20 buckets of 20 ticks   --+--> DelayQueue: buckets by the tick they begin at
//    wheel 2   20 buckets of 400 ticks  --+
//
// Kafka's design (kafka.server.util.timer) in C++.  An entry goes to the first wheel whose interval
// its deadline is within; wheels above are made when one overflows.  The driver takes the earliest
// bucket from the heap, moves the wheels' clocks to it and adds all of the bucket's entries again,
// so they run or come down a wheel: no empty ticks.  An entry is its owner's and is in one bucket
// at a time; cancel is O(1).
//
// Without Kafka's locks (a reader-writer lock, a monitor a bucket and one an entry): as if one
// thread owned it.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "bench/baselines/common.h"

namespace tarry::baselines {

class KafkaWheel {
  struct Bucket;

 public:
  class Entry : Link {
    friend class KafkaWheel;

    Bucket* bucket = nullptr;  // Null when not pending.
    Tick deadline = 0;
    Callback callback;
  };

  explicit KafkaWheel(Tick now = 0) : now_(now), lowest_(1, now) {}

  // Not while it is pending.
  void add(Entry& entry, Tick deadline, Callback callback) {
    entry.deadline = deadline;
    entry.callback = callback;
    if (!place(entry)) put(entry, overdue_);
    ++size_;
  }

  bool cancel(Entry& entry) {
    if (entry.bucket == nullptr) return false;
    Link::unlink(&entry);
    entry.bucket = nullptr;
    --size_;
    return true;
  }

  void advance(Tick now) {
    Bucket due;
    while (!overdue_.entries.empty()) move(overdue_, due);
    run(due);
    while (!heap_.empty() && heap_.front()->begin <= now) {
      std::pop_heap(heap_.begin(), heap_.end(), later);
      Bucket& bucket = *heap_.back();
      heap_.pop_back();
      for (Wheel* wheel = &lowest_; wheel != nullptr; wheel = wheel->above.get()) {
        if (bucket.begin < wheel->now + wheel->tick) break;
        wheel->now = bucket.begin - bucket.begin % wheel->tick;
      }
      bucket.begin = not_queued;
      while (!bucket.entries.empty()) {
        Entry& entry = static_cast<Entry&>(*bucket.entries.next);
        Link::unlink(&entry);
        if (!place(entry)) put(entry, due);
      }
      run(due);
    }
    now_ = std::max(now_, now);
  }

  std::optional<Tick> next_due() const {
    if (!overdue_.entries.empty()) return now_;
    return heap_.empty() ? std::nullopt : std::optional(heap_.front()->begin);
  }
  std::size_t size() const { return size_; }
  // Wheels and the heap; entries are their owners'.
  std::size_t bytes() const {
    std::size_t bytes = sizeof(*this) + heap_.capacity() * sizeof(Bucket*);
    for (const Wheel* wheel = lowest_.above.get(); wheel != nullptr; wheel = wheel->above.get()) {
      bytes += sizeof(Wheel);
    }
    return bytes;
  }

 private:
  static constexpr Tick not_queued = ~Tick{0};
  static constexpr Tick wheel_size = 20;

  struct Bucket {
    Link entries;
    Tick begin = not_queued;
  };
  struct Wheel {
    Wheel(Tick tick_length, Tick at) : tick(tick_length), now(at - at % tick_length) {}

    const Tick tick;
    Tick now;  // A multiple of tick.
    std::array<Bucket, wheel_size> buckets;
    std::unique_ptr<Wheel> above;
  };

  static bool later(const Bucket* left, const Bucket* right) { return left->begin > right->begin; }

  static void put(Entry& entry, Bucket& bucket) {
    bucket.entries.push_back(&entry);
    entry.bucket = &bucket;
  }
  static void move(Bucket& from, Bucket& to) {
    Entry& entry = static_cast<Entry&>(*from.entries.next);
    Link::unlink(&entry);
    put(entry, to);
  }

  // False when it is due.
  bool place(Entry& entry) {
    Wheel* wheel = &lowest_;
    if (entry.deadline < wheel->now + wheel->tick) return false;
    // The wheel whose interval 64 bits do not hold takes all that is left.
    while (wheel->tick <= ~Tick{0} / wheel_size &&
           entry.deadline - wheel->now >= wheel->tick * wheel_size) {
      if (!wheel->above) {
        wheel->above = std::make_unique<Wheel>(wheel->tick * wheel_size, wheel->now);
      }
      wheel = wheel->above.get();
    }
    const Tick number = entry.deadline / wheel->tick;
    Bucket& bucket = wheel->buckets[number % wheel_size];
    put(entry, bucket);
    if (bucket.begin == not_queued) {
      bucket.begin = number * wheel->tick;
      heap_.push_back(&bucket);
      std::push_heap(heap_.begin(), heap_.end(), later);
    }
    return true;
  }

  // They can still be cancelled, by those that run before them.
  void run(Bucket& due) {
    while (!due.entries.empty()) {
      Entry& entry = static_cast<Entry&>(*due.entries.next);
      Link::unlink(&entry);
      entry.bucket = nullptr;
      --size_;
      const Callback callback = entry.callback;
      callback();
    }
  }

  Tick now_;
  std::size_t size_ = 0;
  Wheel lowest_;
  Bucket overdue_;
  std::vector<Bucket*> heap_;
};

}  // namespace tarry::baselines
