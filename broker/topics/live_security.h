#pragma once

// LiveSecurity: changes users and rules while the broker runs, in the order of the requests.
//
//   change --> journal of shard 0 --> Catalog --> every shard's SecurityImage --> answered
//
// A change that is answered is durable, and every shard works by it.
//
// On shard 0's thread.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "broker/security/security_image.h"
#include "storage/catalog.h"

namespace tarry::broker {

class ShardContext;

// Hands the image to every shard; the Broker implements it.  Called on shard 0's thread, comes back
// there.
class SecurityHost {
 public:
  virtual boost::asio::awaitable<void> publish_security() = 0;

 protected:
  ~SecurityHost() = default;
};

class LiveSecurity {
 public:
  LiveSecurity(ShardContext& shard, SecurityHost& host, storage::Catalog& catalog)
      : shard_(shard), host_(host), catalog_(catalog) {}

  struct Change {
    std::string key;
    std::optional<std::string> value;  // None: removed.
  };
  // All of them or none.
  boost::asio::awaitable<Result<>> change(std::vector<Change> changes);

 private:
  ShardContext& shard_;
  SecurityHost& host_;
  storage::Catalog& catalog_;
};

}  // namespace tarry::broker
