#pragma once

// QuotaTable: the quotas that were set, and which of them holds for a client.
//
// A quota is set for an entity: a user, a client id, both, or an address.  Each part of it has a
// name or is the default of all names that have no quota of their own.  Among the quotas that
// concern a client one holds, as in Kafka, the first of
//
//   user and client id   user U, client C      its rate is shared by U's connections with that id
//                        user U, any client
//   user                 user U                                  by all connections of U
//   user and client id   any user, client C                      by those of one user with that id
//                        any user, any client
//   user                 any user                                by all connections of one user
//   client id            client C                                by all connections with that id
//                        any client
//
// Part of the SecurityImage: filled while that is made, then constant.

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tarry::broker {

enum class QuotaKind : std::uint8_t {
  produce,      // producer_byte_rate: bytes a second.
  fetch,        // consumer_byte_rate
  request,      // request_percentage: of one thread's time.
  connections,  // connection_creation_rate: a second, of an address.
  // The records that a user may have pending, and their bytes: amounts, not rates.  Kafka has no
  // such quotas.
  pending_records,
  pending_bytes,
};
inline constexpr std::size_t quota_kinds = 6;
constexpr bool is_of_pending(QuotaKind kind) {
  return kind == QuotaKind::pending_records || kind == QuotaKind::pending_bytes;
}

std::string_view name(QuotaKind kind);
std::optional<QuotaKind> quota_kind_named(std::string_view name);

struct QuotaName {
  bool is_default = false;  // Then the name is empty.
  std::string name;
  auto operator<=>(const QuotaName&) const = default;
};

struct QuotaEntity {
  std::optional<QuotaName> user, client_id, ip;
  auto operator<=>(const QuotaEntity&) const = default;

  // The reason why there can be no quota of this kind for it; empty if there can.
  std::string refusal_reason() const;
  std::string refusal_reason(QuotaKind kind, double limit) const;
};

class QuotaTable {
 public:
  using Limits = std::array<std::optional<double>, quota_kinds>;

  const std::map<QuotaEntity, Limits>& all() const { return limits_; }
  bool any(QuotaKind kind) const { return counts_[static_cast<std::size_t>(kind)] > 0; }
  std::size_t size() const;  // Quotas, not entities.
  bool is_set(const QuotaEntity& entity, QuotaKind kind) const;

  struct Found {
    double limit;
    bool by_user, by_client;  // The keys by which its rate is counted.
  };
  std::optional<Found> find(QuotaKind kind, std::string_view user,
                            std::string_view client_id) const;
  // connection_creation_rate; none: without a limit.
  std::optional<double> find_address(std::string_view ip) const;

  // Rows of the catalog: one quota each, so that changes of two quotas never meet.
  static std::string row_key(const QuotaEntity& entity, QuotaKind kind);
  static std::string row_value(double limit);
  // False: it is not the row of a quota.
  bool take_row(std::string_view key, std::string_view value);

 private:
  std::map<QuotaEntity, Limits> limits_;
  std::array<std::size_t, quota_kinds> counts_{};
};

}  // namespace tarry::broker
