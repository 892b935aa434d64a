#pragma once

// The wheels' levels, and the numbers of pending records in memory and on disk.  docs/http.md has
// the fields.

#include <boost/asio/awaitable.hpp>
#include <nlohmann/json_fwd.hpp>

#include "admin/call.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> get_wheel(Call& call);
boost::asio::awaitable<nlohmann::ordered_json> wheel_page_json(Context& context);

}  // namespace tarry::admin
