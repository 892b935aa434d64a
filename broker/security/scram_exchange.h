#pragma once

// ScramExchange: the broker's side of one SCRAM exchange (RFC 5802, without channel binding).
//
//   client  n,,n=alice,r=C                   first()
//   broker  r=CS,s=<salt>,i=4096
//   client  c=biws,r=CS,p=<proof>            final()
//   broker  v=<signature>                    authenticated
//
// The nonce of the last message has to be the client's and ours, whole (CVE-2024-56128).  A user
// that is not known gets a salt all the same, always the same one, of the size and with the number
// of iterations of a user that is there, and fails at the end, as one with a wrong password does.
//
// It belongs to the login of one connection and runs on the thread of its shard: the arithmetic is
// cheap, because the costly iterations are the client's.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/scram.h"

namespace tarry::broker {

// Whether a salt is made of lower-case letters and digits alone, as those of Kafka's own tool are.
bool is_text_salt(std::string_view salt);

class ScramExchange {
 public:
  using FindUser = std::function<const ScramCredential*(std::string_view name)>;

  // One of the users whose salts look different, the same for the same number; null: there are no
  // users.
  using FindExample = std::function<const ScramCredential*(std::uint64_t number)>;

  // `nonce` is ours, new each time; `secret` makes the salts of users that are not known.
  ScramExchange(ScramMechanism mechanism, std::string nonce, std::string_view secret)
      : mechanism_(mechanism), our_nonce_(std::move(nonce)), secret_(secret) {}

  // The answers; the errors are for the log.
  Result<std::string> first(std::string_view message, const FindUser& find,
                            const FindExample& find_example);
  Result<std::string> final(std::string_view message);

  bool has_begun() const { return !user_.empty(); }
  const std::string& user() const { return user_; }

 private:
  ScramCredential unknown_user(const FindExample& find_example) const;

  const ScramMechanism mechanism_;
  const std::string our_nonce_;
  const std::string secret_;
  std::string user_;
  bool known_ = false;
  ScramCredential credential_;
  std::string gs2_header_;
  std::string nonce_;         // The client's, then ours.
  std::string auth_message_;  // As far as it goes: without the client's last message.
};

}  // namespace tarry::broker
