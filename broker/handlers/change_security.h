#pragma once

// Changes users, rules or quotas for a request.

#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "broker/topics/live_security.h"

namespace tarry::broker {

struct RequestContext;

// All of them or none, on shard 0; durable, and in force on every shard, when it is done.
boost::asio::awaitable<Result<>> change_security(const RequestContext& context,
                                                 std::vector<LiveSecurity::Change> changes);

}  // namespace tarry::broker
