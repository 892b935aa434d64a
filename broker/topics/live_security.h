#pragma once

// LiveSecurity: changes users, rules and quotas while the broker runs, in the order of the
// requests, and gives principals their numbers.
//
//   change --> journal of shard 0 --> Catalog --> every shard's SecurityImage --> answered
//
// A change that is answered is durable, and every shard works by it.
//
// One change after the other, so while an image is made the catalog's rows stay as they are, and
// the pool can read them.  A change of very many rows goes to the journal in several records: when
// a crash or a full disk comes in between, the first of them are in force, and the request that
// wanted them was refused or not answered.
//
// On shard 0's thread.

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/ids.h"
#include "base/log_throttle.h"
#include "base/result.h"
#include "broker/context/turn_queue.h"
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
  // `shard` is shard 0.
  LiveSecurity(ShardContext& shard, SecurityHost& host, storage::Catalog& catalog);

  struct Change {
    std::string key;
    std::optional<std::string> value;  // None: removed.
    bool with_previous = false;        // It and the one before it are made together, or neither.
  };
  boost::asio::awaitable<Result<>> change(std::vector<Change> changes);

  // The number of a principal, "User:alice", for as long as there is this data directory.
  // Principals that can never have one, because there are too many or the name is too long, are
  // further_principals together.  unknown_principal: it could not be written down this time.
  static constexpr std::size_t max_principals = 10'000;
  static constexpr std::size_t max_principal_bytes = 1024;
  boost::asio::awaitable<PrincipalId> number_principal(std::string name);

 private:
  // In its turn.
  boost::asio::awaitable<Result<>> make(std::vector<Change> changes);
  std::vector<Change> numbers_for_all_waiting();
  struct Numbers {
    std::size_t count = 0;
    PrincipalId last = further_principals;
  };
  Numbers& numbers();
  boost::asio::awaitable<void> write_numbers();
  // In one record of the journal.
  boost::asio::awaitable<Result<>> write(std::span<const Change> changes);

  ShardContext& shard_;
  SecurityHost& host_;
  storage::Catalog& catalog_;
  TurnQueue turns_;
  // Principals that wait for a number: the first one's turn is for all of them.
  std::set<std::string> unnumbered_;
  // The image that is given out.  Empty: to be counted, at first and when a write has failed in the
  // middle. It is kept because each connection of a principal above the limit asks.
  std::optional<Numbers> numbers_;
  bool is_limit_told_ = false;
  LogThrottle unnoted_;
};

}  // namespace tarry::broker
