#pragma once

// Partitions: those of one shard, opened when they are first used, and open from then on.
//
//   with(tp, take)   --> open: take(partition) at once
//                    --> not open: its log is opened on the pool; requests that come meanwhile wait
//                        and continue in the order in which they came
//   visit(tp, work)  --> not open: the work has its files for itself; if requests come meanwhile,
//                        they wait and it is opened afterwards; otherwise it stays closed
//   drop(topic, from, until)
//                    --> retired: nothing is accepted any more; the log's files are removed when no
//                        completion in the journal and no flush refers to the partition
//
// Belongs to its shard and its thread.

#include <cstddef>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "broker/context/shard_context.h"
#include "broker/partitions/log_removals.h"
#include "broker/partitions/partition.h"
#include "protocol/error_code.h"

namespace tarry::broker {

class Partitions {
 public:
  using Found = std::expected<Partition*, protocol::ErrorCode>;
  using Take = std::move_only_function<void(Found)>;
  using Map = std::unordered_map<TopicPartition, std::unique_ptr<Partition>>;

  Partitions(ShardContext& shard, PartitionHost& host) : shard_(shard), host_(host) {}
  Partitions(const Partitions&) = delete;
  Partitions& operator=(const Partitions&) = delete;

  // The partition, opened; or why not.  For partitions of this shard only.
  boost::asio::awaitable<Found> open(TopicPartition tp);
  void with(TopicPartition tp, Take take);
  // During recovery: opened at once, in the caller.
  Result<Partition*> open_now(const TopicPartition& tp);

  // Work with the files of a partition that is not open, on the pool; it may open a log of its own.
  // Returns as a RetentionPlan when time gives it something to do again; WallTime::max(): never.
  using Visit = std::move_only_function<Result<WallTime>(const std::string& directory,
                                                         const storage::LogConfig& config)>;
  using Visited = std::move_only_function<void(Result<WallTime>)>;
  // False, and `done` is never called: it is open or being opened, or does not exist.
  bool visit(const TopicPartition& tp, Visit work, Visited done);

  // Null when it is not open.
  Partition* find(const TopicPartition& tp) const;
  const Map& all() const {
    shard_.assert_on_shard();
    return open_;
  }

  // A walk through the open ones in steps, between which others have their turn.
  struct Walk {
    std::size_t place = 0;   // The next one in the map's table,
    std::size_t places = 0;  //   which has so many; when it grows the walk begins anew.
  };
  // Shows the next ones to `look`, which returns how much work it was beside a look, until that is
  // `work` together.  False: there are no more.  One that is open all the time is shown at least
  // once.  `look` opens and drops none.
  bool walk(Walk& progress, std::size_t work,
            const std::function<std::size_t(Partition&)>& look) const;

  // One that cannot be used: damaged, until the next start, or not opened when it was last tried.
  struct OutOfService {
    TopicPartition id;
    std::string reason;
  };
  std::size_t count_out_of_service() const {
    shard_.assert_on_shard();
    return out_of_service_.size() + unopened_.size();
  }
  // At most `most` of them.
  std::vector<OutOfService> out_of_service(std::size_t most) const;
  void note_out_of_service(const Partition& partition);
  // Why it was not opened when that was last tried; null: it was, or nobody has tried.
  const std::string* unopened_reason(const TopicPartition& tp) const;

  // Their topic is deleted: those of this shard in [from, until).
  void drop(const storage::Topic& topic, PartitionIndex from, PartitionIndex until);
  // The partition of a deleted topic, as long as something may point to it; or null.
  Partition* retired(const TopicPartition& tp) const;
  // Lets go of those that nothing points to any more.  While a flush is under way, which points to
  // them too, it is not called.
  void remove_retired();
  bool any_retired() const {
    shard_.assert_on_shard();
    return !retired_.empty();
  }

 private:
  struct Opening {
    std::vector<Take> waiting;
  };
  // The work of opening a partition; runs on the pool.
  struct Loading {
    TopicPartition tp;
    std::string topic_name;
    std::string directory;
    std::shared_ptr<const TopicConfig> config;
    std::shared_ptr<const storage::TopicsImage> topics;
  };
  Result<std::unique_ptr<Partition>> load(const Loading& loading) const;
  std::optional<Loading> loading_of(const TopicPartition& tp);
  void begin_load(Loading loading);
  void end_visit(const Loading& visited);
  void opened(TopicPartition tp, Result<std::unique_ptr<Partition>> loaded);
  std::string directory_of(const storage::Topic& topic, PartitionIndex partition) const;

  ShardContext& shard_;
  PartitionHost& host_;
  Map open_;
  std::unordered_map<TopicPartition, Opening> opening_;       // The visited ones, too.
  std::unordered_map<TopicPartition, std::string> unopened_;  // With the reason that was logged.
  std::unordered_map<TopicPartition, std::string> out_of_service_;  // The damaged; with the reason.
  // A partition of a deleted topic.  Completions of journal records before `appended` point to it.
  struct Retired {
    std::unique_ptr<Partition> partition;
    Lsn appended;
  };
  std::vector<Retired> retired_;
  LogRemovals removals_;
};

}  // namespace tarry::broker
