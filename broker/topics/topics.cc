#include "broker/topics/topics.h"

#include <algorithm>
#include <climits>
#include <exception>
#include <string>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/post.hpp>

#include "base/log.h"
#include "broker/context/one_shot_event.h"
#include "broker/context/shard_context.h"
#include "storage/producer_states.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

std::unexpected<TopicRefusal> unknown_topic(std::string_view name) {
  return refuse(ErrorCode::unknown_topic_or_partition,
                fmt::format("The topic '{}' does not exist.", printable(name)));
}

}  // namespace

std::string directory_limit_error(std::string_view topic, std::int32_t partitions) {
  const std::size_t longest = topic.size() + 1 + std::to_string(partitions - 1).size();
  if (longest <= NAME_MAX) return {};
  return fmt::format(
      "Topic '{}' cannot have {} partitions: the directory name of the last one would have {} "
      "bytes; the limit of file systems is {}. Use a shorter name or fewer partitions.",
      topic, partitions, longest, NAME_MAX);
}

std::string topic_name_error(std::string_view name) {
  if (name.empty()) return "Topic name is invalid: it is empty";
  if (name == "." || name == "..")
    return fmt::format("Topic name is invalid: '{}' is not allowed", name);
  if (name.size() > 249) {
    return fmt::format("Topic name is invalid: '{}' has {} characters; the limit is 249",
                       printable(name, 64), name.size());
  }
  for (const char c : name) {
    const bool allowed = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    if (!allowed) {
      return fmt::format(
          "Topic name is invalid: '{}' contains a character other than ASCII alphanumerics, '.', "
          "'_' and '-'",
          printable(name));
    }
  }
  return {};
}

Topics::Topics(ShardContext& shard, TopicsHost& host, storage::Catalog& catalog)
    : shard_(shard), host_(host), catalog_(catalog), turns_(shard.executor()) {
  for (const auto& topic : catalog_.image()->by_name()) partitions_ += topic->partitions;
}

std::shared_ptr<const storage::TopicsImage> Topics::image() {
  shard_.assert_on_shard();
  return catalog_.image();
}

asio::awaitable<TopicResult<void>> Topics::write(const storage::Operation& operation,
                                                 std::int64_t more_partitions) {
  storage::JournalTransaction transaction;
  std::visit([&](const auto& op) { transaction.add(op); }, operation);
  // The pending records of a topic go in the same turn as the topic: the next checkpoint of this
  // shard has both, or the journal still has the operation.
  std::optional<TopicId> deleted;
  if (const auto* op = std::get_if<storage::TopicDeleted>(&operation)) deleted = op->topic;
  OneShotEvent settled;
  Result<> result;
  transaction.on_settled([&](const Result<>& safe) {
    result = safe;
    if (result) result = catalog_.apply(operation);
    if (result) partitions_ += more_partitions;
    if (result && deleted) hide_pending(*deleted);
    settled.fire();
  });
  if (const auto lsn = shard_.commit(std::move(transaction)); !lsn)
    co_return refuse(ErrorCode::kafka_storage_error, lsn.error().message);
  co_await settled.wait();
  if (!result) {
    shard_.journal_failed(result.error());
    co_return refuse(ErrorCode::kafka_storage_error, result.error().message);
  }
  co_await host_.publish_topics(catalog_.image());
  co_return TopicResult<void>{};
}

void Topics::hide_pending(const TopicId& id) {
  shard_.broker_context().pending_counts->forget(id);
  shard_.broker_context().pending->hide_topic(id);
}

asio::awaitable<TopicResult<TopicPtr>> Topics::create(NewTopic topic) {
  shard_.assert_on_shard();
  co_await turns_.take();
  const TurnQueue::Turn turn(turns_);
  if (auto why = topic_name_error(topic.name); !why.empty())
    co_return refuse(ErrorCode::invalid_topic, why);
  if (catalog_.image()->find(topic.name)) {
    co_return refuse(ErrorCode::topic_already_exists,
                     fmt::format("Topic '{}' already exists.", topic.name));
  }
  if (topic.partitions == -1) topic.partitions = shard_.config().num_partitions;
  if (topic.partitions < 1) {
    co_return refuse(
        ErrorCode::invalid_partitions,
        fmt::format("Number of partitions was {}; it must be at least 1.", topic.partitions));
  }
  if (topic.partitions > shard_.config().max_partitions - partitions_) {
    co_return refuse(
        ErrorCode::invalid_partitions,
        fmt::format("{} more partitions would exceed tarry.max.partitions={}; there are {}.",
                    topic.partitions, shard_.config().max_partitions, partitions_));
  }
  if (auto why = directory_limit_error(topic.name, topic.partitions); !why.empty())
    co_return refuse(ErrorCode::invalid_partitions, std::move(why));
  if (topic.replication != -1 && topic.replication != 1) {
    co_return refuse(ErrorCode::invalid_replication_factor,
                     fmt::format("Replication factor {} is not possible: there is one broker.",
                                 topic.replication));
  }
  auto configs = settle_topic_configs(shard_.config().topic_defaults, topic.configs);
  if (!configs) co_return refuse(ErrorCode::invalid_config, configs.error().message);
  topic.configs = std::move(*configs);
  const TopicId id = shard_.broker_context().random->topic_id();
  if (topic.only_check) {
    co_return std::make_shared<const storage::Topic>(
        storage::Topic{id, topic.name, topic.partitions, topic.configs});
  }
  // A directory of that name may still be there, of a topic that was deleted and whose removal a
  // crash cut short.
  const storage::Operation operation =
      storage::TopicCreated{id, topic.partitions, topic.name, topic.configs};
  const auto written = co_await write(operation, topic.partitions);
  if (!written) co_return std::unexpected(written.error());
  log_info("broker", "topic {} created: {} partitions, id {}", topic.name, topic.partitions,
           id.text());
  co_return catalog_.image()->find(id);
}

