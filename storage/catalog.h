#pragma once

// Catalog: the topics and the blocks of numbers that are given out, as shard 0's journal has them.
//
//   journal (shard 0) --durable--> apply(operation) --> db/meta
//                                                  \--> image(): the view of every shard
//
// Topics are kept under their ids: a name may be given out again after a topic was deleted, an id
// never is.  The image is immutable and replaced on each change, so that each shard holds a pointer
// of its own and reads it without a lock; the caller of apply() posts the new image to the other
// shards.
//
// Invariants
//   - apply() twice changes nothing the second time, and what is replayed in order ends where it
//     ended before, also when the database is ahead of the journal's checkpoint.
//   - Blocks (producer ids, sequence numbers) only grow.
//
// Owner and thread: the broker's; used on shard 0's thread (in recovery: on the thread that
// recovers).  image() may be kept anywhere.  Writes go to RocksDB's memory and do not wait.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "storage/journal_record.h"
#include "storage/shared_list.h"

namespace tarry::storage {

class Database;

struct Topic {
  TopicId id;
  std::string name;
  std::int32_t partitions = 0;
  Configs configs;  // The settings that differ from the defaults.
};

// All topics at one moment.
class TopicsImage {
 public:
  using TopicPtr = std::shared_ptr<const Topic>;
  struct NameOf {
    const std::string& operator()(const TopicPtr& topic) const { return topic->name; }
  };
  struct IdOf {
    const TopicId& operator()(const TopicPtr& topic) const { return topic->id; }
  };

  TopicsImage() = default;
  explicit TopicsImage(std::vector<TopicPtr> topics);

  // Null when there is none.
  TopicPtr find(std::string_view name) const;
  TopicPtr find(const TopicId& id) const;

  // The same with some topics changed; null takes the topic out.  It costs little more among very
  // many topics than among few (SharedList).
  using Changes = std::vector<std::pair<TopicId, TopicPtr>>;
  TopicsImage with(const Changes& changes) const;

  // Calls `take` with each topic of `before` that `after` has not, or not the same; `now` is null
  // where it is gone.  Compares pointers, and skips at once what both images share.
  using TakeChange = std::function<void(const TopicPtr& topic, const TopicPtr& now)>;
  static void changes_between(const TopicsImage& before, const TopicsImage& after,
                              const TakeChange& take);

  const SharedList<TopicPtr, NameOf>& by_name() const { return by_name_; }
  std::size_t size() const { return by_name_.size(); }

 private:
  SharedList<TopicPtr, NameOf> by_name_;  // The same topics in the order of their names,
  SharedList<TopicPtr, IdOf> by_id_;      // and in the order of their ids.
};

class Catalog {
 public:
  // `meta` outlives the catalog.
  explicit Catalog(Database& meta);

  // Reads what the database holds; once, before anything else.
  Result<> load();

  // Takes what concerns the catalog (topics, configs, numbers, users, rules), not the rest.
  // Call it with what is durable only.
  Result<> apply(const Operation& operation);

  // The state after the last apply().  It is built when it is first needed, from the one before.
  std::shared_ptr<const TopicsImage> image();

  bool has_topic(const TopicId& id) const { return topics_.contains(id); }
  const Configs& broker_configs() const { return broker_configs_; }
  // Users and rules.
  const Configs& security_rows() const { return security_rows_; }
  ProducerId next_producer_id() const { return next_producer_id_; }
  Sequence next_sequence() const { return next_sequence_; }

 private:
  Result<> put_topic(const Topic& topic);
  Result<> apply_security(const Operation& operation);

  Database& meta_;
  std::map<TopicId, TopicsImage::TopicPtr> topics_;
  Configs broker_configs_;
  Configs security_rows_;
  ProducerId next_producer_id_ = 0;
  Sequence next_sequence_ = 1;                // 0 is no record's.
  std::shared_ptr<const TopicsImage> image_;  // The last one that was asked for.
  std::vector<TopicId> changed_;              // The topics of topics_ that changed since then.
};

}  // namespace tarry::storage
