#pragma once

// GET /events and GET /delayed/due: what the page shows.  docs/http.md has the fields.

#include <boost/asio/awaitable.hpp>

#include "admin/call.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> get_events(Call& call);
boost::asio::awaitable<Reply> get_due(Call& call);

}  // namespace tarry::admin
