#include "relay/admin_server.h"

#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/glob.h"
#include "base/json.h"
#include "base/scram.h"
#include "base/utf8.h"
#include "delay/pending_record.h"
#include "storage/journal_record.h"

namespace tarry::relay {
namespace {

constexpr std::size_t default_listed = 100;
constexpr std::size_t max_listed = 1'000;

std::string dump(const Json& json) {
  return text_of(json) + "\n";
}

HttpAnswer refuse(int status, std::string_view why) {
  return {status, dump({{"error", why}})};
}

Json time_json(std::optional<WallTime> time) {
  if (!time) return nullptr;
  return to_ms(*time);
}

// Text as it is, anything else in base64, with NAME_base64 beside it.
void put_bytes(Json& json, const std::string& name, const std::optional<Bytes>& bytes) {
  if (!bytes) {
    json[name] = nullptr;
  } else if (is_utf8(as_text(*bytes))) {
    json[name] = as_text(*bytes);
  } else {
    json[name] = base64(as_text(*bytes));
    json[name + "_base64"] = true;
  }
}

Json record_json(const PendingShown& shown) {
  Json json;
  json["topic"] = shown.source.topic;
  json["partition"] = shown.source.partition;
  if (shown.record.id.empty()) {
    json["id"] = nullptr;
  } else {
    json["id"] = shown.record.id;
  }
  json["handle"] = handle_of(shown.source, shown.offset);
  json["target"] = shown.record.target;
  json["due_ms"] = to_ms(shown.record.due);
  const auto body = delay::PendingRecordBody::parse(shown.record.body);
  if (!body) return json;
  json["accepted_ms"] = to_ms(body->original);
  const bool expires = shown.record.expires != storage::never_expires;
  json["expires_ms"] = time_json(expires ? std::optional(shown.record.expires) : std::nullopt);
  put_bytes(json, "key", body->record.key);
  if (body->record.value) {
    json["value_bytes"] = body->record.value->size();
  } else {
    json["value_bytes"] = nullptr;
  }
  json["headers"] = Json::array();
  for (const auto& header : body->record.headers) {
    Json each;
    put_bytes(each, "name", as_bytes(header.name));
    put_bytes(each, "value", header.value);
    json["headers"].push_back(std::move(each));
  }
  json["recurring"] = !body->recurrence.empty();
  return json;
}

Json distribution_json(const Histogram& histogram) {
  return {{"p50", histogram.p50()},
          {"p99", histogram.p99()},
          {"max", histogram.max()},
          {"count", histogram.count()}};
}

std::optional<std::string> decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned value = 0;
    if (i + 2 >= text.size()) return std::nullopt;
    const auto read = std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16);
    if (read.ptr != text.data() + i + 3) return std::nullopt;
    out += static_cast<char>(value);
    i += 2;
  }
  return out;
}

template <typename Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc{} || read.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

// The selection of pending records that a request asks for.
struct Question {
  std::optional<std::string> topic, id;
  std::optional<PartitionIndex> partition;
  std::size_t limit = default_listed;
  std::optional<PendingPlace> after;  // The page begins behind it.

  bool wants(const Source& source, const Pending& record) const {
    return (!topic || source.topic == *topic) && (!partition || source.partition == *partition) &&
           (!id || matches_glob(*id, record.id));
  }
};

std::string next_text(const PendingPlace& place) {
  return fmt::format("{}.{}.{}.{}", to_ms(place.due), place.source.partition, place.offset,
                     place.source.topic);
}

// False: the value is wrong.
bool set_after(Question& question, std::string_view value) {
  const auto first = value.find('.');
  const auto second = value.find('.', first + 1);
  const auto third = value.find('.', second + 1);
  if (first == value.npos || second == value.npos || third == value.npos) return false;
  const auto due = number_of<std::int64_t>(value.substr(0, first));
  const auto partition = number_of<PartitionIndex>(value.substr(first + 1, second - first - 1));
  const auto offset = number_of<Offset>(value.substr(second + 1, third - second - 1));
  if (!due || !partition || !offset) return false;
  question.after = {from_ms(*due), {std::string(value.substr(third + 1)), *partition}, *offset};
  return true;
}

// The error of a parameter; empty: there is none.
std::string set_parameter(Question& question, const std::string& name, const std::string& value) {
  bool is_fine = true;
  if (name == "topic") {
    question.topic = value;
  } else if (name == "id") {
    question.id = value;
  } else if (name == "partition") {
    question.partition = number_of<PartitionIndex>(value);
    is_fine = question.partition.has_value();
  } else if (name == "limit") {
    question.limit = number_of<std::size_t>(value).value_or(0);
    is_fine = question.limit >= 1 && question.limit <= max_listed;
  } else if (name == "after") {
    is_fine = set_after(question, value);
  } else {
    return fmt::format("{}: no such parameter; there are topic, partition, id, limit and after",
                       name);
  }
  return is_fine ? "" : fmt::format("{}: {} is not allowed", name, value);
}

// The host of "127.0.0.1:8081", "[::1]:8081", "localhost:8081".
std::string_view host_part(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.rfind(':'));
}

}  // namespace

