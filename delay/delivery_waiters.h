#pragma once

// DeliveryWaiters: the requests that wait until a record is delivered (Engine::deliver_now()).
//
// Invariant: each is answered once, when it is decided what becomes of the record: with its
// offset, or with what took it away instead.
//
// Belongs to its engine, on its thread.

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "delay/controlled.h"

namespace tarry::delay {

class DeliveryWaiters {
 public:
  // Answers at once if too many wait for it already.
  void add(Sequence sequence, const TopicId& topic, ControlDone done);
  void answer(Sequence sequence, const Result<Controlled>& answer);
  // Its records are gone.
  void topic_deleted(const TopicId& topic);

  bool empty() const { return records_.empty(); }

 private:
  struct Record {
    TopicId topic;
    std::vector<ControlDone> waiting;
  };
  std::unordered_map<Sequence, Record> records_;
};

}  // namespace tarry::delay
