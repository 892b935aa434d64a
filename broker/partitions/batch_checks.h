#pragma once

// BatchChecks: checks those batches of producers that take long to check.
//
//   Partition --run()--> [ waiting ] --> pool: unpack, check, read schedules ------> done()
//                             |                                                       |
//                             '---- so much unpacked at once, and no more <--- Room --'
//
// A compressed batch can unpack to any size, and only unpacking shows its size.  So a batch is
// first unpacked within a multiple of its own size, in the usual lane; the few that need more are
// unpacked again up to the limit (tarry.decompressed.max.bytes), in the lane for large ones, one at
// a time.  A decompression bomb waits for other bombs, and normal batches do not wait for it.
//
// Invariants
//   - Unpacked bytes that are not given back are at most `bytes` in the usual lane (or one batch,
//     if that is larger) and one batch in the large one; while a batch is being unpacked it is
//     there twice for a moment (records/compression.h).
//   - Each lane begins its batches in the order of run().
//   - A holder of room never waits for room: a partition runs the large lane only for the batch
//     that is first in its queue, so what is held is always given back.
//
// One a shard, on its thread.

#include <cstddef>
#include <deque>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/background.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "delay/batch_schedules.h"
#include "records/batch_check.h"

namespace tarry::broker {

// A batch that its topic accepts, and the schedules of its records.
struct CheckedArrival {
  records::CheckedBatch batch;  // Stays unpacked only when something in it is scheduled.
  std::expected<delay::BatchSchedules, delay::ScheduleErrors> schedules;
  // It in its topic's codec; null: it has that, or is taken apart.
  std::shared_ptr<Buffer> repacked = nullptr;
};

class BatchChecks {
 public:
  enum class Lane { usual, large };

  // The part of a lane's bound that one batch holds, until it is destroyed.
  class Room {
   public:
    Room() = default;
    Room(Room&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), lane_(other.lane_), bytes_(other.bytes_) {}
    Room& operator=(Room&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(lane_, other.lane_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Room() {
      if (owner_ != nullptr) owner_->give_back(lane_, bytes_);
    }

   private:
    friend class BatchChecks;
    Room(BatchChecks& owner, Lane lane, std::size_t bytes)
        : owner_(&owner), lane_(lane), bytes_(bytes) {}
    void shrink_to(std::size_t bytes);

    BatchChecks* owner_ = nullptr;
    Lane lane_ = Lane::usual;
    std::size_t bytes_ = 0;
  };

  // A batch to check.
  struct Job {
    Bytes records;  // Live until `done`.
    records::CheckLimits limits;
    delay::TopicDelay delay;
    WallTime arrived;   // Delays count from here,
    WallTime believed;  // and what is due by then is due on arrival (delay/schedule.h).
    delay::InvalidHeaders invalid = delay::InvalidHeaders::refuse;
    // Its request has had its time on the shard's thread: it is checked on the pool if it is short,
    // too.
    bool on_pool = false;
  };
  using Verdict = std::expected<CheckedArrival, records::BatchError>;
  struct Checked {
    std::optional<Verdict> verdict;  // Empty: there was no memory for it.
    Room room;
  };
  using Done = std::move_only_function<void(Checked)>;

  BatchChecks(Background& background, std::size_t bytes);

  // Whether nothing can come of checking it here that takes long: not compressed, short, and not
  // too many records.
  static bool is_short(const Job& job);
  // Looks at a short batch, compressed or not, where it is.  Empty when it is none, unpacks to more
  // than a short one does, or there is no memory: run() it.
  static std::optional<Verdict> check_inline(const Job& job);
  // The size to which it may unpack in the usual lane.
  static std::size_t usual_lane_cap(const Job& job);

  // Looks at it on the pool; `done`, which does not throw, on the shard's thread: inside run() only
  // when there is no memory.  In the usual lane within its cap: Refusal::message_too_large may come
  // of that alone.  When it throws, `done` does not come.
  void run(Lane lane, Job job, Done done);

 private:
  struct Waiting {
    Waiting(Job its_job, Done its_done) : job(std::move(its_job)), done(std::move(its_done)) {}
    Job job;
    Done done;
  };
  struct State {
    std::deque<std::shared_ptr<Waiting>> waiting;
    std::size_t held = 0;  // Bytes, of `running` and of what is not given back.
    std::size_t running = 0;
  };

  State& state(Lane lane) { return states_[static_cast<std::size_t>(lane)]; }
  bool has_room(Lane lane, std::size_t bytes);
  void begin_some(Lane lane);
  void give_back(Lane lane, std::size_t bytes);

  Background& background_;
  const std::size_t bytes_;
  State states_[2];
};

}  // namespace tarry::broker
