#include "tests/broker/batches.h"

namespace tarry::broker::test {

Buffer batch_of(WallTime now, const std::vector<NewRecord>& records, Producer producer,
                records::Codec codec) {
  records::BatchOptions options;
  options.codec = codec;
  options.producer_id = producer.id;
  options.producer_epoch = producer.epoch;
  options.base_sequence = producer.sequence;
  records::BatchBuilder builder(options);
  for (const auto& record : records) {
    std::vector<records::HeaderView> headers;
    for (const auto& [name, value] : record.headers) headers.push_back({name, as_bytes(value)});
    builder.append(now, std::nullopt, as_bytes(record.value), headers);
  }
  return builder.finish();
}

void create_topic(World& world, std::string_view name, std::int32_t partitions,
                  std::initializer_list<std::pair<std::string_view, std::string_view>> configs) {
  protocol::CreateTopicsRequest request;
  auto& topic = request.topics.emplace_back();
  topic.name = name;
  topic.num_partitions = partitions;
  topic.replication_factor = 1;
  for (const auto& [key, value] : configs) topic.configs.push_back({key, value});
  const auto response = world.call<protocol::CreateTopicsResponse>(request, 7);
  REQUIRE(response.topics.size() == 1);
  REQUIRE_MESSAGE(response.topics[0].error_code == ErrorCode::none,
                  response.topics[0].error_message.value_or(""));
}

protocol::ProduceRequest produce_request(std::string_view topic, PartitionIndex partition,
                                         Bytes batch, std::int16_t acks) {
  protocol::ProduceRequest request;
  request.acks = acks;
  request.timeout_ms = 30'000;
  auto& data = request.topic_data.emplace_back();
  data.name = topic;
  data.partition_data.push_back({partition, batch});
  return request;
}

protocol::ProduceResponse::PartitionResponse produce(World& world, std::string_view topic,
                                                     PartitionIndex partition, Bytes batch,
                                                     std::size_t home) {
  const auto response =
      world.call<protocol::ProduceResponse>(produce_request(topic, partition, batch), 9, home);
  REQUIRE(response.responses.size() == 1);
  REQUIRE(response.responses[0].partition_responses.size() == 1);
  return response.responses[0].partition_responses[0];
}

protocol::FetchRequest fetch_request(std::string_view topic, PartitionIndex partition, Offset from,
                                     std::int32_t max_wait, std::int32_t min_bytes) {
  protocol::FetchRequest request;
  request.max_wait_ms = max_wait;
  request.min_bytes = min_bytes;
  request.max_bytes = 50'000'000;
  auto& data = request.topics.emplace_back();
  data.topic = topic;
  auto& asked = data.partitions.emplace_back();
  asked.partition = partition;
  asked.fetch_offset = from;
  asked.partition_max_bytes = 1'000'000;
  return request;
}

std::vector<Seen> records_in(const protocol::FetchResponse& response) {
  std::vector<Seen> out;
  for (const auto& topic : response.responses) {
    for (const auto& partition : topic.partitions) {
      CHECK_FALSE(partition.records.null);
      Buffer all;
      for (const auto& piece : partition.records.pieces) append_bytes(all, piece.view());
      for (Bytes left = all; !left.empty();) {
        const auto batch = records::next_batch(left);
        REQUIRE(batch.has_value());
        CHECK(batch->crc_matches());
        const auto unpacked = records::decompress(*batch->codec(), batch->records(), 1 << 26);
        REQUIRE(unpacked.has_value());
        const auto walked = records::for_each_record(
            *unpacked, batch->record_count(), [&](const records::RecordView& r) {
              Seen seen{batch->offset_of(r),
                        r.value ? std::string(as_text(*r.value)) : "<null>",
                        to_ms(batch->timestamp_of(r)),
                        {}};
              for (const auto& header : r.headers) {
                seen.headers.emplace_back(
                    header.name, header.value ? std::string(as_text(*header.value)) : "<null>");
              }
              out.push_back(std::move(seen));
            });
        REQUIRE(walked.has_value());
        left = left.subspan(batch->size());
      }
    }
  }
  return out;
}

namespace {

// The offset behind the last batch; -1: there is none.
Offset end_of(const protocol::FetchResponse& response) {
  Offset end = -1;
  Buffer all;
  for (const auto& piece : response.responses[0].partitions[0].records.pieces)
    append_bytes(all, piece.view());
  for (Bytes left = all; !left.empty();) {
    const auto batch = records::next_batch(left);
    REQUIRE(batch.has_value());
    end = batch->next_offset();
    left = left.subspan(batch->size());
  }
  return end;
}

}  // namespace

std::vector<Seen> read_all(World& world, std::string_view topic, PartitionIndex partition,
                           Offset from) {
  std::vector<Seen> all;
  Offset read = 0;  // The first batch comes whole, wherever in it `from` is.
  for (;;) {
    const auto response =
        world.call<protocol::FetchResponse>(fetch_request(topic, partition, from), 12);
    REQUIRE(response.responses[0].partitions[0].error_code == ErrorCode::none);
    // Behind the last batch, whose last offsets may be holes; its first ones may be read already.
    const Offset end = end_of(response);
    if (end <= from) return all;
    for (auto& one : records_in(response)) {
      if (one.offset >= read) all.push_back(std::move(one));
    }
    read = from = end;
  }
}

std::vector<std::string> values(const std::vector<Seen>& seen) {
  std::vector<std::string> out;
  for (const auto& one : seen) out.push_back(one.value);
  return out;
}

}  // namespace tarry::broker::test
