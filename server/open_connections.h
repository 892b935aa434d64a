#pragma once

// OpenConnections: how many connections there are, over all listeners and from each address, and
// whether there may be one more (max.connections, max.connections.per.ip).
//
// Any thread: connections begin on shard 0's and end on their own.

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace tarry::server {

class OpenConnections {
 public:
  OpenConnections(std::size_t max, std::size_t max_of_address)
      : max_(max), max_of_address_(max_of_address) {}

  // Connections above a lower limit stay open until they end by themselves.
  void set_limits(std::size_t max, std::size_t max_of_address);
  std::size_t max() const;

  // Empty: the connection of `peer` ("127.0.0.1:40312") counts from now on, until ended().  A text:
  // the reason why it may not be.
  std::string begin(std::string_view peer);
  void ended(std::string_view peer);

  std::size_t count() const;

 private:
  static std::string_view address_of(std::string_view peer) {
    return peer.substr(0, peer.rfind(':'));
  }

  mutable std::mutex mutex_;  // Guards what follows.
  std::size_t max_;
  std::size_t max_of_address_;
  std::size_t count_ = 0;
  std::map<std::string, std::size_t, std::less<>> of_address_;  // None of them is 0.
};

}  // namespace tarry::server
