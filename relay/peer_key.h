#pragma once

// PeerKey: the key by which a member of the relay signs its requests to other members.  Each member
// has its own, new in each incarnation.  The public part is in the member's client id
// (relay/directory.h), so the group's coordinator tells it to the others.
//
//   Authorization: Tarry-Peer KEY TIME NONCE SIGNATURE      Ed25519; hexadecimal, except for TIME
//
// The signed text names the method, the target, the body, and the address and the key of the member
// that it is meant for.  So it is valid for this one request to this one member, even if another
// one has the same address.  A nonce is accepted once, and within max_age.  A client that may join
// the group may ask its members for what an operator may ask; nobody else can.

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/result.h"

struct evp_pkey_st;

namespace tarry::relay {

struct PeerRequest {
  std::string_view method, target, body;
  std::string_view address;  // The address of the member that is asked,
  std::string_view key;      // and its key.
};

// The member that has signed a request.
struct Signer {
  std::string key, nonce;
};

class PeerKey {
 public:
  static Result<PeerKey> make();
  PeerKey(PeerKey&&) noexcept;
  ~PeerKey();

  const std::string& public_part() const { return public_; }
  // The value of Authorization.  `nonce`: hexadecimal, for once.
  std::string sign(const PeerRequest& request, WallTime now, std::string_view nonce) const;

 private:
  PeerKey() = default;

  evp_pkey_st* key_ = nullptr;
  std::string public_;
};

// On one thread.
class PeerChecks {
 public:
  static constexpr std::chrono::seconds max_age{60};
  static constexpr std::size_t max_nonces = 100'000;

  // Whether it is such a signature, good or bad.
  static bool is_signature(std::string_view authorization);
  // With everything right about it, and a nonce that was not taken; empty: it is not.
  std::optional<Signer> signer(std::string_view authorization, const PeerRequest& request,
                               WallTime now) const;
  // For a member of the group, so that nobody else fills the memory; false: it is taken already.
  bool take(const Signer& signer, WallTime now);

 private:
  std::set<std::string, std::less<>> nonces_;
  std::deque<std::pair<WallTime, std::string>> by_age_;
};

}  // namespace tarry::relay
