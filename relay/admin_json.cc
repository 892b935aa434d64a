#include "relay/admin_json.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "base/base64.h"
#include "base/utf8.h"
#include "delay/pending_record.h"
#include "storage/journal_record.h"
#include "web/json_fields.h"

namespace tarry::relay {
namespace {

template <typename Number>
std::optional<Number> number_in_text(std::string_view text) {
  Number number{};
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  // A text that goes on behind its number is nothing that this admin has given out.
  if (read.ec != std::errc{} || read.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

Json member_json(const Peer& peer, const Json& relay, const Json& delayed) {
  Json member{{"instance", peer.instance}, {"address", peer.address}};
  for (const char* name : {"state", "stalled", "owned", "standby", "transactions_total"}) {
    const Json& part = field_of(relay, name);
    // Only plain values are shown of another member's answer, which may be anything.
    if (part.is_primitive() && relay.contains(name)) member[name] = part;
  }
  member["pending"] = integer_in(delayed, "pending");
  return member;
}

double figure_in(const Json& json, const char* name) {
  const Json& part = field_of(json, name);
  return part.is_number() ? part.get<double>() : 0.0;
}

}  // namespace

Json ms_json(std::optional<WallTime> time) {
  if (!time) return nullptr;
  return to_ms(*time);
}

Json record_json(const PendingEntry& shown, bool has_value) {
  Json json;
  json["topic"] = shown.source.topic;
  json["partition"] = shown.source.partition;
  if (shown.record.id.empty()) {
    json["id"] = nullptr;
  } else {
    put_bytes(json, "id", as_bytes(shown.record.id));
  }
  json["handle"] = handle_of(shown.source, shown.offset);
  json["target"] = shown.record.target;
  json["due_ms"] = to_ms(shown.record.due);
  const auto body = delay::PendingRecordBody::parse(shown.record.body);
  // A record of a newer version is listed as far as its row says: an operator has to find it.
  if (!body) return json;
  // A relay accepts nothing itself: the time is that from which x-delay counts.
  json["accepted_ms"] = to_ms(body->original);
  const bool expires = shown.record.expires != storage::never_expires;
  json["expires_ms"] = ms_json(expires ? std::optional(shown.record.expires) : std::nullopt);
  put_bytes(json, "key", body->record.key);
  json["value_bytes"] = nullptr;
  if (body->record.value) json["value_bytes"] = body->record.value->size();
  json["headers"] = Json::array();
  for (const auto& header : body->record.headers) {
    Json each;
    put_bytes(each, "name", as_bytes(header.name));
    put_bytes(each, "value", header.value);
    json["headers"].push_back(std::move(each));
  }
  json["recurring"] = !body->recurrence.empty();
  // Lists leave values out unless they are asked for: they are most of the bytes, and seldom read.
  if (has_value) {
    json["timestamp_ms"] = to_ms(body->original);
    json["value"] = nullptr;
    if (body->record.value) json["value"] = base64(as_text(*body->record.value));
  }
  return json;
}

std::string state_of(const MemberStatus& status, bool is_ready) {
  // The reason to stand still comes first, because it is mostly the cause of the other two.
  if (!status.stalled.empty()) return "stalled";
  if (status.is_full) return "full";
  return is_ready ? "running" : "taking over";
}

Json status_json(const MemberFacts& facts, const MemberStatus& status, bool is_ready, WallTime now,
                 MonoTime mono) {
  const std::string state = state_of(status, is_ready);
  Json partitions = Json::array();
  for (const auto& each : status.partitions) {
    Json partition{{"topic", each.source.topic},    {"partition", each.source.partition},
                   {"member", facts.self.instance}, {"state", name_of(each.stage)},
                   {"pending", each.pending},       {"arrived", each.arrived},
                   {"next_offset", each.next},      {"next_due", ms_json(each.next_due)},
                   {"paused", each.is_paused}};
    partition["take_over_ms"] = nullptr;
    if (each.take_over_ms) partition["take_over_ms"] = *each.take_over_ms;
    partition["waits"] = nullptr;
    if (!each.waits.empty()) partition["waits"] = each.waits;
    partitions.push_back(std::move(partition));
  }
  Json relay{{"group", facts.group},
             {"instance", facts.self.instance},
             {"address", facts.self.address},
             {"transactional_id", facts.owner},
             {"delivery", facts.delivery},
             {"state", state},
             {"stalled", nullptr},
             {"partitions", std::move(partitions)},
             {"memory_bytes", facts.memory}};
  if (!status.stalled.empty()) relay["stalled"] = status.stalled;
  web::JsonFields member, pending;
  status.report_member(member);
  member.put_into(relay);
  status.report_delayed(pending);
  Json delayed = pending.object();
  relay["members"] = Json::array({member_json(facts.self, relay, delayed)});
  // Empty lists are there as well, so that a script need not ask for the field first.
  relay["missing"] = Json::array();
  return {
      {"version", facts.version},
      {"cluster_id", facts.cluster_id},
      {"state", state},
      {"at_ms", to_ms(now)},
      {"uptime_ms", std::chrono::floor<std::chrono::milliseconds>(mono - facts.started).count()},
      {"data", facts.data},
      {"relay", std::move(relay)},
      {"delayed", std::move(delayed)}};
}

const Json& field_of(const Json& json, const char* name) {
  static const Json nothing;
  // A peer's answer may be anything, and an exception here would end a whole request for it.
  if (!json.is_object()) return nothing;
  const auto found = json.find(name);
  return found == json.end() ? nothing : *found;
}

std::string text_in(const Json& json, const char* name) {
  const Json& part = field_of(json, name);
  return part.is_string() ? part.get<std::string>() : std::string{};
}

std::int64_t integer_in(const Json& json, const char* name, std::int64_t otherwise) {
  const Json& part = field_of(json, name);
  return part.is_number_integer() ? part.get<std::int64_t>() : otherwise;
}

Source source_in(const Json& json) {
  const auto partition = integer_in(json, "partition", -1);
  // -1 is no partition of anything, so what does not fit is looked for in vain and harms nothing.
  const bool fits = std::in_range<PartitionIndex>(partition);
  return {text_in(json, "topic"), fits ? static_cast<PartitionIndex>(partition) : -1};
}

bool has_lists(const Json& answer, std::initializer_list<const char*> names) {
  return std::ranges::all_of(names, [&](const char* name) {
    const Json& list = field_of(answer, name);
    return list.is_array() &&
           std::ranges::all_of(list, [](const Json& each) { return each.is_object(); });
  });
}

bool is_status(const Json& answer) {
  const Json& delayed = field_of(answer, "delayed");
  return has_lists(field_of(answer, "relay"), {"partitions"}) && delayed.is_object();
}

void add_status(Json& to, const Peer& peer, const Json& from) {
  const Json& relay = field_of(from, "relay");
  const Json& delayed = field_of(from, "delayed");
  // Everything is looked for with a function that finds nothing in the wrong kind of value, because
  // the other member may be of another version.
  to["relay"]["members"].push_back(member_json(peer, relay, delayed));
  for (const auto& each : field_of(relay, "partitions")) to["relay"]["partitions"].push_back(each);
  for (const auto& [name, value] : delayed.items()) {
    Json& sum = to["delayed"][name];
    if (name == "lag_ms") {  // The worst of all members.
      if (!sum.is_object()) sum = Json::object();
      for (const char* part : {"p50", "p99", "max"})
        sum[part] = std::max(figure_in(sum, part), figure_in(value, part));
      sum["count"] = integer_in(sum, "count") + integer_in(value, "count");
    } else if (!value.is_number_integer()) {
      continue;
    } else if (!sum.is_number_integer()) {  // Only the other one knows it.
      sum = value;
    } else if (name == "next_due") {
      // The earliest of all members is that of the group.
      if (value < sum) sum = value;
    } else {
      sum = sum.get<std::uint64_t>() + value.get<std::uint64_t>();
    }
  }
}

Json covers_json(const MemberStatus& status) {
  Json covers = Json::array();
  for (const auto& each : status.partitions) {
    // Before these stages not all rows have been read, and an answer would lack some of them.
    if (each.stage != Stage::reading && each.stage != Stage::owned) continue;
    covers.push_back({{"topic", each.source.topic}, {"partition", each.source.partition}});
  }
  return covers;
}

std::string place_text(const PendingPlace& place) {
  // The topic comes last, because its name may have dots.
  return fmt::format("{}.{}.{}.{}", to_ms(place.due), place.source.partition, place.offset,
                     place.source.topic);
}

std::optional<PendingPlace> parse_place(std::string_view value) {
  const auto first = value.find('.');
  const auto second = value.find('.', first + 1);
  const auto third = value.find('.', second + 1);
  if (first == value.npos || second == value.npos || third == value.npos) return std::nullopt;
  const auto due = number_in_text<std::int64_t>(value.substr(0, first));
  const auto partition =
      number_in_text<PartitionIndex>(value.substr(first + 1, second - first - 1));
  const auto offset = number_in_text<Offset>(value.substr(second + 1, third - second - 1));
  if (!due || !partition || !offset) return std::nullopt;
  return PendingPlace{from_ms(*due), {std::string(value.substr(third + 1)), *partition}, *offset};
}

}  // namespace tarry::relay
