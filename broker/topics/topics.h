#pragma once

// Topics: creates, deletes and changes topics, in the order of the requests.
//
//   create/delete/alter --> checked --> journal of shard 0 --> Catalog --> image to every shard
//                                                                            '--> answered
//
// The pending records of a deleted topic are hidden in the same turn as the topic is removed, so a
// checkpoint has both or neither; they are dropped from the disk after that, on the pool.
//
// A change that is answered is durable and known to every shard: a client that creates a topic and
// uses it on another connection finds it.
//
// Everything runs on shard 0's thread, one change after the other (a coroutine waits for the one
// before it), so that a check still holds when its change is written.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/awaitable.hpp>

#include "base/ids.h"
#include "base/result.h"
#include "broker/context/turn_queue.h"
#include "protocol/error_code.h"
#include "storage/catalog.h"
#include "storage/journal_record.h"

namespace tarry::broker {

class ShardContext;

struct TopicRefusal {
  protocol::ErrorCode code;
  std::string message;
};
inline std::unexpected<TopicRefusal> refuse(protocol::ErrorCode code, std::string message) {
  return std::unexpected(TopicRefusal{code, std::move(message)});
}
template <typename T>
using TopicResult = std::expected<T, TopicRefusal>;
using TopicPtr = storage::TopicsImage::TopicPtr;

// 1 to 249 of [A-Za-z0-9._-], not "." and not ".."; empty when it is a topic's name, else why not.
std::string topic_name_error(std::string_view name);
// The reason why a topic cannot have so many partitions; empty if it can.  Each has a directory
// NAME-PARTITION, and an allowed name with an allowed number can be too long together.
std::string directory_limit_error(std::string_view topic, std::int32_t partitions);

// Hands a change of the topics to every shard; the Broker implements it.  Called on shard 0's
// thread, comes back there.
class TopicsHost {
 public:
  // Hands every shard the image.
  virtual boost::asio::awaitable<void> publish_topics(
      std::shared_ptr<const storage::TopicsImage> image) = 0;
  // From here on no shard accepts anything for the topic; returns how many delayed records were
  // arriving then.
  virtual boost::asio::awaitable<std::uint64_t> fence_topic(TopicId topic) = 0;
  // The deletion has ended, one way or the other.
  virtual void unfence_topic(const TopicId& topic, bool deleted) = 0;

 protected:
  ~TopicsHost() = default;
};

class Topics {
 public:
  // `shard` is shard 0.
  Topics(ShardContext& shard, TopicsHost& host, storage::Catalog& catalog);

  struct NewTopic {
    std::string name;
    std::int32_t partitions = -1;   // -1: num.partitions.
    std::int16_t replication = -1;  // -1 or 1: there is one broker.
    storage::Configs configs;
    bool only_check = false;
  };
  boost::asio::awaitable<TopicResult<TopicPtr>> create(NewTopic topic);

  // With pending records only when forced: otherwise POLICY_VIOLATION with their number.
  boost::asio::awaitable<TopicResult<TopicPtr>> remove(TopicId id, bool force);

  boost::asio::awaitable<TopicResult<TopicPtr>> add_partitions(std::string name, std::int32_t count,
                                                               bool only_check);

  // Replaces a topic's own configs by the result of `change`.
  using ChangeConfigs = std::move_only_function<TopicResult<storage::Configs>(storage::Configs)>;
  boost::asio::awaitable<TopicResult<TopicPtr>> change_configs(std::string name,
                                                               ChangeConfigs change,
                                                               bool only_check);

  std::shared_ptr<const storage::TopicsImage> image();

 private:
  // Journal, catalog, shards.  `more_partitions` than before are counted from the same moment on as
  // the catalog has it, so that no lack of memory after that makes the count wrong.
  boost::asio::awaitable<TopicResult<void>> write(const storage::Operation& operation,
                                                  std::int64_t more_partitions);
  // For remove(), which has the turn.
  boost::asio::awaitable<TopicResult<TopicPtr>> fence_and_remove(TopicPtr topic, bool force);
  // On this thread, which reads and writes no file for it: no checkpoint can come between it and
  // the catalog, for the flush of a checkpoint makes it durable.
  void hide_pending(const TopicId& id);

  ShardContext& shard_;
  TopicsHost& host_;
  storage::Catalog& catalog_;
  TurnQueue turns_;              // A change holds its turn from the check until every shard knows.
  std::int64_t partitions_ = 0;  // The partitions of all topics.
};

}  // namespace tarry::broker
