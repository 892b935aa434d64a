#pragma once

// The requests that wait for an answer, by kind.  docs/http.md has the fields.

#include <boost/asio/awaitable.hpp>

#include "admin/call.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> get_purgatory(Call& call);

}  // namespace tarry::admin
