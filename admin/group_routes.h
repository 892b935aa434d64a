#pragma once

// Consumer groups: listed, and one in full with its lag.  docs/http.md has the fields.

#include <boost/asio/awaitable.hpp>

#include "admin/call.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> get_groups(Call& call);
boost::asio::awaitable<Reply> get_group(Call& call);

}  // namespace tarry::admin
