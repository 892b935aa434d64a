#pragma once

// Health, readiness, and the proof that this admin knows its token: the requests that need no
// token.  docs/http.md has the fields.

#include <boost/asio/awaitable.hpp>

#include "admin/call.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> get_health(Call& call);
boost::asio::awaitable<Reply> get_readiness(Call& call);
boost::asio::awaitable<Reply> get_proof(Call& call);

}  // namespace tarry::admin
