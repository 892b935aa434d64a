#include "relay/directory.h"

#include <fmt/format.h>

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

}  // namespace tarry::relay
