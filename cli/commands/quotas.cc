#include "cli/commands/quotas.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"
#include "base/time_text.h"
#include "cli/io/exit_status.h"
#include "cli/io/json.h"
#include "cli/io/output.h"
#include "cli/io/table.h"
#include "cli/io/text.h"
#include "cli/kafka/wire_client.h"
#include "protocol/messages/alter_client_quotas.h"
#include "protocol/messages/describe_client_quotas.h"

namespace tarry::cli {
namespace {

using protocol::ErrorCode;
using Describe = protocol::DescribeClientQuotasRequest;
using Alter = protocol::AlterClientQuotasRequest;
using Described = protocol::DescribeClientQuotasResponse::Entry;

// Kafka's numbers.  The second is the default of a kind: it holds for each that has no quotas of
// its own.
enum Match : std::int8_t { match_name = 0, match_any_of_all = 1 };

// A part of an owner: Kafka's type, and the name; no name: the default.
struct OwnerPart {
  const char* type;
  std::optional<std::string_view> name;
};

std::vector<OwnerPart> parts_of(const QuotaOwner& owner) {
  std::vector<OwnerPart> parts;
  const auto add = [&](const char* type, const std::optional<std::string>& name, bool any) {
    if (name) parts.push_back({type, *name});
    if (any) parts.push_back({type, std::nullopt});
  };
  add("user", owner.user, owner.any_user);
  add("client-id", owner.client_id, owner.any_client_id);
  add("ip", owner.ip, owner.any_ip);
  return parts;
}

std::string text_of_owner(const std::vector<OwnerPart>& parts) {
  std::string text;
  for (const auto& [type, name] : parts) {
    if (!text.empty()) text += ", ";
    text += name ? fmt::format("{} {}", type, cell(*name)) : fmt::format("any {}", type);
  }
  return text;
}

Json json_of_owner(const std::vector<OwnerPart>& parts) {
  Json json = Json::object();
  for (const auto& [type, name] : parts)
    json[type] = name ? Json(std::string(*name)) : Json(nullptr);
  return json;
}

std::vector<OwnerPart> parts_of(const Described& entry) {
  std::vector<OwnerPart> parts;
  for (const auto& part : entry.entity) {
    // An OwnerPart does not own its type, so it gets the literal.  A kind that a newer broker adds
    // is left out.
    for (const auto* type : {"user", "client-id", "ip"}) {
      if (part.entity_type == type) parts.push_back({type, part.entity_name});
    }
  }
  return parts;
}

// "1048576", or a size as in 1MiB where the quota is of bytes.
std::optional<double> value_in(std::string_view quota, std::string_view text) {
  if (quota.ends_with("_byte_rate") || quota == "pending_bytes") {
    if (const auto size = parse_size(text)) return static_cast<double>(*size);
  }
  // The C library's function would follow the locale and be content with a number at the front.
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string number_text(double value) {
  return fmt::format("{}", value);
}

std::string why(ErrorCode code, const std::optional<std::string>& message) {
  return fmt::format("{} ({})", cell(message.value_or("")), protocol::name(code));
}

}  // namespace

void add_quota_owner(CLI::App& command, QuotaOwner& owner,
                     const std::vector<CLI::Option*>& excluded) {
  std::vector<CLI::Option*> clients, addresses;
  const auto add = [&](std::vector<CLI::Option*>& to, CLI::Option* named, CLI::Option* every) {
    every->excludes(named->take_last());
    for (auto* option : {named, every}) {
      for (auto* other : excluded) option->excludes(other);
      to.push_back(option);
    }
  };
  add(clients,
      command.add_option("--user", owner.user, "The quotas of this user")->option_text("USER"),
      command.add_flag("--any-user", owner.any_user,
                       "The quotas of each user that has none of its own"));
  add(clients,
      command
          .add_option("--client-id", owner.client_id,
                      "The quotas of this client id; with --user, for this user's connections only")
          ->option_text("ID"),
      command.add_flag("--any-client-id", owner.any_client_id,
                       "The quotas of each client id that has none of its own; with --user, for "
                       "this user's connections only"));
  add(addresses,
      command.add_option("--ip", owner.ip, "The quotas of this address")->option_text("ADDRESS"),
      command.add_flag("--any-ip", owner.any_ip,
                       "The quotas of each address that has none of its own"));
  // Kafka has no quotas of an address together with a user or a client id.
  for (auto* address : addresses)
    for (auto* client : clients) address->excludes(client);
}

int get_quotas(const BrokerOptions& broker, const QuotaOwner& owner,
               const std::vector<std::string>& names) {
  auto client = WireClient::open(broker.kafka());
  if (!client) return failure(client.error().message);
  Describe request;
  for (const auto& [type, name] : parts_of(owner)) {
    auto& component = request.components.emplace_back();
    component.entity_type = type;
    component.match_type = name ? match_name : match_any_of_all;
    component.match = name;
  }
  const auto answer = client->ask<protocol::DescribeClientQuotasResponse>(request, 1);
  if (!answer) return failure(answer.error().message);
  if (answer->error_code != ErrorCode::none)
    return failure(why(answer->error_code, answer->error_message));

  Output out;
  Table table({{"OF", false, true}, {"QUOTA"}, {"VALUE", true}});
  for (const auto& entry : answer->entries.value_or(std::vector<Described>{})) {
    const auto parts = parts_of(entry);
    // The protocol's request can name owners but no quotas, so they are selected here.
    for (const auto& [quota, value] : entry.values) {
      if (!names.empty() && std::ranges::find(names, quota) == names.end()) continue;
      if (broker.json) {
        Json json = json_of_owner(parts);
        json["quota"] = quota;
        json["value"] = value;
        out.line(text_of(json));
      } else {
        table.row({text_of_owner(parts), quota, number_text(value)});
      }
    }
  }
  table.print(out);
  return out.end(done);
}

int set_quotas(const BrokerOptions& broker, const QuotaOwner& owner,
               const std::vector<std::string>& words, const std::vector<std::string>& unset) {
  const auto parts = parts_of(owner);
  Alter request;
  // All changes are of one entry, which a broker carries out whole or not at all.
  auto& entry = request.entries.emplace_back();
  for (const auto& [type, name] : parts) entry.entity.push_back({type, name});
  for (const auto& word : words) {
    const auto equals = word.find('=');
    const auto quota = std::string_view(word).substr(0, equals);
    // Values are read before the broker is asked, so that a wrong word is wrong usage even when no
    // broker can be reached.
    const auto value = value_in(quota, std::string_view(word).substr(equals + 1));
    if (!value) return usage_error(fmt::format("{}: the value is not a number", printable(word)));
    entry.ops.push_back({quota, *value, false});
  }
  for (const auto& quota : unset) entry.ops.push_back({quota, 0, true});

  auto client = WireClient::open(broker.kafka());
  if (!client) return failure(client.error().message);
  const auto answer = client->ask<protocol::AlterClientQuotasResponse>(request, 1);
  if (!answer) return failure(answer.error().message);
  for (const auto& result : answer->entries) {
    if (result.error_code != ErrorCode::none)
      return failure(why(result.error_code, result.error_message));
  }
  Output out;
  // The answer names the owner alone, so the lines repeat what was asked for and is confirmed.
  for (const auto& op : entry.ops) {
    if (broker.json) {
      Json json = json_of_owner(parts);
      json["quota"] = op.key;
      json["value"] = op.remove ? Json(nullptr) : Json(op.value);
      json["result"] = op.remove ? "unset" : "set";
      out.line(text_of(json));
    } else if (op.remove) {
      out.line(fmt::format("{}: {} unset", text_of_owner(parts), cell(op.key)));
    } else {
      out.line(fmt::format("{}: {}={}", text_of_owner(parts), cell(op.key), number_text(op.value)));
    }
  }
  return out.end(done);
}

}  // namespace tarry::cli
