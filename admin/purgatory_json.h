#pragma once

// Parked requests by kind, as /status and /purgatory show them.
//
// For .cc files alone: it brings nlohmann/json with it.

#include <vector>

#include "admin/call.h"
#include "broker/views/status.h"
#include "web/json_fields.h"
#include "web/json_reply.h"

namespace tarry::admin {

// Every kind of delayed operation, whether it has ever waited or not; all shards together.
Json purgatory_json(const std::vector<broker::ShardStatus>& shards,
                    web::JsonFields::Histograms histograms);

}  // namespace tarry::admin
