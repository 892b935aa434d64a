#pragma once

// /status: the state of the broker on one page.  docs/http.md has the fields.

#include <boost/asio/awaitable.hpp>
#include <nlohmann/json_fwd.hpp>

#include "admin/call.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> get_status(Call& call);
boost::asio::awaitable<nlohmann::ordered_json> status_json(Context& context);
// Some of its figures: those that are known without a look at the disk or at a list of files.
boost::asio::awaitable<nlohmann::ordered_json> quick_figures_json(Context& context);

}  // namespace tarry::admin
