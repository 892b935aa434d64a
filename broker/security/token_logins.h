#pragma once

// TokenLogins: what a listener needs to let clients log in by OAUTHBEARER: its settings, and the
// file with the keys of those who sign tokens.
//
// The file is read again when it has changed, no more often than once a second, and on SIGHUP.  One
// that cannot be used changes nothing but the log.
//
// Any thread: all shards share it.  Reading the file blocks, so a shard lets the pool do it.

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "broker/security/bearer_token.h"

namespace tarry::broker {

class TokenLogins {
 public:
  TokenLogins(std::string key_file, TokenTerms terms)
      : key_file_(std::move(key_file)), terms_(std::move(terms)) {}

  const TokenTerms& terms() const { return terms_; }
  // Null before the file was read.
  std::shared_ptr<const JsonWebKeys> keys() const;

  // Blocks.  Without `always` only if the file is another than the last time.
  Result<> read(bool always);
  // read(), whose error goes to the log.
  void read_again(bool always);
  // Whether it is time to look at the file; once a second.
  bool is_due(MonoTime now);

 private:
  const std::string key_file_;
  const TokenTerms terms_;
  std::atomic<MonoTime::rep> next_look_{0};
  std::mutex reading_;     // Held while the file is read.
  std::string last_file_;  // Size, time and inode, which distinguish it from another.
  mutable std::mutex mutex_;
  std::shared_ptr<const JsonWebKeys> keys_;
};

}  // namespace tarry::broker
