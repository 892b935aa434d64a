#pragma once

// /status: the state of the broker on one page.  docs/http.md has the fields.

#include <boost/asio/awaitable.hpp>

#include "admin/call.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> get_status(Call& call);

}  // namespace tarry::admin