asio::awaitable<TopicResult<TopicPtr>> Topics::remove(TopicId id, bool force) {
  shard_.assert_on_shard();
  co_await turns_.take();
  const TurnQueue::Turn turn(turns_);
  const auto topic = catalog_.image()->find(id);
  if (!topic)
    // It may have been deleted while this one waited for its turn.
    co_return refuse(ErrorCode::unknown_topic_id, "This server does not host this topic ID.");
  try {
    auto removed = co_await fence_and_remove(topic, force);
    co_return removed;
  } catch (const std::exception&) {
    // There was no memory.  A topic that stays has to take records again; one that is deleted, and
    // that not every shard knows to be so, takes none.
    if (catalog_.image()->find(id)) host_.unfence_topic(id, false);
    throw;
  }
}

asio::awaitable<TopicResult<TopicPtr>> Topics::fence_and_remove(TopicPtr topic, bool force) {
  const TopicId id = topic->id;
  // Nothing is taken for it from here on, so what is counted is all there is.
  const std::uint64_t arriving = co_await host_.fence_topic(id);
  // Records on their way to the journal will be pending too.
  const std::uint64_t pending = shard_.broker_context().pending_counts->pending_of(id) + arriving;
  TopicResult<void> written;
  if (!force && pending > 0) {
    written = refuse(
        ErrorCode::policy_violation,
        fmt::format("Topic '{}' has {} pending delayed records. Cancel them, wait until they are "
                    "delivered, or delete the topic with them (tarry topic delete {} --force).",
                    topic->name, pending, topic->name));
  } else {
    const storage::Operation operation = storage::TopicDeleted{id};
    written = co_await write(operation, -topic->partitions);
  }
  // Once more, now that every shard knows: until then one may have kept what was on its way.
  if (written) {
    hide_pending(id);
    const auto dropped = co_await shard_.blocking(
        [pending = shard_.broker_context().pending, id] { return pending->drop_topic(id); });
    if (!dropped) shard_.journal_failed(dropped.error());
  }
  // A failure ends it too: a topic that stays has to take records again.
  host_.unfence_topic(id, written.has_value());
  if (!written) co_return std::unexpected(written.error());
  // Here too once more: until it knew of the deletion, a shard's checkpoint may have written some.
  if (const auto dropped = storage::drop_producer_states(*shard_.broker_context().meta, id);
      !dropped) {
    shard_.journal_failed(dropped.error());
  }
  log_info("broker", "topic {} deleted: id {}", topic->name, id.text());
  co_return topic;
}

asio::awaitable<TopicResult<TopicPtr>> Topics::add_partitions(std::string name, std::int32_t count,
                                                              bool only_check) {
  shard_.assert_on_shard();
  co_await turns_.take();
  const TurnQueue::Turn turn(turns_);
  const auto topic = catalog_.image()->find(name);
  if (!topic) co_return unknown_topic(name);
  if (count <= topic->partitions) {
    co_return refuse(
        ErrorCode::invalid_partitions,
        fmt::format("The topic {} currently has {} partition(s); {} would not be an increase.",
                    topic->name, topic->partitions, count));
  }
  const std::int32_t more = count - topic->partitions;
  if (more > shard_.config().max_partitions - partitions_) {
    co_return refuse(
        ErrorCode::invalid_partitions,
        fmt::format("{} more partitions would exceed tarry.max.partitions={}; there are {}.", more,
                    shard_.config().max_partitions, partitions_));
  }
  if (auto why = directory_limit_error(topic->name, count); !why.empty())
    co_return refuse(ErrorCode::invalid_partitions, std::move(why));
  if (only_check) co_return topic;
  const storage::Operation operation = storage::PartitionsAdded{topic->id, count};
  const auto written = co_await write(operation, more);
  if (!written) co_return std::unexpected(written.error());
  co_return catalog_.image()->find(topic->id);
}

asio::awaitable<TopicResult<TopicPtr>> Topics::change_configs(std::string name,
                                                              ChangeConfigs change,
                                                              bool only_check) {
  shard_.assert_on_shard();
  co_await turns_.take();
  const TurnQueue::Turn turn(turns_);
  const auto topic = catalog_.image()->find(name);
  if (!topic) co_return unknown_topic(name);
  auto configs = change(topic->configs);
  if (!configs) co_return std::unexpected(configs.error());
  auto settled = settle_topic_configs(shard_.config().topic_defaults, *configs);
  if (!settled) co_return refuse(ErrorCode::invalid_config, settled.error().message);
  if (only_check) co_return topic;
  const storage::Operation operation = storage::ConfigsSet{topic->id, std::move(*settled)};
  const auto written = co_await write(operation, 0);
  if (!written) co_return std::unexpected(written.error());
  co_return catalog_.image()->find(topic->id);
}

}  // namespace tarry::broker
