#include "protocol/consumer_protocol.h"

#include "protocol/codec.h"

namespace tarry::protocol {
namespace {

constexpr std::size_t longest_name = 249;
constexpr std::size_t least_name = 3;  // Bytes: a length, and one letter.
constexpr std::size_t least_topic = least_name + 4;
// A bound on what few bytes may become.
constexpr std::size_t most_topics = 100'000;

void read_version(Reader& reader) {
  std::int16_t version = 0;
  reader.number(version);
  if (version < 0) reader.fail("version {}", version);
}

template <typename Text>
void read_name(Reader& reader, Text& name) {
  reader.string(false, name);
  if (reader.ok() && (name.empty() || name.size() > longest_name))
    reader.fail("a topic's name of {} bytes", name.size());
}

template <typename T, typename Read>
void read_topics(Reader& reader, std::size_t least_size, std::vector<T>& topics, Read read) {
  reader.array(false, least_size, topics, [&](T& topic) {
    if (topics.size() > most_topics) return reader.fail("more than {} topics", most_topics);
    read(topic);
  });
}

}  // namespace

std::optional<std::vector<std::string_view>> subscribed_topics(Bytes subscription) {
  Reader reader(subscription);
  std::vector<std::string_view> topics;
  read_version(reader);
  read_topics(reader, least_name, topics,
              [&](std::string_view& topic) { read_name(reader, topic); });
  if (!reader.ok()) return std::nullopt;
  return topics;
}

std::optional<std::vector<AssignedTopic>> assigned_partitions(Bytes assignment) {
  Reader reader(assignment);
  std::vector<AssignedTopic> topics;
  read_version(reader);
  read_topics(reader, least_topic, topics, [&](AssignedTopic& topic) {
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
