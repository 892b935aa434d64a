#pragma once

// Directory: the members of the group, as Kafka's coordinator knows them at this moment.  A dead
// member is listed until its session times out; a member that owns no partition is listed, too.
//
// The client id with which a member joins names the address of its admin:
//
//   tarry-relay-INSTANCE@HOST:PORT#KEY        KEY: the public part of its PeerKey

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "relay/cluster.h"

namespace tarry::relay {

struct Peer {
  std::string instance;
  std::string address;  // The address of its admin: HOST:PORT.
  std::string key;
  std::vector<Source> assigned{};  // Empty while the group moves partitions.
};

std::string member_id_of(const Peer& peer);
// Empty: it is the client id of something else.
std::optional<Peer> peer_of(std::string_view member_id);

struct Listing {
  std::vector<Peer> peers;
  std::vector<std::string> strangers;    // Client ids of members that are no such members.
  std::map<std::string, int> sources{};  // The topics that are sources, with their partitions.
};

// The partitions of which the member with this key is to keep warm copies, so that each partition
// has `copies` of them.  All members compute the same.  Empty while the group moves partitions:
// then things stay as they are.
std::optional<std::vector<Source>> standby_of(const Listing& listing, std::string_view key,
                                              std::size_t copies);

class Directory {
 public:
  virtual ~Directory() = default;

  // Blocks, for a time that is known.  One thread.
  virtual Result<Listing> list() = 0;
};

}  // namespace tarry::relay
