#pragma once

// ClientMeters: a client's quotas with what it has used of each.
//
//   Connection --> ClientMeters (of its last client id)
//                     produce --> limit, meter --.
//                     fetch   --> limit, meter    +--> QuotaMeters
//                     request --> none           '
//                     pending_records --> limit
//
// A connection looks its meters up again when quotas have changed, or when it names another client
// id.
//
// Belongs to its connection, on the thread of that.

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "broker/security/quota_meters.h"
#include "broker/security/quota_table.h"
#include "broker/security/rate_meter.h"
#include "broker/security/security_image.h"

namespace tarry::broker {

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
