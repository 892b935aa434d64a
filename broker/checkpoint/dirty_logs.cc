#include "broker/checkpoint/dirty_logs.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>

#include "base/assert.h"
#include "base/background.h"
#include "broker/checkpoint/shortage_retry.h"
#include "broker/context/shard_context.h"
#include "broker/partitions/partition.h"
#include "broker/partitions/partitions.h"

namespace tarry::broker {
namespace {

// Logs written by one piece of background work: few enough that others get their turn.
constexpr std::size_t logs_per_batch = 64;

// Logs of deleted topics, and others that have nothing to write, are passed over in one turn.
constexpr std::size_t logs_a_turn = 1000;

// However many partitions there are, each keeps this much in memory for the readers behind it.
constexpr std::size_t min_tail_share = 16 * 1024;

}  // namespace

struct DirtyLogs::LogFlush {
  TopicPartition tp;
  storage::Flush flush;
  Result<storage::FlushDone> done = fail(Errc::exhausted, "not run yet");

  // May be tried again after a lack of memory, too: it writes the same to the same places.
  Result<storage::FlushDone> run() {
    try {
      return flush.run(true);
    } catch (const std::bad_alloc&) {
      return fail(Errc::exhausted, "no memory");  // Short enough to need no allocation.
    }
  }
  bool must_run() const { return !done && done.error().code == Errc::exhausted; }
};

struct DirtyLogs::Run {
  std::unordered_set<TopicPartition> logs;  // That no batch has had.
  std::size_t bytes = 0;                    // As DirtyLogs::bytes() was when it began.
  std::vector<LogFlush> batch;
  std::move_only_function<void(Result<>)> done;
};

DirtyLogs::DirtyLogs(ShardContext& shard, Partitions& partitions, ShortageRetry& shortage)
    : shard_(shard), partitions_(partitions), shortage_(shortage) {}

DirtyLogs::~DirtyLogs() = default;

void DirtyLogs::note(Partition& partition, std::size_t bytes) {
  // The bytes of a deleted topic count too.  The engine has counted them as unwritten, and they
  // count there no more when the flush has ended that is asked for because of bytes().
  bytes_ += bytes;
  if (!partition.retired()) dirty_.insert(partition.id());
}

void DirtyLogs::clear() {
  dirty_.clear();
  bytes_ = 0;
}

void DirtyLogs::flush(std::move_only_function<void(Result<>)> done) {
  auto run = std::make_shared<Run>();
  // Taken as it is: to copy fifty thousand would take some milliseconds.
  run->logs.swap(dirty_);
  run->bytes = bytes_;
  // Ahead, because a log of which a flush was planned waits for its end.
  run->batch.reserve(std::min(run->logs.size(), logs_per_batch));
  run->done = std::move(done);
  // Logs that are noted from here on are for the next flush.
  clear();
  next_batch(std::move(run));
}

void DirtyLogs::next_batch(std::shared_ptr<Run> run) {
  run->batch.clear();
  for (;;) {
    fill_batch(*run);
    if (!run->batch.empty()) return run_batch(std::move(run));
    if (run->logs.empty()) return run->done({});
    try {
      return boost::asio::post(shard_.executor(), [this, run] { next_batch(run); });
    } catch (const std::bad_alloc&) {
      // Then in this turn: nobody else would continue it.
    }
  }
}

void DirtyLogs::fill_batch(Run& run) {
  for (std::size_t seen = 0; seen < logs_a_turn && !run.logs.empty(); ++seen) {
    if (run.batch.size() == logs_per_batch) return;
    const TopicPartition tp = *run.logs.begin();
    run.logs.erase(run.logs.begin());
    auto* partition = partitions_.find(tp);
    // Its topic was deleted since it was noted.
    if (partition == nullptr) continue;
    if (auto flush = partition->plan_flush()) run.batch.push_back({tp, std::move(*flush)});
    // Visible before it is durable: a later checkpoint writes it.
    if (partition->has_more_to_flush()) note(*partition, 0);
  }
}

void DirtyLogs::run_batch(std::shared_ptr<Run> run) {
  shard_.background().run(
      [run] {
        for (auto& one : run->batch) {
          if (one.must_run()) one.done = Background::caught([&] { return one.run(); });
        }
      },
      [this, run]() mutable {
        const auto postponed = std::ranges::find_if(run->batch, &LogFlush::must_run);
        if (postponed == run->batch.end() || !shortage_.may_wait())
          return batch_ran(std::move(run));
        // A flush that was begun is finished, not given up: it may have written a part already.
        const Error error = postponed->done.error();
        waiting_ = std::move(run);
        shortage_.later(error);
      });
}

bool DirtyLogs::resume() {
  if (!waiting_) return false;
  run_batch(std::exchange(waiting_, nullptr));
  return true;
}

void DirtyLogs::batch_ran(std::shared_ptr<Run> run) {
  std::optional<Error> failed;
  for (auto& one : run->batch) {
    auto* partition = partitions_.find(one.tp);
    if (partition == nullptr) {
      // Deleted meanwhile: its files go when the flush is over, whatever came of this.
      partition = partitions_.retired(one.tp);
      TARRY_ASSERT(partition != nullptr, "a log that is being flushed is kept");
      one.done ? partition->flushed(std::move(*one.done))
               : partition->flush_failed(one.done.error());
      continue;
    }
    if (one.done) {
      partition->flushed(std::move(*one.done));
      partition->trim_tail(tail_share());
    } else {
      partition->flush_failed(one.done.error());
      note(*partition, 0);
      failed = one.done.error();
    }
  }
  if (!failed) return next_batch(std::move(run));
  note_rest(*run);
  bytes_ += run->bytes;
  run->done(std::unexpected(*failed));
}

// The smaller set is added to the larger one.  Those whose topics are deleted are passed over by
// the next flush.
void DirtyLogs::note_rest(Run& run) {
  if (dirty_.size() < run.logs.size()) dirty_.swap(run.logs);
  dirty_.merge(run.logs);
}

std::size_t DirtyLogs::tail_share() const {
  // Half of the budget is for what is not written yet; the rest is shared by those who read behind.
  const auto share = static_cast<std::size_t>(shard_.config().tail_bytes) / 2 /
                     std::max<std::size_t>(partitions_.all().size(), 1);
  return std::max(share, min_tail_share);
}

}  // namespace tarry::broker
