#pragma once

// SessionLimits: the limits of what connections may use, most of them for one connection.  Each has
// a key in the configuration.

#include <chrono>
#include <cstddef>

namespace tarry::server {

struct SessionLimits {
  std::size_t frame_bytes = 104'857'600;          // socket.request.max.bytes
  std::size_t requests_in_flight = 1000;          // tarry.connection.max.requests
  std::size_t bytes_in_flight = 134'217'728;      // tarry.connection.max.bytes
  std::chrono::milliseconds idle{600'000};        // connections.max.idle.ms
  std::chrono::milliseconds write_stall{60'000};  // tarry.connection.write.stall.ms
};

}  // namespace tarry::server
