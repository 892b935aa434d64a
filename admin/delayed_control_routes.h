#pragma once

// Changes of pending records: one is cancelled, moved, delivered now; or all of a
// selection are.  docs/http.md has the fields.

#include <boost/asio/awaitable.hpp>

#include "admin/call.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> cancel_delayed(Call& call);
boost::asio::awaitable<Reply> move_delayed(Call& call);
boost::asio::awaitable<Reply> deliver_delayed(Call& call);
boost::asio::awaitable<Reply> select_delayed(Call& call);
// Answers what a selection would change, for clients that may only read.
boost::asio::awaitable<Reply> preview_selection(Call& call);

}  // namespace tarry::admin
