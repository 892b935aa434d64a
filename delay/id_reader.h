#pragma once

// IdReader: the last events of the ids that a batch takes, read before the batch is accepted.
//
//   read(ids) --> known here, not too many: answered at once
//            '--> few:  waits; all that wait become one question to the store
//            '--> many: a question of its own                 --> IdRows
//
// The store is asked on the Background, beside the lane: what memory was told since makes up for
// what the answer lacks (UnwrittenRows::Since).
//
// Invariants
//   - Each read() is answered once, also when the tier has gone or memory is short.
//   - One question for few is under way at a time, so that many small batches cost one question;
//     the next one begins before those of the last one are answered.
//   - A turn answers requests for some hundreds of ids, because each answer may go as far as a
//     change in the journal.
//   - memory() is the sum of the rows that requests hold.
//
// Belongs to its BucketTier, on its thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/background.h"
#include "base/ids.h"
#include "base/result.h"
#include "delay/dropped_topics.h"
#include "delay/lane.h"
#include "delay/unwritten_rows.h"
#include "storage/bucket_store.h"

namespace tarry::delay {

// The store's rows of several ids of a partition.  While there is one, memory keeps what it was
// told since the store was asked, written or not: together they know the last event of each.  So it
// may be asked for long before it is used.  Short-lived.
class IdRows {
 public:
  using Lasts = std::vector<std::optional<storage::ScheduleEvent>>;

  IdRows() = default;
  explicit IdRows(UnwrittenRows::Since since) : since_(std::move(since)) {}

  std::uint64_t since() const { return since_.number; }
  // The store's last event of the id that is number `at` of those that were asked for.
  std::optional<storage::ScheduleEvent> last(std::size_t at) const {
    return last_.empty() ? std::nullopt : last_.at(at);
  }

  void set_last(Lasts last) { last_ = std::move(last); }
  // While `held` is held, these rows count as memory.
  void count_by(std::shared_ptr<const bool> held) { held_ = std::move(held); }

 private:
  Lasts last_;  // One for each; none: memory knew all.
  UnwrittenRows::Since since_;
  std::shared_ptr<const bool> held_;
};

class IdReader {
 public:
  using Done = std::move_only_function<void(Result<IdRows>)>;

  IdReader(storage::BucketStore& store, Background& background, Lane& lane,
           const UnwrittenRows& unwritten, const DroppedTopics& dropped)
      : store_(store),
        background_(background),
        lane_(lane),
        unwritten_(unwritten),
        dropped_(dropped) {}

  // The bytes of the ids live until `done` is called, perhaps at once.
  void read(const TopicPartition& partition, std::vector<std::string_view> ids, Done done);
  // The last event of the id that is number `at` of those that `rows` were read for; empty: the id
  // is unknown.
  std::optional<storage::ScheduleEvent> last_event(const TopicPartition& partition,
                                                   std::string_view id, const IdRows& rows,
                                                   std::size_t at) const;

  std::size_t memory() const { return memory_; }
  // Rows of requests that ended count no more.
  void forget_ended();

 private:
  struct Question {
    TopicPartition partition;
    std::vector<std::string_view> ids;
    IdRows rows;
    Done answer;
  };
  using Questions = std::vector<Question>;
  // Questions about a few ids each.  A piece of work may outlive the tier, and answers them all the
  // same.
  struct ForFew {
    Questions waiting;
    bool asking = false;
  };

  using Lasts = Result<std::vector<IdRows::Lasts>>;
  // Questions that were asked together, and how many are answered.
  struct Answered {
    std::shared_ptr<Questions> asked;
    Lasts lasts{};
    std::size_t next = 0;

    // Answers for so many ids; true: there are more.
    bool answer(std::size_t ids);
  };

  void ask_next();
  void ask(std::shared_ptr<Questions> asked, bool is_for_few);
  static void answer(Background& background, const std::shared_ptr<Answered>& answered);
  static void refuse(Questions asked, const char* why);

  storage::BucketStore& store_;
  Background& background_;
  Lane& lane_;
  const UnwrittenRows& unwritten_;
  const DroppedTopics& dropped_;
  const std::shared_ptr<ForFew> for_few_ = std::make_shared<ForFew>();
  // IdRows that there may be, oldest first, and their bytes.
  std::deque<std::pair<std::weak_ptr<const bool>, std::size_t>> held_;
  std::size_t memory_ = 0;
};

}  // namespace tarry::delay
