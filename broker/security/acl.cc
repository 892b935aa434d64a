#include "broker/security/acl.h"

#include <array>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"

namespace tarry::broker {
namespace {

constexpr std::size_t max_text_bytes = 32'767;

template <typename T>
bool in_range(T value, T min, T max) {
  return std::to_underlying(value) >= std::to_underlying(min) &&
         std::to_underlying(value) <= std::to_underlying(max);
}

}  // namespace

std::string_view name(AclResource resource) {
  // By Kafka's numbers.
  constexpr std::array<std::string_view, 8> names = {
      "UNKNOWN",          "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID",
      "DELEGATION_TOKEN", "USER"};
  const auto at = static_cast<std::size_t>(resource);
  return at < names.size() ? names[at] : names[0];
}

std::string_view name(AclOperation operation) {
  constexpr std::array<std::string_view, 16> names = {"UNKNOWN",
                                                      "ANY",
                                                      "ALL",
                                                      "READ",
                                                      "WRITE",
                                                      "CREATE",
                                                      "DELETE",
                                                      "ALTER",
                                                      "DESCRIBE",
                                                      "CLUSTER_ACTION",
                                                      "DESCRIBE_CONFIGS",
                                                      "ALTER_CONFIGS",
                                                      "IDEMPOTENT_WRITE",
                                                      "CREATE_TOKENS",
                                                      "DESCRIBE_TOKENS",
                                                      "TWO_PHASE_COMMIT"};
  const auto at = static_cast<std::size_t>(operation);
  return at < names.size() ? names[at] : names[0];
}

std::string AclBinding::refusal_reason() const {
  if (!in_range(resource, AclResource::topic, AclResource::user)) return "Invalid resource type";
  if (!in_range(pattern, AclPattern::literal, AclPattern::prefixed)) return "Invalid pattern type";
  if (!in_range(operation, AclOperation::all, AclOperation::two_phase_commit))
    return "Invalid operation";
  if (!in_range(permission, AclPermission::deny, AclPermission::allow))
    return "Invalid permission type";
  if (name.empty()) return "Resource name is empty";
  if (principal.empty() || !principal.contains(':'))
    return fmt::format(
        "Could not parse principal from `{}` (no colon is present separating the "
        "principal type from the principal name)",
        printable(principal));
  if (host.empty()) return "Host is empty";
  if (resource == AclResource::cluster && name != cluster_resource_name)
    return fmt::format("The only valid name for the CLUSTER resource is {}", cluster_resource_name);
  for (const auto* text : {&name, &principal, &host}) {
    if (text->contains('\0')) return "A name contains a zero byte";
    if (text->size() > max_text_bytes) return "A name is too long";
  }
  return {};
}

std::string AclBinding::key() const {
  std::string out;
  for (const auto number : {std::to_underlying(resource), std::to_underlying(pattern),
                            std::to_underlying(operation), std::to_underlying(permission)})
    out += static_cast<char>('a' + number);
  // No name has a zero byte (refusal_reason), so it keeps them apart.
  return fmt::format("{}{}{}{}{}{}", out, name, '\0', principal, '\0', host);
}

std::optional<AclBinding> AclBinding::of_key(std::string_view key) {
  if (key.size() < 4) return std::nullopt;
  AclBinding out;
  out.resource = static_cast<AclResource>(key[0] - 'a');
  out.pattern = static_cast<AclPattern>(key[1] - 'a');
  out.operation = static_cast<AclOperation>(key[2] - 'a');
  out.permission = static_cast<AclPermission>(key[3] - 'a');
  key.remove_prefix(4);
  const auto first = key.find('\0');
  const auto second = key.find('\0', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos) return std::nullopt;
  out.name = key.substr(0, first);
  out.principal = key.substr(first + 1, second - first - 1);
  out.host = key.substr(second + 1);
  // A row may be damaged, and a wrong rule would let somebody in.
  return out.refusal_reason().empty() ? std::optional(std::move(out)) : std::nullopt;
}

std::string AclFilter::refusal_reason() const {
  if (!in_range(resource, AclResource::any, AclResource::user)) return "Invalid resource type";
  if (!in_range(pattern, AclPattern::any, AclPattern::prefixed)) return "Invalid pattern type";
  if (!in_range(operation, AclOperation::any, AclOperation::two_phase_commit))
    return "Invalid operation";
  if (!in_range(permission, AclPermission::any, AclPermission::allow))
    return "Invalid permission type";
  return {};
}

bool AclFilter::selects(const AclBinding& binding) const {
  if (resource != AclResource::any && resource != binding.resource) return false;
  if (operation != AclOperation::any && operation != binding.operation) return false;
  if (permission != AclPermission::any && permission != binding.permission) return false;
  if (principal && *principal != binding.principal) return false;
  if (host && *host != binding.host) return false;
  // MATCH selects every rule that says something about this name.
  if (pattern == AclPattern::match) {
    if (!name) return true;
    if (binding.pattern == AclPattern::prefixed) return name->starts_with(binding.name);
    // A rule for all names says something about this one too.
    return binding.name == *name || binding.name == "*";
  }
  if (pattern != AclPattern::any && pattern != binding.pattern) return false;
  return !name || *name == binding.name;
}

}  // namespace tarry::broker
