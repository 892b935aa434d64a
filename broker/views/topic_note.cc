#include "broker/views/topic_note.h"

#include <cstddef>
#include <utility>

#include "broker/broker.h"
#include "broker/views/each_shard.h"

namespace tarry::broker {

boost::asio::awaitable<std::vector<TopicNote>> topic_notes(Broker& broker, Shard& here,
                                                           std::vector<TopicId> topics) {
  std::vector<TopicNote> all(topics.size());
  const auto take = [&topics, &all](Shard& shard) -> boost::asio::awaitable<void> {
    // Most topics have no note, so only those that have one are copied.
    for (std::size_t place = 0; place < topics.size(); ++place) {
      if (const auto note = shard.notes().copy(topics[place])) all[place].add(*note);
    }
    co_return;
  };
  co_await on_each_shard(broker, here, take);
  co_return all;
}

boost::asio::awaitable<TopicNote> topic_note(Broker& broker, Shard& here, TopicId topic) {
  std::vector<TopicId> topics{topic};
  auto notes = co_await topic_notes(broker, here, std::move(topics));
  co_return std::move(notes.front());
}

}  // namespace tarry::broker
