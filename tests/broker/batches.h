#pragma once

// Requests as clients make them, for the tests of the broker.

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/messages/create_topics.h"
#include "protocol/messages/fetch.h"
#include "protocol/messages/produce.h"
#include "tests/broker/world.h"

namespace tarry::broker::test {

using protocol::ErrorCode;

struct NewRecord {
  std::string value;
  std::vector<std::pair<std::string, std::string>> headers = {};
};

struct Producer {
  ProducerId id = -1;
  std::int16_t epoch = -1;
  std::int32_t sequence = -1;
};

Buffer batch_of(WallTime now, const std::vector<NewRecord>& records, Producer producer = {},
                records::Codec codec = records::Codec::none);

void create_topic(
    World& world, std::string_view name, std::int32_t partitions = 1,
    std::initializer_list<std::pair<std::string_view, std::string_view>> configs = {});

protocol::ProduceRequest produce_request(std::string_view topic, PartitionIndex partition,
                                         Bytes batch, std::int16_t acks = -1);

protocol::ProduceResponse::PartitionResponse produce(World& world, std::string_view topic,
                                                     PartitionIndex partition, Bytes batch,
                                                     std::size_t home = 0);

protocol::FetchRequest fetch_request(std::string_view topic, PartitionIndex partition, Offset from,
                                     std::int32_t max_wait = 0, std::int32_t min_bytes = 1);

// A record as a consumer sees it.
struct Seen {
  Offset offset;
  std::string value;
  std::int64_t timestamp;
  std::vector<std::pair<std::string, std::string>> headers;
};

std::vector<Seen> records_in(const protocol::FetchResponse& response);

// From `from` on, fetch by fetch as a consumer does.
std::vector<Seen> read_all(World& world, std::string_view topic, PartitionIndex partition = 0,
                           Offset from = 0);

std::vector<std::string> values(const std::vector<Seen>& seen);

}  // namespace tarry::broker::test
