#pragma once

// ClientMeters and QuotaMeters: a client's quotas with what it has used of each.
//
//   Connection --> ClientMeters (of its last client id)
//                     produce --> limit, meter --.
//                     fetch   --> limit, meter    +--> QuotaMeters: one meter for all connections
//                     request --> none           '     that share a rate, on any shard
//                     pending_records --> limit
//
// A connection looks its meters up again when quotas have changed, or when it names another client
// id.
//
// Clients choose their ids, so meters are bounded: above max_kept those that no connection holds
// are dropped, first those whose windows are over, which loses nothing.
//
// QuotaMeters: any thread.  A ClientMeters belongs to its connection.

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"
#include "broker/security/quota_table.h"
#include "broker/security/rate_meter.h"
#include "broker/security/security_image.h"

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

struct ClientMeters {
  struct Metered {
    double limit = 0;                  // 0: there is no quota.
    std::shared_ptr<RateMeter> meter;  // Null: there is none, or it is no rate.
    explicit operator bool() const { return meter != nullptr; }
  };

  std::shared_ptr<const SecurityImage> image;  // The meters were looked up in it.
  std::string user, client_id;
  std::array<Metered, quota_kinds> of;

  bool are_of(const SecurityImage* now, std::string_view name, std::string_view id) const {
    return image.get() == now && client_id == id && user == name;
  }
  static ClientMeters find(std::shared_ptr<const SecurityImage> image, QuotaMeters& meters,
                           std::string_view user, std::string_view client_id, MonoTime now);
};

}  // namespace tarry::broker
