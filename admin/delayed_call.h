#pragma once

// The parts that requests about pending records share: those that clients give, and a record as
// JSON. Mistakes of a client are thrown as Refused, with the name and the value.
//
// On shard 0's thread.

#include <optional>
#include <string>

#include "admin/call.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "broker/topics/topics.h"
#include "broker/views/delayed_records.h"
#include "web/json_reply.h"
#include "web/selection_request.h"

namespace tarry::admin {

// The topic of that name, if the client may read its pending records; or 404, or 403.
broker::TopicPtr topic_of(Call& call, const std::string& name);

// The parameter `partition`, of that topic.
std::optional<PartitionIndex> partition_of(Call& call, const storage::Topic& topic);

// The conditions of a request become those of the broker's query.
void put_filter(broker::DelayedQuery& query, const RecordFilter& filter);

// A time that was given as `name`, by the broker's clock.
WallTime time_of(const Call& call, const char* name, const std::string& text);

// Throws Refused for an id that is longer than that of any record.
void check_id_length(const std::string& name);

// The record of /delayed/TOPIC/ID...?partition=.  Throws Refused as the parts above.
struct NamedCall {
  explicit NamedCall(Call& call);

  const broker::TopicPtr topic;
  const std::optional<PartitionIndex> partition;
  const std::string name;  // An id or a handle.
};

// Throws what the broker could not do.
[[noreturn]] void throw_failed(const Error& error);

// A record without its value.
Json json_of(const broker::DelayedRecord& record);
// Adds its timestamp and its value, in base64.
void put_value(Json& to, const broker::DelayedRecord& record);

}  // namespace tarry::admin
