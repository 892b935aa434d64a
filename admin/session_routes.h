#pragma once

// Sessions of browsers: POST /login exchanges a token for a cookie, POST /logout ends it, GET
// /session tells whether the asker may read.  docs/http.md has the fields.

#include <boost/asio/awaitable.hpp>

#include "admin/call.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> log_in(Call& call);
boost::asio::awaitable<Reply> log_out(Call& call);
boost::asio::awaitable<Reply> get_session(Call& call);

}  // namespace tarry::admin
