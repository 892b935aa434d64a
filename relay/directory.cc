#include "relay/directory.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/crc32c.h"

namespace tarry::relay {
namespace {

constexpr std::string_view member_front = "tarry-relay-";

}  // namespace

std::string member_id_of(const Peer& peer) {
  return fmt::format("{}{}@{}#{}", member_front, peer.instance, peer.address, peer.key);
}

std::optional<Peer> peer_of(std::string_view member_id) {
  const auto at = member_id.find('@');
  const auto mark = member_id.rfind('#');
  if (!member_id.starts_with(member_front) || at == member_id.npos || mark == member_id.npos ||
      mark < at)
    return std::nullopt;
  Peer peer;
  peer.instance = member_id.substr(member_front.size(), at - member_front.size());
  peer.address = member_id.substr(at + 1, mark - at - 1);
  peer.key = member_id.substr(mark + 1);
  return peer;
}

std::optional<std::vector<Source>> standby_of(const Listing& listing, std::string_view key,
                                              std::size_t copies) {
  std::map<Source, const Peer*> owners;
  for (const auto& peer : listing.peers)
    for (const auto& source : peer.assigned) owners[source] = &peer;
  std::vector<Source> ours;
  for (const auto& [topic, partitions] : listing.sources) {
    for (PartitionIndex i = 0; i < partitions; ++i) {
      const Source source{topic, i};
      const auto owner = owners.find(source);
      // The group is moving partitions: a choice now would be another one in a moment.
      if (owner == owners.end()) return std::nullopt;
      std::vector<std::pair<std::uint32_t, std::string_view>> others;
      for (const auto& peer : listing.peers) {
        if (&peer == owner->second) continue;
        // Rendezvous hashing: when a member comes or goes, no copies move but those that it gets or
        // had.
        others.emplace_back(crc32c(as_bytes(peer.key + source.text())), peer.key);
      }
      std::ranges::sort(others);
      for (std::size_t j = 0; j < std::min(copies, others.size()); ++j)
        if (others[j].second == key) ours.push_back(source);
    }
  }
  return ours;
}

}  // namespace tarry::relay
