#include "cli/kafka/consumer.h"

#include <sys/types.h>

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "cli/kafka/error_text.h"
#include "cli/kafka/topic_lookup.h"

namespace tarry::cli {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

KafkaConsumer::KafkaConsumer(KafkaConnectionPtr connection, std::string name)
    : connection_(std::move(connection)), name_(std::move(name)) {}

KafkaConsumer::~KafkaConsumer() {
  if (!topic_) return;
  // librdkafka's messages have to go before their topic.
  last_.reset();
  for (const auto& [partition, offset] : next_) rd_kafka_consume_stop(topic_.get(), partition);
}

Result<KafkaConsumer> KafkaConsumer::open(const KafkaSettings& settings, const std::string& topic) {
  auto connection =
      KafkaConnection::open(RD_KAFKA_CONSUMER, settings,
                            {"allow.auto.create.topics=false", "enable.partition.eof=true",
                             // An offset that does not exist is told, not replaced by another one.
                             "auto.offset.reset=error",
                             // A full queue makes librdkafka pause for a second.
                             "queued.min.messages=500000", "queued.max.messages.kbytes=65536"});
  if (!connection) return std::unexpected(connection.error());
  KafkaConsumer consumer(std::move(*connection), topic);
  auto& client = *consumer.connection_;
  consumer.topic_.reset(rd_kafka_topic_new(client.client(), topic.c_str(), nullptr));
  if (!consumer.topic_) return client.error_of(name_text(topic), rd_kafka_last_error());
  consumer.queue_.reset(rd_kafka_queue_new(client.client()));
  const auto info = find_topic(client, topic, consumer.topic_.get(), 0ms);
  if (!info) return std::unexpected(info.error());
  for (const auto& one : info->partitions) consumer.partitions_.push_back(one.partition);
  return consumer;
}

Result<PartitionOffsets> KafkaConsumer::offsets_at(const std::vector<PartitionIndex>& partitions,
                                                   std::int64_t epoch_ms) {
  return find_offsets(*connection_, name_, partitions, epoch_ms);
}

Result<> KafkaConsumer::start(PartitionIndex partition, Offset from) {
  if (rd_kafka_consume_start_queue(topic_.get(), partition, from, queue_.get()) != 0) {
    return connection_->error_of(fmt::format("{} partition {}", name_text(name_), partition),
                                 rd_kafka_last_error());
  }
  // Errors need it: the broker does not repeat which offset was asked for.
  next_[partition] = from;
  return {};
}

Result<> KafkaConsumer::check_in_service(const std::vector<PartitionIndex>& partitions) {
  return cli::check_in_service(*connection_, name_, partitions);
}

Result<KafkaConsumer::Next> KafkaConsumer::next(milliseconds wait) {
  last_.reset(rd_kafka_consume_queue(queue_.get(), static_cast<int>(wait.count())));
  const auto* message = last_.get();
  if (message == nullptr) {
    // Runs the callback that learns of a lost connection, which watch() then reports.
    connection_->poll();
    connection_->watch(topic_.get());
    return std::monostate{};
  }
  // librdkafka connects again by itself.
  if (is_connection_error(message->err)) return std::monostate{};
  connection_->mark_connected();
  if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) return EndOfPartition{message->partition};
  if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) return error_of(*message);
  mark_read(*message);
  return record_of(*message);
}

Result<> KafkaConsumer::take(milliseconds wait, const UseValues& use) {
  std::array<rd_kafka_message_t*, max_taken> found{};
  found[0] = rd_kafka_consume_queue(queue_.get(), static_cast<int>(wait.count()));
  if (found[0] == nullptr) {
    connection_->poll();
    connection_->watch(topic_.get());
    return {};
  }
  // With a timeout it would wait until so many have come.
  const auto more = rd_kafka_consume_batch_queue(queue_.get(), 0, &found[1], found.size() - 1);
  const auto count = static_cast<std::size_t>(std::max<ssize_t>(more, 0)) + 1;
  std::vector<KafkaMessage> owned(found.begin(),
                                  found.begin() + static_cast<std::ptrdiff_t>(count));
  values_.clear();
  for (const auto& message : owned) {
    if (is_connection_error(message->err)) continue;
    connection_->mark_connected();
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
      at_end_.insert(message->partition);
      continue;
    }
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) return error_of(*message);
    mark_read(*message);
    at_end_.erase(message->partition);
    values_.emplace_back(static_cast<const char*>(message->payload), message->len);
  }
  if (!values_.empty()) use(values_);
  return {};
}

void KafkaConsumer::mark_read(const rd_kafka_message_t& message) {
  next_[message.partition] = message.offset + 1;
  begun_.insert(message.partition);
}

std::unexpected<Error> KafkaConsumer::error_of(const rd_kafka_message_t& message) {
  const std::string where = fmt::format("{} partition {}", name_text(name_), message.partition);
  if (message.err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET ||
      message.err == RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE) {
    // The broker's error does not say which offsets there are.
    std::int64_t low = -1, high = -1;
    if (rd_kafka_query_watermark_offsets(connection_->client(), name_.c_str(), message.partition,
                                         &low, &high, in_ms(connection_->timeout())) ==
        RD_KAFKA_RESP_ERR_NO_ERROR) {
      return out_of_range_error(where, message.partition, low, high);
    }
  }
  return connection_->error_of(where, message.err, rd_kafka_message_errstr(&message));
}

// The same error of the broker has three causes, and the user has to do something else in each.
std::unexpected<Error> KafkaConsumer::out_of_range_error(const std::string& where,
                                                         PartitionIndex partition, Offset low,
                                                         Offset high) const {
  const auto now = fmt::format("it begins at {} and ends before {}", low, high);
  const auto place = next_.find(partition);
  const Offset next = place == next_.end() ? 0 : place->second;
  if (!begun_.contains(partition) && next >= 0) {
    return fail(Errc::not_found,
                fmt::format("{} does not hold the offset asked for, {}: {}", where, next, now));
  }
  if (next >= 0 && next < low) {
    return fail(
        Errc::not_found,
        fmt::format("{}: the records from offset {} on were deleted before they were read: {}",
                    where, next, now));
  }
  return fail(Errc::not_found,
              fmt::format("{} was replaced while it was read, {}: was the topic deleted and "
                          "created again?",
                          where, now));
}

}  // namespace tarry::cli
