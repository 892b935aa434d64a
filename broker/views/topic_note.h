#pragma once

// topic_note(): what the producers of one topic got wrong, as all shards have noted it.

#include <boost/asio/awaitable.hpp>

#include "base/ids.h"
#include "broker/partitions/topic_notes.h"

namespace tarry::broker {

class Broker;
class Shard;

// Starts and ends on the thread of `here`.
boost::asio::awaitable<TopicNote> topic_note(Broker& broker, Shard& here, TopicId topic);

}  // namespace tarry::broker
