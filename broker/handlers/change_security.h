#pragma once

// Changes users, rules or quotas for a request.

#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "broker/topics/live_security.h"

namespace tarry::broker {

struct RequestContext;

// On shard 0; durable, and in force on every shard, when it is done.  After an error some may be
// (topics/live_security.h).
boost::asio::awaitable<Result<>> change_security(const RequestContext& context,
                                                 std::vector<LiveSecurity::Change> changes);

}  // namespace tarry::broker
