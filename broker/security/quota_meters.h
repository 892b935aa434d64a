#pragma once

// QuotaMeters: the meters of all clients that have a quota: one for all connections that share a
// rate, on any shard.
//
//   by user, client id --of()--> RateMeter <-- connection of shard 0
//                                          <-- connection of shard 1
//
// Clients choose their ids, so meters are bounded: above max_kept those that no connection holds
// are dropped, first those whose windows are over, which loses nothing.
//
// Any thread.

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"
#include "broker/security/quota_table.h"
#include "broker/security/rate_meter.h"

namespace tarry::broker {

class QuotaMeters {
 public:
  static constexpr std::size_t max_kept = 20'000;

  explicit QuotaMeters(RateWindows windows = {}) : windows_(windows) {}

  const RateWindows& windows() const { return windows_; }
  // A name that is not counted by is empty.
  std::shared_ptr<RateMeter> of(QuotaKind kind, bool by_user, std::string_view user, bool by_client,
                                std::string_view client_id, MonoTime now);
  std::size_t size() const;

 private:
  void make_room(MonoTime now);

  const RateWindows windows_;
  mutable std::mutex lock_;
  std::unordered_map<std::string, std::shared_ptr<RateMeter>> meters_;
  std::size_t room_made_at_ = max_kept;  // More, where connections hold so many.
};

}  // namespace tarry::broker
