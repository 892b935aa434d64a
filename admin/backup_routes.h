#pragma once

// POST /backup: a consistent copy of the running broker, with a line of JSON each quarter of a
// second while it works.  docs/http.md has the fields.

#include <boost/asio/awaitable.hpp>

#include "admin/call.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> make_backup(Call& call);

}  // namespace tarry::admin
