#pragma once

// The page: GET / is its document, GET /page/NAME its other files.  They need no token, because
// they tell nothing about the broker.  docs/http.md has the headers.

#include <boost/asio/awaitable.hpp>

#include "admin/call.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> get_page(Call& call);
boost::asio::awaitable<Reply> get_page_file(Call& call);

}  // namespace tarry::admin
