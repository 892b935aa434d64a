#pragma once

// AppendQueue: the order in which a partition takes producers' batches.
//
//   append() --> [ checked | its ids are read | being checked ] --> taken, one after the other
//                    first                                 last
//
// A batch has its place as soon as append() has it.  One that takes long to check is checked
// on the pool (batch_checks.h), and those behind it wait: offsets and producers' sequences are
// given out in the order in which requests were decoded, compressed or not.  All that a batch needs
// to know of the ids of its records is read on the pool too, for all that wait at the same time.
//
// A batch that schedules records is taken apart when it is first; a long one in steps, for which
// those behind it wait.  Then it has what it needs: room under the quotas and the ids that it
// takes. Its dead letters (dead_letters.h) are written after that, so that a batch that is refused,
// and sent again and again, has none.  Those behind it wait until they are durable.
//
// Many that wait behind one may be ready at once.  A turn of the shard takes about a thousand of
// their scheduled records, and the next turn goes on.
//
// A partition whose batches are all short, without ids and dead letters, never has one of these.
//
// Belongs to its partition's shard and thread.  Lives on until the last batch is answered, also
// when the partition goes before.

#include <deque>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"
#include "broker/partitions/appended.h"
#include "broker/partitions/arrival.h"
#include "broker/partitions/batch_checks.h"
#include "broker/partitions/dead_letters.h"
#include "delay/accepted_batch.h"
#include "delay/batch_schedules.h"
#include "delay/bucket_tier.h"

namespace tarry::broker {

class AppendQueue : public std::enable_shared_from_this<AppendQueue> {
 public:
  using Verdict = std::optional<BatchChecks::Verdict>;  // Empty: there was no memory to look.
  using IdRows = delay::BucketTier::IdRows;
  // The parts that the delay engine made of a batch; empty: no record of it is scheduled, or it is
  // refused for another reason.
  using Parts = std::optional<std::expected<delay::AcceptedBatch, delay::ScheduleErrors>>;
  struct Steps {
    // Reads what is known of the ids of a checked batch, whose records live until `done` is called:
    // perhaps at once.
    std::move_only_function<void(const delay::BatchSchedules& schedules,
                                 std::move_only_function<void(Result<IdRows>)> done)>
        read_ids;
    // The records of a batch that the delay engine has accepted that have to be written elsewhere
    // before it is taken, if it is going to be taken.
    std::move_only_function<std::optional<DeadLetters>(const Arrival& arrival,
                                                       const Verdict& verdict)>
        dead_letters;
    // Writes some of that; `done` comes later.
    std::move_only_function<void(Buffer batch, std::move_only_function<void(Result<>)> done)> write;
    // Has the delay engine take a checked batch apart, if it is going to be taken.  All of it lives
    // until `done` is called: perhaps at once.
    std::move_only_function<void(const Arrival& arrival, const Verdict& verdict, Result<IdRows> ids,
                                 std::move_only_function<void(Parts)> done)>
        split;
    // Appends it, or refuses it; `written`: whether its dead letters are durable.
    std::move_only_function<Appended(const Arrival& arrival, Verdict verdict, Parts parts,
                                     const Result<>& written)>
        take;
  };

  // Runs something in a later turn of the shard.
  using Post = std::function<void(std::function<void()>)>;

  AppendQueue(Steps steps, BatchChecks& checks, Post post)
      : steps_(std::move(steps)), checks_(checks), post_(std::move(post)) {}

  bool empty() const { return queue_.empty(); }
  // If it throws, the batch is not in the queue.
  void add(Arrival arrival, BatchChecks::Job job);
  // The same for one that is checked already.
  void add_checked(Arrival arrival, BatchChecks::Job job, BatchChecks::Verdict verdict);
  // The partition takes nothing any more: what waits is refused as soon as it may be.
  void retire();
  // The partition goes.  Without retire() before, its shard does, and so did everybody who waits.
  void abandon();

 private:
  struct Place {
    Arrival arrival;
    BatchChecks::Job job;
    enum class State {
      checking,  // On the pool.
      larger,    // Unpacks to more than the usual lane allows: the large lane when it is first.
      reading,   // Its records are being read, to know their ids.
      checked,
      splitting,  // As the first.
      split,
      writing,  // Its dead letters.
      written,  // They are durable, or never will be.
    } state = State::checking;
    BatchChecks::Checked checked = {};
    Result<IdRows> ids = IdRows{};
    std::optional<DeadLetters> letters = {};  // View `checked`.
    Result<> letters_written = {};
    Parts parts = {};
  };

  void check(Place& place, BatchChecks::Lane lane);
  void was_checked(Place& place, BatchChecks::Lane lane, BatchChecks::Checked checked);
  void read_ids(Place& place);
  void forget_checked();
  void check_larger(Place& first);
  bool begin_to_write(Place& first);
  void write_next(Place& first);
  void was_written(Place& first, Result<> result);
  void split(Place& first);
  Appended take(Place& first);
  std::size_t scheduled_records(const Place& place) const;
  bool go_on_later();
  void append_checked() noexcept;

  bool is_taking() const { return steps_.has_value(); }

  std::optional<Steps> steps_;  // Empty: the partition has retired, or is gone.
  BatchChecks& checks_;
  const Post post_;
  std::deque<Place> queue_;  // Places stay where they are while they are in it.
  bool taking_ = false;
  bool posted_ = false;  // The next turn goes on.
};

}  // namespace tarry::broker