AdminServer::AdminServer(std::unique_ptr<AdminHttp> http, const Member& member, const Clock& clock,
                         AdminFacts facts)
    : http_(std::move(http)), member_(member), clock_(clock), facts_(std::move(facts)) {}

void AdminServer::start() {
  http_->start([this](const HttpAsked& asked) { return answer(asked); });
}

std::string AdminServer::state() const {
  const auto status = member_.status();
  if (!status.stalled.empty()) return "stalled";
  if (status.is_full) return "full";
  return member_.is_ready() ? "running" : "taking over";
}

HttpAnswer AdminServer::answer(const HttpAsked& asked) const {
  const auto mark = asked.target.find('?');
  const std::string path = asked.target.substr(0, mark);
  const std::string query = mark == std::string::npos ? "" : asked.target.substr(mark + 1);
  if (path == "/healthz") return {200, dump({{"status", "ok"}})};
  if (path == "/readyz") return {member_.is_ready() ? 200 : 503, dump({{"status", state()}})};
  if (!http_->is_loopback())
    return refuse(403, "on an address that is not loopback there are /healthz and /readyz alone");
  const auto host = host_part(asked.host);
  if (host != "127.0.0.1" && host != "localhost" && host != "[::1]")
    return refuse(421, "the Host must be 127.0.0.1, localhost or [::1]");
  if (path == "/status" && query.empty()) return {200, status()};
  if (path == "/delayed" || path == "/delayed/count") return delayed(path, query);
  return refuse(404, fmt::format("{}: there are /status, /delayed, /delayed/count, /healthz and "
                                 "/readyz",
                                 asked.target));
}

HttpAnswer AdminServer::delayed(const std::string& path, const std::string& query) const {
  Question question;
  for (std::size_t at = 0; at < query.size();) {
    const auto end = std::min(query.find('&', at), query.size());
    const std::string_view pair = std::string_view(query).substr(at, end - at);
    at = end + 1;
    const auto equals = pair.find('=');
    const auto value =
        equals == pair.npos ? std::optional<std::string>("") : decoded(pair.substr(equals + 1));
    if (!value) return refuse(400, fmt::format("{}: a broken escape", pair));
    const std::string name(pair.substr(0, equals));
    if (const auto wrong = set_parameter(question, name, *value); !wrong.empty())
      return refuse(400, wrong);
  }
  const auto wanted = [&](const Source& source, Offset, const Pending& record) {
    return question.wants(source, record);
  };
  if (path == "/delayed/count") return {200, dump({{"pending", member_.count(wanted)}})};
  const auto page = member_.pending(wanted, question.after, question.limit);
  Json json{{"records", Json::array()}, {"next", nullptr}};
  for (const auto& record : page.records) json["records"].push_back(record_json(record));
  if (page.next) json["next"] = next_text(*page.next);
  return {200, dump(json)};
}

std::string AdminServer::status() const {
  const auto status = member_.status();
  Json partitions = Json::array();
  std::size_t pending = 0;
  std::optional<WallTime> next_due;
  for (const auto& each : status.partitions) {
    pending += each.pending;
    if (each.next_due && (!next_due || *each.next_due < *next_due)) next_due = each.next_due;
    Json partition{{"topic", each.source.topic},
                   {"partition", each.source.partition},
                   {"state", name_of(each.stage)},
                   {"pending", each.pending},
                   {"arrived", each.arrived},
                   {"next_offset", each.next},
                   {"next_due", time_json(each.next_due)}};
    partition["take_over_ms"] = nullptr;
    if (each.take_over_ms) partition["take_over_ms"] = *each.take_over_ms;
    partitions.push_back(std::move(partition));
  }
  Json relay{{"group", facts_.options.group},
             {"instance", facts_.instance},
             {"transactional_id", facts_.owner},
             {"delivery",
              facts_.options.delivery == Delivery::exactly_once ? "exactly-once" : "at-least-once"},
             {"state", state()},
             {"stalled", nullptr},
             {"partitions", std::move(partitions)},
             {"owned", status.owned},
             {"standby", 0},
             {"pending_bytes", status.pending_bytes},
             {"memory_bytes", facts_.options.memory},
             {"transactions_total", status.transactions},
             {"aborted_total", status.aborted},
             {"renewed_total", status.renewed},
             {"damaged_rows_total", status.damaged_rows}};
  if (!status.stalled.empty()) relay["stalled"] = status.stalled;
  Json delayed{{"pending", pending},
               {"next_due", time_json(next_due)},
               {"taken_total", status.counts.taken},
               {"delivered_total", status.counts.delivered},
               {"early_total", status.early},
               {"cancelled_total", status.counts.cancelled},
               {"replaced_total", status.counts.replaced},
               {"expired_total", status.counts.expired},
               {"invalid_total", status.counts.invalid},
               {"lag_ms", distribution_json(status.lag)}};
  return dump({{"version", facts_.version},
               {"cluster_id", facts_.cluster_id},
               {"state", state()},
               {"at_ms", to_ms(clock_.wall())},
               {"data", facts_.data},
               {"relay", std::move(relay)},
               {"delayed", std::move(delayed)}});
}

}  // namespace tarry::relay
