#pragma once

// ShardSecurity: a shard's view of users, rules and quotas, and what it notes of clients that were
// refused.
// On the shard's thread.

#include <memory>

#include "base/log_throttle.h"
#include "broker/security/security_image.h"

namespace tarry::broker {

struct ShardSecurity {
  std::shared_ptr<const SecurityImage> image = std::make_shared<const SecurityImage>();
  // A client can cause these over and over.
  LogThrottle log_failed_logins{5};
  LogThrottle log_refused_mechanisms{5};
  LogThrottle log_before_login{5};
  LogThrottle log_expired_logins{5};
  LogThrottle log_refused{20};
};

}  // namespace tarry::broker
