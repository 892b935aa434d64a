#pragma once

// client_quota(): the limit that holds for a request's client, and the meter of what it has used.
//
// It is false where there is none, which costs a look at a number if nobody has such a quota.

#include "broker/context/request_context.h"
#include "broker/security/client_meters.h"

namespace tarry::broker {

ClientMeters::Metered client_quota(const RequestContext& context, QuotaKind kind);

}  // namespace tarry::broker
