#pragma once

// PendingReader: who reads pending records over the admin, and those of which topics they may read.
//
//   the holder `alice` of a line in admin.tokens  -->  User:alice
//   nobody, because no token came                 -->  User:ANONYMOUS, as a client without a login
//   the machine's operator (admin.token,          -->  everything
//     admin.read.token)
//
// Once a rule is for the name "orders/pending", the pending records of `orders` need READ on it, by
// the rules of security/security_image.h.  A topic without such a rule is open to everybody who may
// read over the admin.
//
// Each answer is by the rules as they are then.  On the thread of the shard `here`.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/awaitable.hpp>

#include "broker/security/security_image.h"
#include "storage/pending.h"

namespace tarry::broker {

class Broker;
class Shard;

class PendingReader {
 public:
  // `name`: the token's; empty: none came.  `address`: "10.0.0.7", "::1".
  PendingReader(std::string_view name, std::string_view address);
  // The one who may read everything.
  static PendingReader machine_operator() { return {}; }

  bool may_read(Broker& broker, Shard& here, std::string_view topic) const;
  // The microseconds that this takes for a topic with a rule, or a little less.
  static constexpr std::size_t us_to_judge = 3;
  // Whether that is so of every topic.
  bool may_read_all(Broker& broker, Shard& here) const;
  // The topics of which it may not.
  boost::asio::awaitable<storage::HiddenTopics> hidden_topics(Broker& broker, Shard& here) const;

  // A sentence for the client: which right it lacks.
  std::string why_not(std::string_view topic) const;

 private:
  PendingReader() = default;

  std::optional<ClientIdentity> who_;  // Empty: the operator.
};

}  // namespace tarry::broker
