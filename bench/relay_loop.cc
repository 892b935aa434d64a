// A plain consume-and-produce loop with Kafka's transactions, beside which the relay's processor
// time is measured (bench/relay_figures.py).
//
//   relay_loop BROKERS SOURCE TARGET GROUP RECORDS
//
// It reads SOURCE from its beginning as the only member of GROUP, and sends each record to TARGET.
// A transaction has as many records and bytes as one of the relay at most, and its clients have the
// relay's settings.  It ends after RECORDS and prints one line of JSON:
//
//   seconds       from the first record to the end of the last transaction
//   cpu_s         the processor time of this process meanwhile, of librdkafka's threads too
//   transactions  how many it took

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "relay/kafka_handles.h"
#include "relay/partition.h"

namespace tarry::relay {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds transaction_limit{30'000};
// A source that gives nothing for so long has no more records.
constexpr milliseconds longest_silence{30'000};
constexpr milliseconds first_poll{100};
// A batch is complete when nothing more has come for so long.
constexpr milliseconds further_poll{5};

struct LoopPlan {
  std::string brokers, source, target, group;
  std::uint64_t records = 0;
};

struct LoopFigures {
  std::uint64_t records = 0, transactions = 0;
  double seconds = 0, cpu_s = 0;
};

double processor_seconds() {
  struct rusage usage {};
  static_cast<void>(::getrusage(RUSAGE_SELF, &usage));
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Null: there is no error.
Result<> checked(rd_kafka_error_t* raw, std::string_view what) {
  const KafkaError error(raw);
  if (error) return fail(Errc::io, error_text(error.get(), what));
  return {};
}

Result<KafkaClient> open_loop_consumer(const LoopPlan& plan) {
  auto consumer =
      open_client(RD_KAFKA_CONSUMER, {"bootstrap.servers=" + plan.brokers, "group.id=" + plan.group,
                                      "auto.offset.reset=earliest", "enable.auto.commit=false",
                                      "isolation.level=read_committed", "fetch.wait.max.ms=100",
                                      "fetch.max.bytes=4194304", "max.partition.fetch.bytes=524288",
                                      "queued.max.messages.kbytes=32768"});
  if (!consumer) return consumer;
  rd_kafka_poll_set_consumer(consumer->get());
  const KafkaPartitions topics(rd_kafka_topic_partition_list_new(1));
  rd_kafka_topic_partition_list_add(topics.get(), plan.source.c_str(), RD_KAFKA_PARTITION_UA);
  const auto error = rd_kafka_subscribe(consumer->get(), topics.get());
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) return fail(Errc::io, error_text(error, plan.source));
  return consumer;
}

Result<KafkaClient> open_loop_producer(const LoopPlan& plan) {
  auto producer = open_client(
      RD_KAFKA_PRODUCER,
      {"bootstrap.servers=" + plan.brokers, "transactional.id=" + plan.group + "-loop",
       "enable.idempotence=true", "retry.backoff.ms=5", "linger.ms=2", "compression.type=lz4",
       "queue.buffering.max.messages=200000", "queue.buffering.max.kbytes=262144"});
  if (!producer) return producer;
  if (auto ready = checked(rd_kafka_init_transactions(producer->get(), in_ms(transaction_limit)),
                           plan.brokers);
      !ready) {
    return std::unexpected(ready.error());
  }
  return producer;
}

// What has come, at most `most` records; empty: nothing has, for a moment.
Result<std::vector<KafkaMessage>> next_batch(rd_kafka_t* consumer, std::uint64_t most) {
  const Limits limits{};
  std::vector<KafkaMessage> batch;
  std::size_t bytes = 0;
  while (batch.size() < std::min<std::uint64_t>(limits.deliveries, most) && bytes < limits.bytes) {
    KafkaMessage message(
        rd_kafka_consumer_poll(consumer, in_ms(batch.empty() ? first_poll : further_poll)));
    if (!message) break;
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR)
      return fail(Errc::io, error_text(message->err, "consumer"));
    bytes += message->len + message->key_len;
    batch.push_back(std::move(message));
  }
  return batch;
}

Result<> pass_on(rd_kafka_t* producer, const LoopPlan& plan, const rd_kafka_message_t& message) {
  std::array<rd_kafka_vu_t, 4> fields{};
  fields[0].vtype = RD_KAFKA_VTYPE_TOPIC;
  fields[0].u.cstr = plan.target.c_str();
  fields[1].vtype = RD_KAFKA_VTYPE_MSGFLAGS;
  fields[1].u.i = RD_KAFKA_MSG_F_COPY;
  fields[2].vtype = RD_KAFKA_VTYPE_KEY;
  fields[2].u.mem = {message.key, message.key_len};
  fields[3].vtype = RD_KAFKA_VTYPE_VALUE;
  fields[3].u.mem = {message.payload, message.len};
  return checked(rd_kafka_produceva(producer, fields.data(), fields.size()), plan.target);
}

// One transaction: the records, and the offsets behind them.
Result<> transact(rd_kafka_t* consumer, rd_kafka_t* producer, const LoopPlan& plan,
                  const std::vector<KafkaMessage>& batch) {
  if (auto begun = checked(rd_kafka_begin_transaction(producer), "begin"); !begun) return begun;
  std::map<PartitionIndex, Offset> next;
  for (const auto& message : batch) {
    if (auto sent = pass_on(producer, plan, *message); !sent) return sent;
    next[message->partition] = message->offset + 1;
  }
  const KafkaPartitions offsets(rd_kafka_topic_partition_list_new(static_cast<int>(next.size())));
  for (const auto& [partition, offset] : next) {
    rd_kafka_topic_partition_list_add(offsets.get(), plan.source.c_str(), partition)->offset =
        offset;
  }
  const KafkaGroupMetadata metadata(rd_kafka_consumer_group_metadata(consumer));
  const int limit = in_ms(transaction_limit);
  if (auto sent = checked(
          rd_kafka_send_offsets_to_transaction(producer, offsets.get(), metadata.get(), limit),
          "offsets");
      !sent) {
    return sent;
  }
  return checked(rd_kafka_commit_transaction(producer, limit), "commit");
}

Result<LoopFigures> run_loop(const LoopPlan& plan) {
  auto producer = open_loop_producer(plan);
  if (!producer) return std::unexpected(producer.error());
  auto consumer = open_loop_consumer(plan);
  if (!consumer) return std::unexpected(consumer.error());
  LoopFigures figures;
  auto began = steady_clock::now(), last = began;
  double cpu_before = 0;
  while (figures.records < plan.records) {
    const auto batch = next_batch(consumer->get(), plan.records - figures.records);
    if (!batch) return std::unexpected(batch.error());
    const auto now = steady_clock::now();
    if (batch->empty() && now - last > longest_silence) {
      // Before its first assignment librdkafka (before 2.3) ends the process by an assertion
      // instead of destroying the group's client.  The process ends anyhow.
      static_cast<void>(consumer->release());
      return fail(Errc::io, fmt::format("{}: only {} of {} records came", plan.source,
                                        figures.records, plan.records));
    }
    if (batch->empty()) continue;
    if (figures.records == 0) {
      began = now;
      cpu_before = processor_seconds();
    }
    if (auto done = transact(consumer->get(), producer->get(), plan, *batch); !done)
      return std::unexpected(done.error());
    figures.records += batch->size();
    ++figures.transactions;
    last = steady_clock::now();
  }
  figures.seconds = std::chrono::duration<double>(last - began).count();
  figures.cpu_s = processor_seconds() - cpu_before;
  return figures;
}

int run_program(int count, char** words) {
  LoopPlan plan;
  bool is_understood = count == 6;
  if (is_understood) {
    plan = {.brokers = words[1], .source = words[2], .target = words[3], .group = words[4]};
    const std::string_view number = words[5];
    const auto read = std::from_chars(number.data(), number.data() + number.size(), plan.records);
    is_understood =
        read.ec == std::errc{} && read.ptr == number.data() + number.size() && plan.records > 0;
  }
  if (!is_understood) {
    fmt::print(stderr, "usage: relay_loop BROKERS SOURCE TARGET GROUP RECORDS\n");
    return 2;
  }
  const auto figures = run_loop(plan);
  if (!figures) {
    fmt::print(stderr, "relay_loop: {}\n", figures.error().message);
    return 1;
  }
  fmt::print("{{\"records\": {}, \"transactions\": {}, \"seconds\": {:.3f}, \"cpu_s\": {:.3f}}}\n",
             figures->records, figures->transactions, figures->seconds, figures->cpu_s);
  return 0;
}

}  // namespace
}  // namespace tarry::relay

int main(int count, char** words) {
  return tarry::relay::run_program(count, words);
}
