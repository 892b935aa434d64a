#include "broker/views/topic_note.h"

#include <cstddef>
#include <utility>

#include "broker/broker.h"

namespace tarry::broker {

boost::asio::awaitable<std::vector<TopicNote>> topic_notes(Broker& broker, Shard& here,
                                                           std::vector<TopicId> topics) {
  std::vector<TopicNote> all(topics.size());
  for (std::size_t i = 0; i < broker.shard_count(); ++i) {
    Shard& shard = broker.shard(i);
    using Noted = std::vector<std::pair<std::size_t, TopicNote>>;
    // Most topics have no note, so only those that have one are copied.
    auto copy = [&shard, &topics]() -> boost::asio::awaitable<Noted> {
      Noted noted;
      for (std::size_t place = 0; place < topics.size(); ++place) {
        if (auto note = shard.notes().copy(topics[place]))
          noted.emplace_back(place, std::move(*note));
      }
      co_return noted;
    };
    const Noted noted = co_await broker.on(here, shard, std::move(copy));
    for (const auto& [place, note] : noted) all[place].add(note);
  }
  co_return all;
}

boost::asio::awaitable<TopicNote> topic_note(Broker& broker, Shard& here, TopicId topic) {
  std::vector<TopicId> topics{topic};
  auto notes = co_await topic_notes(broker, here, std::move(topics));
  co_return std::move(notes.front());
}

}  // namespace tarry::broker
