#pragma once

// AdminServer: the admin of one member over HTTP, about all members.  docs/relay.md lists the
// requests.
//
//   request --> what this member owns -----------------.
//       '-----> Directory --> the other members -------+--> one answer, with what is missing
//                             ?scope=member, signed by our PeerKey
//
// A request with scope=member is answered for this member alone; so no member waits for one that
// waits for it.  Each answer says which source partitions it covers; a partition that no answer
// covers is named, with its member and why.
//
// Access is as at a broker's admin (web/access_tokens.h): the tokens in the data directory say who
// may do what, and an admin on loopback alone may be read without one, unless loopback_reads is
// unset.  A member may do everything by its signature.  Refusals and changes are audit lines.
//
// Has a thread of its own, and one for questions to Kafka.

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/random.h"
#include "base/result.h"
#include "relay/admin_json.h"
#include "relay/directory.h"
#include "relay/member.h"
#include "relay/peer_key.h"

struct ssl_ctx_st;

namespace tarry::relay {

struct AdminOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8081;
  bool loopback_reads = true;  // On loopback reading needs no token.
  // The certificate of this member, and the authorities of all others' (empty: the system's), which
  // are asked over TLS, too.  Null: plain HTTP.
  std::shared_ptr<ssl_ctx_st> tls = nullptr;
  std::string ca = {};
};

class AdminServer {
 public:
  // Takes the address.  The error names it.
  static Result<std::unique_ptr<AdminServer>> open(const AdminOptions& options);
  ~AdminServer();

  const std::string& address() const;  // With the port that was found.
  // Reads the tokens, or makes them, and answers from then on.  All references outlive it.
  Result<> start(Member& member, Directory& directory, const Clock& clock, Random& random,
                 PeerKey key, MemberFacts facts);
  void stop();

  // From now on new connections have this certificate, and members are asked by the authorities
  // that `ca` has now.  The error: it cannot be read, and nothing changes.  Between start() and
  // stop(), for an admin that was opened with TLS.
  Result<> use_certificate(std::shared_ptr<ssl_ctx_st> tls);

 private:
  struct Impl;
  explicit AdminServer(std::unique_ptr<Impl> inside);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace tarry::relay
