#include "relay/pending_routes.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/percent_encoding.h"
#include "base/time_text.h"
#include "relay/admin_json.h"
#include "web/arguments.h"
#include "web/json_reply.h"
#include "web/selection_request.h"
#include "web/target.h"

namespace tarry::relay {
namespace {

using namespace std::chrono_literals;
using boost::asio::awaitable;
using delay::ControlOutcome;
using web::json_reply;
using web::new_due_in;
using web::object_in;
using web::page_size_given;
using web::read_filter;
using web::Refused;
using web::Reply;
using web::unit_given;

constexpr std::size_t default_listed = 100, max_listed = 1'000;
// A partition is looked for among those of all sources, so a number that none has finds nothing; it
// has only to be one.
constexpr PartitionIndex max_partition = 1 << 20;

std::string_view result_name(ControlOutcome outcome, Order::Kind kind) {
  if (outcome == ControlOutcome::already_delivered) return "already_delivered";
  if (outcome == ControlOutcome::unknown) return "unknown";
  return kind == Order::Kind::cancel ? "cancelled"
         : kind == Order::Kind::move ? "moved"
                                     : "delivered";
}

// Answers with `body`.  If something is missing the answer is an error that shows the rest all the
// same.
Reply reply_of(Json body, const Json& lacks) {
  body["missing"] = lacks;
  if (lacks.empty()) return json_reply(body);
  const Json& first = lacks[0];
  const Json& member = first["member"];
  body["error"] =
      fmt::format("{} partitions are missing; the first of them is {}-{}, owned by {}: {}",
                  lacks.size(), first.value("topic", ""), first.value("partition", 0),
                  member.is_string() ? "member " + member.get<std::string>() : "nobody",
                  first.value("error", ""));
  // A script that looks at the status alone would take a part for the whole.
  return json_reply(body, 503);
}

PendingPlace place_of(const Json& record) {
  const Source source = source_in(record);
  return {from_ms(integer_in(record, "due_ms")), source,
          offset_in_handle(source, text_in(record, "handle")).value_or(0)};
}

Order::Kind kind_of(web::SelectionRequest::Action action) {
  using Action = web::SelectionRequest::Action;
  return action == Action::cancel ? Order::Kind::cancel
         : action == Action::move ? Order::Kind::move
                                  : Order::Kind::deliver;
}

// The list that has these records.  Each member is asked for its part of each page with it, so its
// times must not depend on when it is read.
std::string target_of(const std::string& topic, const web::RecordFilter& filter) {
  std::string target =
      fmt::format("/delayed?limit={}&topic={}", max_listed, percent_encoded(topic));
  const auto put = [&](const char* name, std::string_view text) {
    target += fmt::format("&{}={}", name, percent_encoded(text));
  };
  if (!filter.id.empty()) put("id", filter.id);
  if (!filter.key.empty()) put("key", filter.key);
  if (filter.from != WallTime::min()) put("from", format_time(filter.from));
  if (filter.until != WallTime::max()) put("to", format_time(filter.until));
  if (filter.partition) put("partition", std::to_string(*filter.partition));
  return target;
}

}  // namespace

Json missing_json(const Listing& known, const PendingQuery& asked, const std::set<Source>& covered,
                  const std::vector<PeerReply>& told) {
  Json all = Json::array();
  for (const auto& [topic, partitions] : known.sources) {
    for (PartitionIndex i = 0; i < partitions; ++i) {
      const Source source{topic, i};
      if (!asked.wants(source) || covered.contains(source)) continue;
      Json each{{"topic", topic},
                {"partition", i},
                {"member", nullptr},
                {"error", "no member of the group owns it now"}};
      for (const auto& peer : known.peers) {
        if (std::ranges::find(peer.assigned, source) == peer.assigned.end()) continue;
        each["member"] = fmt::format("{} at {}", peer.instance, peer.address);
        each["error"] = "the member is taking it over";
        // Its own error, or the reason why it did not answer, says more.
        for (const auto& one : told)
          if (one.peer.key == peer.key && !one.json) each["error"] = one.json.error().message;
      }
      all.push_back(std::move(each));
    }
  }
  return all;
}

awaitable<Json> PendingRoutes::gather(const Call& call, Json here, std::vector<Json>& parts,
                                      const char* list) {
  auto known = co_await peers_.listing();
  if (!known) throw Refused{503, known.error().message};
  std::vector<PeerReply> told = co_await peers_.ask_all(*known, call.scoped());
  std::set<Source> covered = covered_by(here);
  parts.push_back(std::move(here));
  for (auto& each : told) {
    // It may be of another version, or not a member at all.
    if (each.json && !has_lists(*each.json, {"covers", list}))
      each.json = fail(Errc::io, std::string(no_sense));
    if (!each.json) continue;
    covered.merge(covered_by(*each.json));
    parts.push_back(*each.json);
  }
  Json lacks = missing_json(*known, query_of(call), covered, told);
  // A partition may have moved: the next request asks Kafka anew.
  if (!lacks.empty()) peers_.forget_listing();
  co_return lacks;
}

awaitable<Reply> PendingRoutes::get_wheel(const Call& call) {
  const auto status = member_.status();
  // A relay has no wheel of due times.  The fields are those of the broker's page, for programs
  // that read both.
  Json here{{"timers", status.pending()},
            {"next_due_ms", ms_json(status.next_due())},
            {"levels", Json::array()},
            {"covers", covers_json(status)}};
  if (call.is_of_member()) co_return json_reply(here);
  std::vector<Json> parts;
  const Json lacks = co_await gather(call, std::move(here), parts);
  Json all{{"timers", 0}, {"next_due_ms", nullptr}, {"levels", Json::array()}};
  for (const auto& part : parts) {
    all["timers"] = integer_in(all, "timers") + integer_in(part, "timers");
    const Json& next = field_of(part, "next_due_ms");
    Json& first = all["next_due_ms"];
    if (next.is_number() && (first.is_null() || next < first)) first = next;
  }
  co_return reply_of(std::move(all), lacks);
}

PendingQuery PendingRoutes::query_of(const Call& call) const {
  const auto words = [&](const char* name) {
    const auto* text = call.parameter(name);
    return text == nullptr ? std::nullopt : std::optional(*text);
  };
  auto filter = read_filter(words, max_partition, clock_.wall());
  PendingQuery query;
  if (const auto* topic = call.parameter("topic")) query.topic = *topic;
  if (call.target.path.size() > 2) query.topic = call.target.path[1];
  query.partition = filter.partition;
  query.from = filter.from;
  query.until = filter.until;
  query.id = std::move(filter.id);
  query.key = std::move(filter.key);
  return query;
}

awaitable<void> PendingRoutes::look(const Call& call) {
  const auto* after = call.parameter("after");
  if (after != nullptr && !after->empty()) co_return;  // The first page has waited.
  co_await orders_.look(query_of(call));
}

Json PendingRoutes::list_here(const Call& call) const {
  const PendingQuery query = query_of(call);
  const auto* given = call.parameter("limit");
  const std::size_t limit = given == nullptr ? default_listed : page_size_given(*given, max_listed);
  std::optional<PendingPlace> after;
  // Empty: the first page, for a loop that has no `next` yet.
  if (const auto* text = call.parameter("after"); text != nullptr && !text->empty()) {
    after = parse_place(*text);
    if (!after)
      throw Refused{
          400, fmt::format("after={}: give the `next` of the previous page", printable(*text))};
  }
  const auto* values = call.parameter("values");
  // The covered partitions are asked for first: one that comes later has perhaps not all of its
  // records yet.
  Json json{
      {"covers", covers_json(member_.status())}, {"records", Json::array()}, {"next", nullptr}};
  const auto page = member_.pending(query, after, limit);
  for (const auto& record : page.records)
    json["records"].push_back(record_json(record, values != nullptr && *values == "true"));
  if (page.next) json["next"] = place_text(*page.next);
  json["limit"] = limit;
  return json;
}

awaitable<Reply> PendingRoutes::list(const Call& call) {
  co_await look(call);
  Json here = list_here(call);
  if (call.is_of_member()) co_return json_reply(here);
  const std::size_t limit = here.value("limit", default_listed);
  std::vector<Json> parts;
  const Json lacks = co_await gather(call, std::move(here), parts, "records");
  // A member that has more of them has shown all up to its `next`.
  std::optional<PendingPlace> end;
  std::vector<std::pair<PendingPlace, Json>> records;
  for (auto& part : parts) {
    const auto place = parse_place(text_in(part, "next"));
    if (place && (!end || *place < *end)) end = place;
    for (auto& record : part["records"]) records.emplace_back(place_of(record), std::move(record));
  }
  std::ranges::sort(records, {}, &std::pair<PendingPlace, Json>::first);
  std::erase_if(records, [&](const auto& each) { return end && *end < each.first; });
  if (records.size() > limit) {
    // The rest comes with the next page, from the members that had it.
    records.resize(limit);
    end = records.back().first;
  }
  Json all{{"records", Json::array()}, {"next", nullptr}};
  for (auto& [place, record] : records) all["records"].push_back(std::move(record));
  if (end) all["next"] = place_text(*end);
  co_return reply_of(std::move(all), lacks);
}

awaitable<Reply> PendingRoutes::page(std::string target) {
  auto parsed = web::parse_target(target);
  if (!parsed) throw Refused{400, parsed.error().message};
  const Call call{std::move(*parsed), std::move(target), {}, {}, {}};
  co_return co_await list(call);
}

Json PendingRoutes::count_here(const Call& call) const {
  const auto* by = call.parameter("by");
  const auto unit = by == nullptr ? std::chrono::minutes(24h) : unit_given(*by);
  Json json{{"covers", covers_json(member_.status())}};
  const auto counted = member_.count(query_of(call), unit);
  json["total"] = counted.total;
  json["by"] = nullptr;
  if (by != nullptr) json["by"] = *by;
  json["counts"] = Json::array();
  if (by != nullptr)
    for (const auto& [from, count] : counted.counts)
      json["counts"].push_back({{"from", to_ms(from)}, {"count", count}});
  return json;
}

awaitable<Reply> PendingRoutes::count(const Call& call) {
  co_await look(call);
  Json here = count_here(call);
  if (call.is_of_member()) co_return json_reply(here);
  std::vector<Json> parts;
  const Json lacks = co_await gather(call, std::move(here), parts, "counts");
  std::uint64_t total = 0;
  std::map<std::int64_t, std::uint64_t> counts;
  for (const auto& part : parts) {
    total += static_cast<std::uint64_t>(integer_in(part, "total"));
    for (const auto& each : field_of(part, "counts"))
      counts[integer_in(each, "from")] += static_cast<std::uint64_t>(integer_in(each, "count"));
  }
  Json all{{"total", total}, {"by", parts[0]["by"]}, {"counts", Json::array()}};
  for (const auto& [from, count] : counts)
    all["counts"].push_back({{"from", from}, {"count", count}});
  co_return reply_of(std::move(all), lacks);
}

Json PendingRoutes::find_here(const Call& call) const {
  const PendingQuery where = query_of(call);
  Json json{{"covers", covers_json(member_.status())}, {"records", Json::array()}};
  for (const auto& record : member_.find(where, call.target.path[2]))
    json["records"].push_back(record_json(record, true));
  return json;
}

awaitable<Reply> PendingRoutes::get_one(const Call& call) {
  co_await look(call);
  Json here = find_here(call);
  if (call.is_of_member()) co_return json_reply(here);
  std::vector<Json> parts;
  const Json lacks = co_await gather(call, std::move(here), parts, "records");
  std::vector<std::pair<PendingPlace, Json>> records;
  for (auto& part : parts)
    for (auto& record : part["records"]) records.emplace_back(place_of(record), std::move(record));
  std::ranges::sort(records, {}, &std::pair<PendingPlace, Json>::first);
  if (records.empty()) {
    // The record may be in a partition that is missing, so nobody knows that it is not there.
    if (!lacks.empty()) co_return reply_of(Json::object(), lacks);
    throw Refused{404, fmt::format("nothing is pending under '{}' in topic {}",
                                   printable(call.target.path[2]), printable(call.target.path[1]))};
  }
  Json one = records.front().second;
  one["partitions"] = Json::array();
  for (const auto& [place, record] : records) one["partitions"].push_back(place.source.partition);
  one["missing"] = lacks;
  co_return json_reply(one);
}

awaitable<Reply> PendingRoutes::control_one(const Call& call, Order::Kind kind) {
  Order order{.kind = kind};
  if (kind == Order::Kind::move)
    order.due = new_due_in(
        object_in(call.body, {"due", "by"}, R"({"due": "2026-12-24T18:00:00Z"})"), clock_.wall());
  const std::string& topic = call.target.path[1];
  const std::string& name = call.target.path[2];
  const auto known = co_await peers_.listing();
  if (!known) throw Refused{503, known.error().message};
  const auto found = known->sources.find(topic);
  if (found == known->sources.end())
    throw Refused{404, fmt::format("there is no source topic '{}'", printable(topic))};
  const PendingQuery asked = query_of(call);
  std::vector<OrderTarget> wanted;
  for (PartitionIndex i = 0; i < found->second; ++i) {
    const Source source{topic, i};
    if (!asked.wants(source)) continue;
    // A handle names its partition.
    if (name.starts_with('@') && !offset_in_handle(source, name)) continue;
    wanted.push_back({source, name});
  }
  co_await orders_.carry_out(order, wanted);
  ControlOutcome best = ControlOutcome::unknown;
  Json partitions = Json::array(), lacks = Json::array();
  for (const auto& each : wanted) {
    if (!each.told || !*each.told) {
      const Error error = each.told ? each.told->error() : Error{Errc::io, "no answer"};
      // The record is there and the request does not fit it: no other partition changes that.
      if (error.code == Errc::invalid) throw Refused{409, error.message};
      lacks.push_back({{"topic", topic},
                       {"partition", each.source.partition},
                       {"member", nullptr},
                       {"error", error.message}});
      continue;
    }
    const auto& told = **each.told;
    best = std::min(best, told.outcome);  // Their order is from best to worst.
    if (told.outcome == ControlOutcome::unknown) continue;
    Json one{{"partition", each.source.partition}, {"result", result_name(told.outcome, kind)}};
    const bool is_done = told.outcome == ControlOutcome::done;
    if (is_done && kind == Order::Kind::deliver) one["offset"] = told.offset;
    if (is_done && kind == Order::Kind::move) one["due_ms"] = to_ms(told.due);
    partitions.push_back(std::move(one));
  }
  Json body{{"result", result_name(best, kind)}, {"partitions", std::move(partitions)}};
  // Without the record a partition that has not answered may be the one that has it; with it, what
  // is missing matters to nobody.
  if (best != ControlOutcome::done) co_return reply_of(std::move(body), lacks);
  body["missing"] = std::move(lacks);
  co_return json_reply(body);
}

awaitable<Reply> PendingRoutes::select(const Call& call) {
  const auto request = web::selection_request(call.body, max_partition, clock_.wall());
  Reply reply;
  reply.content_type = "application/x-ndjson";
  reply.stream = std::make_shared<Selection>(
      *this, orders_, target_of(call.target.path[1], request.filter),
      Order{.kind = kind_of(request.action), .due = request.due}, request.shown);
  co_return reply;
}

awaitable<Reply> PendingRoutes::take_orders(const Call& call) {
  co_return json_reply(co_await orders_.take(parse_json(call.body)));
}

}  // namespace tarry::relay
