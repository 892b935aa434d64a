#pragma once

// DeliveryWaiters: the requests that wait until a record is delivered (Engine::deliver_now()).
//
// Invariant: each is answered once, when it is decided what becomes of the record: with its
// offset, with what took it away instead, or with the reason why its partition takes no delivery.
// So nobody waits for a disk that is mended some day.
//
// Belongs to its engine, on its thread.

#include <cstddef>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "delay/controlled.h"

namespace tarry::delay {

class DeliveryWaiters {
 public:
  // Answers at once if too many wait for it already.
  void add(Sequence sequence, const TopicPartition& partition, ControlDone done);
  void answer(Sequence sequence, const Result<Controlled>& answer);
  // A delivery of the partition was refused; the record is tried again, and nobody is told of that.
  void refused(const TopicPartition& partition, const Error& why);
  // Nothing is delivered any more: who waits, and who comes later, is told why.
  void stop(const Error& why);
  const std::optional<Error>& stopped() const { return stopped_; }
  // Its records are gone.
  void topic_deleted(const TopicId& topic);

  bool empty() const { return records_.empty(); }

 private:
  template <typename Belongs>
  std::vector<Sequence> awaited(const Belongs& belongs) const;

  struct Record {
    TopicPartition partition;
    std::vector<ControlDone> waiting;
  };
  std::unordered_map<Sequence, Record> records_;
  std::optional<Error> stopped_;
};

}  // namespace tarry::delay
