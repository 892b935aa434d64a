#pragma once

// How the broker is: one handler a path.  docs/http.md has the fields.

#include <boost/asio/awaitable.hpp>

#include "admin/call.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> get_health(Call& call);
boost::asio::awaitable<Reply> get_proof(Call& call);
boost::asio::awaitable<Reply> get_readiness(Call& call);
boost::asio::awaitable<Reply> get_status(Call& call);
boost::asio::awaitable<Reply> get_wheel(Call& call);
boost::asio::awaitable<Reply> get_purgatory(Call& call);
boost::asio::awaitable<Reply> get_topics(Call& call);
boost::asio::awaitable<Reply> get_topic(Call& call);
boost::asio::awaitable<Reply> delete_topic(Call& call);
boost::asio::awaitable<Reply> get_metrics(Call& call);

}  // namespace tarry::admin
