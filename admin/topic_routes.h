#pragma once

// Topics: listed, shown, deleted with their pending records.  docs/http.md has the fields.

#include <boost/asio/awaitable.hpp>

#include "admin/call.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> get_topics(Call& call);
boost::asio::awaitable<Reply> get_topic(Call& call);
boost::asio::awaitable<Reply> delete_topic(Call& call);

}  // namespace tarry::admin
