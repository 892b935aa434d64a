#pragma once

// Consumer groups: listed, and one in full with its lag.  docs/http.md has the fields.

#include <boost/asio/awaitable.hpp>
#include <nlohmann/json_fwd.hpp>

#include "admin/call.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> get_groups(Call& call);
// For the event stream: the `limit` groups with the most lag.
boost::asio::awaitable<nlohmann::ordered_json> groups_event_json(Context& context,
                                                                 std::size_t limit);
boost::asio::awaitable<Reply> get_group(Call& call);

}  // namespace tarry::admin
