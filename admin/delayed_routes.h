#pragma once

// Pending records: listed, counted, shown, and what has happened to one.  docs/http.md has the
// fields.

#include <boost/asio/awaitable.hpp>

#include "admin/call.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> list_delayed(Call& call);
boost::asio::awaitable<Reply> count_delayed(Call& call);
boost::asio::awaitable<Reply> get_delayed(Call& call);
boost::asio::awaitable<Reply> trace_delayed(Call& call);
boost::asio::awaitable<Reply> trace_in_all_topics(Call& call);

}  // namespace tarry::admin
