#pragma once

// The address of this broker for one client: that of the listener that it asked.

#include <cstdint>
#include <string>

#include "broker/broker.h"
#include "broker/context/request_context.h"

namespace tarry::broker {

struct AdvertisedAddress {
  const std::string& host;
  std::int32_t port;
};

inline AdvertisedAddress advertised_to(const RequestContext& context) {
  const auto& listener = context.connection.listener();
  if (!listener.advertised_host.empty())
    return {listener.advertised_host, listener.advertised_port};
  const auto& identity = context.broker.identity();
  return {identity.advertised_host, identity.advertised_port};
}

}  // namespace tarry::broker
