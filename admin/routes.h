#pragma once

// Routes: the admin's requests in one table, each with its handler.
//
//   HTTP --> Question --> answer(): host, origin, route, token, parameters --> handler --> Reply
//
// The table (routes.cc) says of each route its method, path, parameters and whether it changes
// something; all refusals follow from it.  An unknown path or parameter is refused by name, with an
// example, and never ignored.
//
// Runs on shard 0's thread; handlers hop from there.  docs/http.md says what programs may rely on.

#include <boost/asio/awaitable.hpp>

#include "admin/call.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> answer(Context& context, Question question);

}  // namespace tarry::admin
