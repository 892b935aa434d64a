#pragma once

// The JSON that the admin of a relay's member shows.  Only for .cc files (base/json.h).

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/json.h"
#include "relay/directory.h"
#include "relay/member.h"

namespace tarry::relay {

struct MemberFacts {
  std::string version, cluster_id, data;
  std::string owner;  // The front of its transactional ids.
  Peer self;
  std::string group, delivery;
  std::size_t memory = 0;
  std::size_t standby = 0;  // --standby
  MonoTime started{};
};

Json ms_json(std::optional<WallTime> time);
Json record_json(const PendingEntry& shown, bool has_value);
std::string state_of(const MemberStatus& status, bool is_ready);
// The answer to /status, as far as this member knows it.
Json status_json(const MemberFacts& facts, const MemberStatus& status, bool is_ready, WallTime now,
                 MonoTime mono);

// --- Answers of other members.  Any program may listen at a member's address and answer anything,
// so these functions read what is there and never throw.

// Null: there is no such part.
const Json& field_of(const Json& json, const char* name);
// Empty, and 0 or what is said: the part is not there, or another kind of value.
std::string text_in(const Json& json, const char* name);
std::int64_t integer_in(const Json& json, const char* name, std::int64_t otherwise = 0);
Source source_in(const Json& json);

// Whether all of these parts are lists of objects.
bool has_lists(const Json& answer, std::initializer_list<const char*> names);
bool is_status(const Json& answer);
// Adds what another member has answered to /status: is_status().
void add_status(Json& to, const Peer& peer, const Json& from);

// The partitions whose pending records this member knows.
Json covers_json(const MemberStatus& status);

// A place in the order of pending records, for `after`.
std::string place_text(const PendingPlace& place);
std::optional<PendingPlace> parse_place(std::string_view value);

}  // namespace tarry::relay
