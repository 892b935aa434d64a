#include "broker/consumer_protocol.h"

namespace tarry::broker {
namespace {

// Past the end everything is zero and good() is false.
class Reader {
 public:
  explicit Reader(Bytes bytes) : left_(bytes) {}

  template <typename T>
  T number() {
    if (left_.size() < sizeof(T)) {
      good_ = false;
      left_ = {};
      return T{};
    }
    const T value = load_be<T>(left_.data());
    left_ = left_.subspan(sizeof(T));
    return value;
  }
  // A topic's name: never empty, so that few bytes do not make many strings.
  std::string name() {
    const auto length = number<std::int16_t>();
    if (length <= 0 || static_cast<std::size_t>(length) > left_.size()) {
      good_ = false;
      left_ = {};
      return {};
    }
    const auto taken = left_.first(static_cast<std::size_t>(length));
    left_ = left_.subspan(taken.size());
    return std::string(as_text(taken));
  }
  // Elements are read until they end, so nothing is allocated for a count.
  template <typename Take>
  void array(Take take) {
    auto count = number<std::int32_t>();
    if (count < 0 || count > most_elements) good_ = false;
    for (; count > 0 && good_; --count) take();
  }
  bool good() const { return good_; }

 private:
  static constexpr std::int32_t most_elements = 100'000;

  Bytes left_;
  bool good_ = true;
};

}  // namespace

std::optional<std::vector<std::string>> subscribed_topics(Bytes subscription) {
  Reader reader(subscription);
  std::vector<std::string> topics;
  const auto version = reader.number<std::int16_t>();
  reader.array([&] { topics.push_back(reader.name()); });
  if (!reader.good() || version < 0) return std::nullopt;
  return topics;
}

std::optional<std::vector<AssignedTopic>> assigned_partitions(Bytes assignment) {
  Reader reader(assignment);
  std::vector<AssignedTopic> topics;
  const auto version = reader.number<std::int16_t>();
  reader.array([&] {
    auto& topic = topics.emplace_back();
    topic.topic = reader.name();
    reader.array([&] { topic.partitions.push_back(reader.number<PartitionIndex>()); });
  });
  if (!reader.good() || version < 0) return std::nullopt;
  return topics;
}

}  // namespace tarry::broker
