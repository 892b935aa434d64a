#include "broker/security/quota_table.h"

#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/ip/address.hpp>

#include "base/bytes.h"
#include "base/log.h"
#include "storage/fields.h"

namespace tarry::broker {
namespace {

constexpr std::string_view quota_prefix = "quota:";
constexpr std::size_t max_quota_name_bytes = 1024;

constexpr std::array<std::string_view, quota_kinds> kind_names = {
    "producer_byte_rate",       "consumer_byte_rate", "request_percentage",
    "connection_creation_rate", "pending_records",    "pending_bytes"};

// How a part of an entity begins in a row's key.
constexpr char part_absent = '-', part_default = '*', part_named = '=';

void put_part(Buffer& out, const std::optional<QuotaName>& part) {
  append_be(out, !part ? part_absent : part->is_default ? part_default : part_named);
  if (part && !part->is_default) storage::put_short(out, part->name);
}

std::optional<QuotaName> read_part(storage::Fields& fields) {
  switch (fields.number<char>()) {
    case part_default:
      return QuotaName{true, {}};
    case part_named:
      return QuotaName{false, std::string(fields.short_text())};
    default:
      return std::nullopt;
  }
}

}  // namespace

std::string_view name(QuotaKind kind) {
  return kind_names.at(static_cast<std::size_t>(kind));
}

std::optional<QuotaKind> quota_kind_named(std::string_view name) {
  for (std::size_t i = 0; i < kind_names.size(); ++i) {
    if (kind_names.at(i) == name) return static_cast<QuotaKind>(i);
  }
  return std::nullopt;
}

std::string QuotaEntity::refusal_reason() const {
  if (!user && !client_id && !ip) return "Invalid empty client quota entity";
  if (ip && (user || client_id)) return "Invalid entity type combination";
  for (const auto* part : {&user, &client_id, &ip}) {
    if (!*part || (*part)->is_default) continue;
    if ((*part)->name.empty()) return "An empty entity name is not supported";
    if ((*part)->name.size() > max_quota_name_bytes) return "An entity name is too long";
  }
  if (ip && !ip->is_default) {
    boost::system::error_code wrong;
    const auto address = boost::asio::ip::make_address(ip->name, wrong);
    if (wrong) return fmt::format("{} is not a valid IP address", printable(ip->name));
    // Addresses are compared as text.
    if (address.to_string() != ip->name)
      return fmt::format("{} has to be written as {}", printable(ip->name), address.to_string());
  }
  return {};
}

std::string QuotaEntity::refusal_reason(QuotaKind kind, double limit) const {
  // Addresses have this kind alone, and nothing else has it.
  if ((kind == QuotaKind::connections) != ip.has_value())
    return fmt::format("Invalid configuration key {}", tarry::broker::name(kind));
  // Pending records are counted for their user alone.
  if (is_of_pending(kind) && (!user || client_id)) {
    return fmt::format("{} is a quota of a user, or of any user, without a client id",
                       tarry::broker::name(kind));
  }
  if (!std::isfinite(limit) || limit <= 0)
    return fmt::format("Quota {} must be greater than 0", tarry::broker::name(kind));
  // Beyond 2^53 not every whole number is a double.
  if (kind != QuotaKind::request && (limit != std::floor(limit) || limit > 9007199254740992.0))
    return fmt::format("{} must be a Long value", tarry::broker::name(kind));
  return {};
}

std::size_t QuotaTable::size() const {
  return std::accumulate(counts_.begin(), counts_.end(), std::size_t{0});
}

bool QuotaTable::is_set(const QuotaEntity& entity, QuotaKind kind) const {
  const auto found = limits_.find(entity);
  return found != limits_.end() && found->second.at(static_cast<std::size_t>(kind)).has_value();
}

std::optional<QuotaTable::Found> QuotaTable::find(QuotaKind kind, std::string_view user,
                                                  std::string_view client_id) const {
  if (!any(kind)) return std::nullopt;
  const QuotaName u{false, std::string(user)}, c{false, std::string(client_id)}, all{true, {}};
  // From the most special entity to the most general, as in Kafka.
  const std::array<QuotaEntity, 8> in_order = {{{u, c, {}},
                                                {u, all, {}},
                                                {u, {}, {}},
                                                {all, c, {}},
                                                {all, all, {}},
                                                {all, {}, {}},
                                                {{}, c, {}},
                                                {{}, all, {}}}};
  for (const auto& entity : in_order) {
    const auto found = limits_.find(entity);
    if (found == limits_.end()) continue;
    if (const auto& limit = found->second.at(static_cast<std::size_t>(kind)))
      return Found{*limit, entity.user.has_value(), entity.client_id.has_value()};
  }
  return std::nullopt;
}

std::optional<double> QuotaTable::find_address(std::string_view ip) const {
  if (!any(QuotaKind::connections)) return std::nullopt;
  for (auto&& part : {QuotaName{false, std::string(ip)}, QuotaName{true, {}}}) {
    const auto found = limits_.find({{}, {}, part});
    if (found == limits_.end()) continue;
    if (const auto& limit = found->second.at(static_cast<std::size_t>(QuotaKind::connections)))
      return limit;
  }
  return std::nullopt;
}

std::string QuotaTable::row_key(const QuotaEntity& entity, QuotaKind kind) {
  Buffer out;
  append_bytes(out, as_bytes(quota_prefix));
  storage::put_short(out, tarry::broker::name(kind));
  put_part(out, entity.user);
  put_part(out, entity.client_id);
  put_part(out, entity.ip);
  return std::string(as_text(out));
}

std::string QuotaTable::row_value(double limit) {
  Buffer out;
  append_be(out, std::bit_cast<std::uint64_t>(limit));
  return std::string(as_text(out));
}

bool QuotaTable::take_row(std::string_view key, std::string_view value) {
  if (!key.starts_with(quota_prefix)) return false;
  storage::Fields fields(as_bytes(key.substr(quota_prefix.size())));
  const auto kind = quota_kind_named(fields.short_text());
  QuotaEntity entity;
  entity.user = read_part(fields);
  entity.client_id = read_part(fields);
  entity.ip = read_part(fields);
  storage::Fields number(as_bytes(value));
  const auto limit = std::bit_cast<double>(number.number<std::uint64_t>());
  if (!kind || !fields.good() || !number.good()) return false;
  // A row that another version wrote may hold what this one does not allow.
  if (!entity.refusal_reason().empty() || !entity.refusal_reason(*kind, limit).empty())
    return false;
  limits_[std::move(entity)].at(static_cast<std::size_t>(*kind)) = limit;
  ++counts_.at(static_cast<std::size_t>(*kind));
  return true;
}

}  // namespace tarry::broker
