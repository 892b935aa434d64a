#include "protocol/consumer_protocol.h"

#include "protocol/codec.h"

namespace tarry::protocol {
namespace {

// Kafka's limit.
constexpr std::size_t max_name_bytes = 249;
constexpr std::size_t min_name_bytes = 3;  // Bytes: a length, and one letter.
constexpr std::size_t min_topic_bytes = min_name_bytes + 4;
// A bound on what few bytes may become.
constexpr std::size_t max_topics = 100'000;

void read_version(Reader& reader) {
  std::int16_t version = 0;
  reader.number(version);
  // Any version will do: later ones add fields behind the topics, where nobody looks.
  if (version < 0) reader.fail("version {}", version);
}

template <typename Text>
void read_name(Reader& reader, Text& name) {
  reader.string(false, name);
  if (reader.ok() && (name.empty() || name.size() > max_name_bytes))
    reader.fail("a topic's name of {} bytes", name.size());
}

template <typename T, typename Read>
void read_topics(Reader& reader, std::size_t min_encoded_bytes, std::vector<T>& topics, Read read) {
  reader.array(false, min_encoded_bytes, topics, [&](T& topic) {
    if (topics.size() > max_topics) return reader.fail("more than {} topics", max_topics);
    read(topic);
  });
}

}  // namespace

std::optional<std::vector<std::string_view>> subscribed_topics(Bytes subscription) {
  Reader reader(subscription);
  std::vector<std::string_view> topics;
  read_version(reader);
  read_topics(reader, min_name_bytes, topics,
              [&](std::string_view& topic) { read_name(reader, topic); });
  // Not finish(): the assignor's own bytes follow, and in later versions more fields.
  if (!reader.ok()) return std::nullopt;
  return topics;
}

std::optional<std::vector<AssignedTopic>> assigned_partitions(Bytes assignment) {
  Reader reader(assignment);
  std::vector<AssignedTopic> topics;
  read_version(reader);
  read_topics(reader, min_topic_bytes, topics, [&](AssignedTopic& topic) {
    read_name(reader, topic.topic);
    reader.array(false, sizeof(PartitionIndex), topic.partitions, [&](PartitionIndex& partition) {
      reader.number(partition);
      if (partition < 0) reader.fail("partition {}", partition);
    });
  });
  if (!reader.ok()) return std::nullopt;
  return topics;
}

}  // namespace tarry::protocol
