#include "broker/checkpoint/producer_saves.h"

#include <set>
#include <utility>
#include <vector>

#include "base/background.h"
#include "broker/context/broker_context.h"
#include "broker/context/shard_context.h"
#include "broker/partitions/partition.h"
#include "broker/partitions/partitions.h"
#include "storage/producer_states.h"

namespace tarry::broker {
namespace {

// Limits of one turn: partitions that are asked, and rows after which no more are.  One partition
// has ten thousand producers at most.
constexpr std::size_t partitions_asked_a_turn = 256;
constexpr std::size_t rows_a_turn = 2'048;

struct SavedRows {
  TopicPartition tp;
  std::vector<storage::ProducerStates::Row> rows;
};

}  // namespace

struct ProducerSaves::Run {
  Lsn durable;
  std::unordered_set<TopicPartition> left;
  std::vector<SavedRows> batch;
  std::set<TopicId> gone;  // Rows of theirs were written, and they are deleted.
  std::move_only_function<void(Result<>)> done;
};

void ProducerSaves::save(Lsn durable, std::move_only_function<void(Result<>)> done) {
  next_batch(std::make_shared<Run>(durable, std::exchange(changed_, {}), std::vector<SavedRows>(),
                                   std::set<TopicId>(), std::move(done)));
}

void ProducerSaves::next_batch(std::shared_ptr<Run> run) {
  run->batch.clear();
  std::size_t rows = 0;
  for (std::size_t asked = 0;
       asked < partitions_asked_a_turn && rows < rows_a_turn && !run->left.empty(); ++asked) {
    const TopicPartition tp = *run->left.begin();
    run->left.erase(run->left.begin());
    Partition* const partition = partitions_.find(tp);
    if (partition == nullptr) continue;  // Its topic was deleted since.
    auto changes = partition->producer_changes(run->durable);
    // A part of them is not durable yet.
    if (partition->producers_changed()) note(tp);
    rows += changes.size();
    if (!changes.empty()) run->batch.push_back({tp, std::move(changes)});
  }
  if (run->batch.empty() && run->gone.empty() && run->left.empty()) return run->done({});
  shard_.background().run(
      [run, meta = shard_.broker_context().meta]() -> Result<> {
        for (const auto& topic : std::exchange(run->gone, {}))
          if (auto dropped = storage::drop_producer_states(*meta, topic); !dropped) return dropped;
        for (const auto& one : run->batch) {
          auto saved = storage::save_producer_states(*meta, one.tp, one.rows);
          if (!saved) return saved;
        }
        return {};
      },
      [this, run](const Result<>& written) mutable { batch_written(std::move(run), written); });
}

void ProducerSaves::batch_written(std::shared_ptr<Run> run, const Result<>& written) {
  for (const auto& one : run->batch) {
    Partition* const partition = partitions_.find(one.tp);
    if (partition == nullptr) {
      run->gone.insert(one.tp.topic);
    } else if (!written) {
      // Their changes were taken from the partition; without this the next checkpoint would lack
      // them.
      partition->producers_not_saved(one.rows);
      note(one.tp);
    }
  }
  if (!written) {
    changed_.merge(run->left);
    return run->done(written);
  }
  next_batch(std::move(run));
}

}  // namespace tarry::broker
