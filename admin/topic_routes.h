#pragma once

// Topics: listed, shown, deleted with their pending records.  docs/http.md has the fields.

#include <boost/asio/awaitable.hpp>
#include <nlohmann/json_fwd.hpp>

#include "admin/call.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> get_topics(Call& call);
// The data of the event `topics`: those with most pending records, without configs; it opens no
// partition.
boost::asio::awaitable<nlohmann::ordered_json> topics_event_json(Context& context,
                                                                 std::size_t limit);
boost::asio::awaitable<Reply> get_topic(Call& call);
boost::asio::awaitable<Reply> delete_topic(Call& call);

}  // namespace tarry::admin
