#include "broker/views/topic_note.h"

#include <cstddef>

#include "broker/broker.h"

namespace tarry::broker {

boost::asio::awaitable<TopicNote> topic_note(Broker& broker, Shard& here, TopicId topic) {
  TopicNote all;
  for (std::size_t i = 0; i < broker.shard_count(); ++i) {
    Shard& shard = broker.shard(i);
    auto copy = [&shard, topic]() -> boost::asio::awaitable<TopicNote> {
      const TopicNote* note = shard.notes().find(topic);
      co_return note == nullptr ? TopicNote{} : *note;
    };
    all.add(co_await broker.on(here, shard, std::move(copy)));
  }
  co_return all;
}

}  // namespace tarry::broker
