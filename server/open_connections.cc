#include "server/open_connections.h"

#include <fmt/core.h>

#include "base/assert.h"

namespace tarry::server {

std::string OpenConnections::begin(std::string_view peer) {
  const std::lock_guard lock(mutex_);
  if (count_ >= max_) {
    return fmt::format(
        "{} connections are open, which is the limit (max.connections, or less if the limit of "
        "open files is low)",
        max_);
  }
  const auto address = address_of(peer);
  auto found = of_address_.find(address);
  const std::size_t open = found == of_address_.end() ? 0 : found->second;
  if (open >= max_of_address_) {
    return fmt::format(
        "{} connections are open from its address, which is the limit (max.connections.per.ip)",
        open);
  }
  if (found == of_address_.end()) found = of_address_.emplace(std::string(address), 0).first;
  ++found->second;
  ++count_;
  return {};
}

void OpenConnections::ended(std::string_view peer) {
  const std::lock_guard lock(mutex_);
  const auto found = of_address_.find(address_of(peer));
  TARRY_ASSERT(found != of_address_.end(), "a connection ends once, and after its beginning");
  // An address that came once would stay for ever.
  if (--found->second == 0) of_address_.erase(found);
  --count_;
}

std::size_t OpenConnections::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

void OpenConnections::set_limits(std::size_t max, std::size_t max_of_address) {
  const std::lock_guard lock(mutex_);
  max_ = max;
  max_of_address_ = max_of_address;
}

std::size_t OpenConnections::max() const {
  const std::lock_guard lock(mutex_);
  return max_;
}

}  // namespace tarry::server
