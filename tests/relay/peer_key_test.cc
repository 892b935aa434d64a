#include "relay/peer_key.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include "relay/directory.h"

namespace tarry::relay {
namespace {

const WallTime signed_at = from_ms(1'800'000'000'000);
const std::string a_nonce(32, 'a');

}  // namespace

TEST_CASE("a signed request is known once, within its time, and as it was signed") {
  const auto key = PeerKey::make();
  REQUIRE(key.has_value());
  const PeerRequest request{"POST", "/peer/orders", R"({"orders":[]})", "127.0.0.1:8081", "aa"};
  const std::string good = key->sign(request, signed_at, a_nonce);
  const auto signer = [](std::string_view authorization, const PeerRequest& of, WallTime now) {
    const auto found = PeerChecks().signer(authorization, of, now);
    return found ? found->key : "";
  };
  CHECK(signer(good, request, signed_at) == key->public_part());
  CHECK(signer(good, request, signed_at + std::chrono::seconds(61)) == "");
  CHECK(signer(good, request, signed_at - std::chrono::seconds(61)) == "");
  for (const auto& other :
       {PeerRequest{"GET", request.target, request.body, request.address, request.key},
        {request.method, "/peer", request.body, request.address, request.key},
        {request.method, request.target, "{}", request.address, request.key},
        {request.method, request.target, request.body, "127.0.0.1:8082", request.key},
        {request.method, request.target, request.body, request.address, "ab"}})
    CHECK(signer(good, other, signed_at) == "");
  PeerChecks checks;
  const auto known = checks.signer(good, request, signed_at);
  REQUIRE(known.has_value());
  CHECK(checks.signer(good, request, signed_at).has_value());  // It is not taken yet.
  CHECK(checks.take(*known, signed_at));
  CHECK_FALSE(checks.take(*known, signed_at));
  CHECK_FALSE(checks.signer(good, request, signed_at).has_value());  // The same nonce.
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = bad[i] == '0' ? '1' : '0';
    CHECK(signer(bad, request, signed_at) != key->public_part());
    CHECK(signer(good.substr(0, i), request, signed_at) == "");
  }
}

TEST_CASE("a member's client id says where its admin is, and other client ids say nothing") {
  const Peer peer{"m1@x", "[::1]:8081", "00ff"};
  const auto read = peer_of(member_id_of({"m1", "[::1]:8081", "00ff"}));
  REQUIRE(read.has_value());
  CHECK(read->instance == "m1");
  CHECK(read->address == peer.address);
  CHECK(read->key == peer.key);
  for (const char* other : {"", "rdkafka", "tarry-relay-m1", "tarry-relay-m1@host:1", "x@y#z"})
    CHECK_FALSE(peer_of(other).has_value());
}

TEST_CASE("each partition has as many standbys as are wanted, none is its owner, and all agree") {
  Listing listing;
  listing.sources["a.delayed"] = 12;
  for (int i = 0; i < 4; ++i) {
    Peer peer{"m" + std::to_string(i), "h:1", "key" + std::to_string(i)};
    for (int j = 0; j < 3; ++j) peer.assigned.push_back({"a.delayed", 3 * i + j});
    listing.peers.push_back(std::move(peer));
  }
  for (std::size_t copies = 0; copies < 6; ++copies) {
    std::map<Source, std::size_t> counts;
    for (const auto& peer : listing.peers) {
      const auto ours = standby_of(listing, peer.key, copies);
      REQUIRE(ours.has_value());
      for (const auto& source : *ours) {
        ++counts[source];
        CHECK(std::ranges::find(peer.assigned, source) == peer.assigned.end());
      }
    }
    CHECK(counts.size() == (copies == 0 ? 0 : 12));
    for (const auto& [source, count] : counts) CHECK(count == std::min<std::size_t>(copies, 3));
  }
  listing.peers[2].assigned.pop_back();
  CHECK_FALSE(standby_of(listing, "key1", 1).has_value());
}

}  // namespace tarry::relay
