#include "cli/kafka/group_consumer.h"

#include <string_view>

#include <fmt/core.h>

#include "cli/kafka/consumed_record.h"
#include "cli/kafka/error_text.h"
#include "cli/kafka/topic_lookup.h"

namespace tarry::cli {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

KafkaGroupConsumer::KafkaGroupConsumer(std::string topic, std::string group,
                                       BeforeRevoke before_revoke)
    : topic_name_(std::move(topic)),
      group_(std::move(group)),
      before_revoke_(std::move(before_revoke)) {}

KafkaGroupConsumer::~KafkaGroupConsumer() {
  // librdkafka's messages have to go before the consumer is closed.
  last_.reset();
  // Leaving waits for the broker's answer, which does not come over a lost connection.
  if (is_member_ && !connection_->is_disconnected()) rd_kafka_consumer_close(connection_->client());
}

Result<std::unique_ptr<KafkaGroupConsumer>> KafkaGroupConsumer::open(const KafkaSettings& settings,
                                                                     const std::string& topic,
                                                                     const std::string& group,
                                                                     bool from_end,
                                                                     BeforeRevoke before_revoke) {
  // Made first, because librdkafka's callbacks are given its address.
  std::unique_ptr<KafkaGroupConsumer> consumer(
      new KafkaGroupConsumer(topic, group, std::move(before_revoke)));
  auto connection = KafkaConnection::open(
      RD_KAFKA_CONSUMER, settings,
      {"allow.auto.create.topics=false", "enable.partition.eof=true",
       std::string("auto.offset.reset=") + (from_end ? "latest" : "earliest"),
       // Only store_offset() stores an offset; librdkafka commits what is stored every second.
       "enable.auto.offset.store=false", "auto.commit.interval.ms=1000",
       "queued.min.messages=100000", "queued.max.messages.kbytes=65536", "group.id=" + group},
      {.rebalanced = [us = consumer.get()](auto what, auto* partitions) {
        us->on_rebalanced(what, partitions);
      }});
  if (!connection) return std::unexpected(connection.error());
  consumer->connection_ = std::move(*connection);
  if (const auto joined = consumer->join(); !joined) return std::unexpected(joined.error());
  return consumer;
}

Result<> KafkaGroupConsumer::join() {
  auto* client = connection_->client();
  topic_.reset(rd_kafka_topic_new(client, topic_name_.c_str(), nullptr));
  if (!topic_) return connection_->error_of(name_text(topic_name_), rd_kafka_last_error());
  // A subscription to a topic that is not there would wait for it without a word.
  if (const auto info = find_topic(*connection_, topic_name_, topic_.get(), 0ms); !info)
    return std::unexpected(info.error());
  // From here on next() brings the callbacks too.
  rd_kafka_poll_set_consumer(client);
  const KafkaPartitions topics(rd_kafka_topic_partition_list_new(1));
  rd_kafka_topic_partition_list_add(topics.get(), topic_name_.c_str(), RD_KAFKA_PARTITION_UA);
  if (const auto error = rd_kafka_subscribe(client, topics.get());
      error != RD_KAFKA_RESP_ERR_NO_ERROR) {
    return connection_->error_of(name_text(group_), error);
  }
  is_member_ = true;
  return {};
}

void KafkaGroupConsumer::on_rebalanced(rd_kafka_resp_err_t what,
                                       rd_kafka_topic_partition_list_t* partitions) {
  auto* client = connection_->client();
  const bool given = what == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
  // The group's coordinator has answered; a member without partitions gets nothing else.
  if (given) connection_->mark_reached();
  // Before the partitions are given back, because only their member can commit for them.
  if (!given && before_revoke_) {
    std::vector<PartitionIndex> taken;
    for (int i = 0; i < partitions->cnt; ++i) taken.push_back(partitions->elems[i].partition);
    before_revoke_(taken, rd_kafka_assignment_lost(client) == 0);
  }
  // A cooperative assignor gives and takes single partitions, every other one all of them.
  const char* protocol = rd_kafka_rebalance_protocol(client);
  if (protocol != nullptr && std::string_view(protocol) == "COOPERATIVE") {
    const KafkaError refused(given ? rd_kafka_incremental_assign(client, partitions)
                                   : rd_kafka_incremental_unassign(client, partitions));
    is_assigned_ = is_assigned_ || given;
  } else {
    rd_kafka_assign(client, given ? partitions : nullptr);
    is_assigned_ = given;
  }
}

std::optional<std::vector<PartitionIndex>> KafkaGroupConsumer::assigned() {
  if (!is_assigned_) return std::nullopt;
  rd_kafka_topic_partition_list_t* given = nullptr;
  std::vector<PartitionIndex> partitions;
  if (rd_kafka_assignment(connection_->client(), &given) != RD_KAFKA_RESP_ERR_NO_ERROR)
    return partitions;
  const KafkaPartitions list(given);
  for (int i = 0; i < list->cnt; ++i) partitions.push_back(list->elems[i].partition);
  return partitions;
}

Result<KafkaGroupConsumer::Next> KafkaGroupConsumer::next(milliseconds wait) {
  last_.reset(rd_kafka_consumer_poll(connection_->client(), static_cast<int>(wait.count())));
  const auto* message = last_.get();
  if (message == nullptr) {
    connection_->watch(topic_.get());
    return std::monostate{};
  }
  // It is not the end: watch() says when the connection is lost, and when it is back.
  if (is_connection_error(message->err)) return std::monostate{};
  connection_->mark_connected();
  if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) return EndOfPartition{message->partition};
  if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    return connection_->error_of(name_text(group_), message->err, rd_kafka_message_errstr(message));
  }
  return record_of(*message);
}

Result<> KafkaGroupConsumer::check_in_service(const std::vector<PartitionIndex>& partitions) {
  return cli::check_in_service(*connection_, topic_name_, partitions);
}

void KafkaGroupConsumer::store_offset(PartitionIndex partition, Offset next) {
  const KafkaPartitions list(rd_kafka_topic_partition_list_new(1));
  rd_kafka_topic_partition_list_add(list.get(), topic_name_.c_str(), partition)->offset = next;
  // librdkafka refuses when the partition has just been taken from us; then another member commits.
  static_cast<void>(rd_kafka_offsets_store(connection_->client(), list.get()));
}

Result<> KafkaGroupConsumer::close() {
  last_.reset();
  // Nothing was read, so there is nothing to commit.
  if (connection_->is_unreachable()) {
    is_member_ = false;
    return {};
  }
  // librdkafka would wait for an answer for as long as the session lasts, whatever --timeout says.
  if (connection_->is_disconnected()) {
    is_member_ = false;
    return fail(Errc::io, fmt::format("{}: the connection is lost, and offsets of the last records "
                                      "may not be committed: they may be read again",
                                      name_text(group_)));
  }
  // Closing commits as well, but does not tell whether that succeeded.
  const auto committed = rd_kafka_commit(connection_->client(), nullptr, 0);
  is_member_ = false;
  const auto closed = rd_kafka_consumer_close(connection_->client());
  // NO_OFFSET: nothing was stored, so there was nothing to commit.
  if (committed != RD_KAFKA_RESP_ERR_NO_ERROR && committed != RD_KAFKA_RESP_ERR__NO_OFFSET)
    return connection_->error_of(fmt::format("{}: the commit", name_text(group_)), committed);
  if (closed != RD_KAFKA_RESP_ERR_NO_ERROR) return connection_->error_of(name_text(group_), closed);
  return {};
}

}  // namespace tarry::cli
