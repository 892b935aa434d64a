#include "cli/kafka/dry_run.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "protocol/messages/produce.h"
#include "records/batch_builder.h"

namespace tarry::cli {
namespace {

// The first version whose answers hold messages.
constexpr int version = 8;
constexpr std::int16_t refused_acks = -2;

// The request views `batch` and the names.
protocol::ProduceRequest request_of(const std::string& topic, const ConsumedRecord& record,
                                    Buffer& batch) {
  const auto bytes = [](std::optional<std::string_view> text) -> std::optional<Bytes> {
    if (!text) return std::nullopt;
    return as_bytes(*text);
  };
  std::vector<records::HeaderView> headers;
  for (const auto& [name, value] : record.headers) headers.push_back({name, bytes(value)});
  records::BatchBuilder builder;
  builder.append(from_ms(record.timestamp), bytes(record.key), bytes(record.value), headers);
  batch = builder.finish();
  protocol::ProduceRequest request;
  // No broker takes a batch with such acks, but Tarry checks it first and says what is wrong.
  request.acks = refused_acks;
  request.timeout_ms = 1000;
  auto& to = request.topic_data.emplace_back();
  to.name = topic;
  auto& partition = to.partition_data.emplace_back();
  partition.index = record.partition;
  partition.records = batch;
  return request;
}

}  // namespace

std::optional<Refusal> dry_run(WireClient& leader, const std::string& topic,
                               const ConsumedRecord& record) {
  Buffer batch;
  const auto request = request_of(topic, record, batch);
  const auto response = leader.ask<protocol::ProduceResponse>(request, version);
  if (!response || response->responses.size() != 1 ||
      response->responses[0].partition_responses.size() != 1) {
    return std::nullopt;
  }
  const auto& answer = response->responses[0].partition_responses[0];
  // The message about the record says more than the one about its batch.
  if (!answer.record_errors.empty() && answer.record_errors[0].batch_index_error_message)
    return Refusal{answer.error_code, *answer.record_errors[0].batch_index_error_message};
  return Refusal{answer.error_code, answer.error_message.value_or("")};
}

}  // namespace tarry::cli
