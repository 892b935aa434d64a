#pragma once

// All metrics, for Prometheus.

#include <boost/asio/awaitable.hpp>

#include "admin/call.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> get_metrics(Call& call);

}  // namespace tarry::admin
