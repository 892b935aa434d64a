#pragma once

// The connected clients, over HTTP.  docs/http.md has the fields.

#include <cstddef>

#include <boost/asio/awaitable.hpp>
#include <nlohmann/json_fwd.hpp>

#include "admin/call.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> get_clients(Call& call);
// The newest `limit` of them, and how many there are.
boost::asio::awaitable<nlohmann::ordered_json> clients_json(Context& context, std::size_t limit);

}  // namespace tarry::admin
