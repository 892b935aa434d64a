#pragma once

// topic_note(): what the producers of one topic got wrong, as all shards have noted it;
// topic_notes(): the same of several, for which each shard is visited once.

#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/ids.h"
#include "broker/partitions/topic_notes.h"

namespace tarry::broker {

class Broker;
class Shard;

// Starts and ends on the thread of `here`.
boost::asio::awaitable<TopicNote> topic_note(Broker& broker, Shard& here, TopicId topic);

// In the order of `topics`.
boost::asio::awaitable<std::vector<TopicNote>> topic_notes(Broker& broker, Shard& here,
                                                           std::vector<TopicId> topics);

}  // namespace tarry::broker
