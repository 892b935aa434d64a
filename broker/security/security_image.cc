#include "broker/security/security_image.h"

#include <optional>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "base/bytes.h"
#include "base/log.h"
#include "broker/security/scram_exchange.h"
#include "storage/fields.h"

namespace tarry::broker {
namespace {

constexpr std::string_view user_prefix = "user:";
constexpr std::string_view rule_prefix = "rule:";
constexpr std::string_view everybody = "User:*";
constexpr std::string_view any_host = "*";

bool concerns(const AclBinding& rule, const ClientIdentity& who) {
  return (rule.principal == who.principal || rule.principal == everybody) &&
         (rule.host == any_host || rule.host == who.host || rule.host == who.host_in_full);
}

// A rule that denies for less leaves some names.
bool is_for_every_name(const AclBinding& rule) {
  return rule.pattern == AclPattern::literal && rule.name == "*";
}

std::size_t bit_of(AclOperation operation) {
  return static_cast<std::size_t>(operation);
}

// Whether the right to do `granted` is one to do `asked`.
bool implies(AclOperation granted, AclOperation asked) {
  if (granted == AclOperation::all || granted == asked) return true;
  if (asked == AclOperation::describe) {
    return granted == AclOperation::read || granted == AclOperation::write ||
           granted == AclOperation::remove || granted == AclOperation::alter;
  }
  return asked == AclOperation::describe_configs && granted == AclOperation::alter_configs;
}

std::optional<ScramCredential> read_user(std::string_view value) {
  storage::Fields fields(as_bytes(value));
  ScramCredential out;
  out.iterations = fields.number<std::int32_t>();
  out.salt = fields.short_text();
  out.stored_key = fields.short_text();
  out.server_key = fields.short_text();
  return fields.good() ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace

SecurityImage::SecurityImage(const storage::Configs& rows) {
  for (const auto& [key, value] : rows) {
    const std::string_view text = key;
    if (text == login_secret_key) continue;
    if (text.starts_with(rule_prefix)) {
      if (auto rule = AclBinding::of_key(text.substr(rule_prefix.size()))) {
        rules_.insert(std::move(*rule));
        bytes_ += key.size() + value.size();
        continue;
      }
    } else if (text.starts_with(user_prefix) && text.size() > user_prefix.size()) {
      const auto mechanism = static_cast<ScramMechanism>(text[user_prefix.size()] - '0');
      if (auto user = read_user(value)) {
        users_.insert_or_assign({std::string(text.substr(user_prefix.size() + 1)), mechanism},
                                std::move(*user));
        bytes_ += key.size() + value.size();
        continue;
      }
    } else if (text.starts_with(principal_prefix)) {
      if (const auto number = read_principal(value)) {
        principals_.emplace(text.substr(principal_prefix.size()), *number);
        continue;
      }
    }
    if (quotas_.take_row(text, value)) continue;
    // The broker starts all the same, or nobody could mend the row.
    log_error("broker", "a stored user, rule or quota cannot be read and is ignored: {}",
              printable(key));
  }
  choose_examples();
  for (const auto& rule : rules_) {
    auto& there = rule.pattern == AclPattern::prefixed ? prefixed_ : literal_;
    // The set never changes again, so pointers into it stay valid.
    there[{rule.resource, rule.name}].push_back(&rule);
    if (rule.pattern == AclPattern::prefixed) prefix_sizes_.insert(rule.name.size());
    if (rule.resource == AclResource::topic) note_action(rule);
    auto& summary = summaries_[{rule.resource, rule.principal, rule.host}];
    const auto operation = bit_of(rule.operation);
    if (rule.permission == AclPermission::allow) {
      summary.allowed.set(operation);
    } else if (is_for_every_name(rule)) {
      summary.denied_all.set(operation);
    }
  }
}

void SecurityImage::note_action(const AclBinding& rule) {
  const auto at = rule.name.find(action_separator);
  if (at == std::string::npos) return;
  any_of_action_ = true;
  const auto action = std::string_view(rule.name).substr(at + 1);
  // A prefix that contains the slash is for one topic too.
  const bool is_for_reading = rule.pattern == AclPattern::prefixed
                                  ? reading_action.starts_with(action)
                                  : action == reading_action;
  if (is_for_reading) rules_of_reading_.insert(rule.name.substr(0, at));
}

void SecurityImage::choose_examples() {
  std::map<std::tuple<ScramMechanism, std::int32_t, std::size_t, bool>, const ScramCredential*>
      looks;
  for (const auto& [user, credential] : users_) {
    looks.try_emplace(
        {user.second, credential.iterations, credential.salt.size(), is_text_salt(credential.salt)},
        &credential);
  }
  // In the order of the looks: another user with one of them changes nothing.
  for (const auto& [look, credential] : looks) examples_[std::get<0>(look)].push_back(credential);
}

const ScramCredential* SecurityImage::example_user(std::uint64_t number,
                                                   ScramMechanism mechanism) const {
  const auto found = examples_.find(mechanism);
  return found == examples_.end() ? nullptr : found->second[number % found->second.size()];
}

const ScramCredential* SecurityImage::find_user(std::string_view name,
                                                ScramMechanism mechanism) const {
  const auto found = users_.find({std::string(name), mechanism});
  return found == users_.end() ? nullptr : &found->second;
}

void SecurityImage::judge(Verdict& verdict, const AclBinding& rule, const ClientIdentity& who,
                          AclOperation operation) const {
  verdict.any_rule = true;
  if (!concerns(rule, who)) return;
  if (rule.permission == AclPermission::deny) {
    // To deny READ is not to deny DESCRIBE.
    if (rule.operation == AclOperation::all || rule.operation == operation) verdict.denied = true;
  } else if (implies(rule.operation, operation)) {
    verdict.allowed = true;
  }
}

bool SecurityImage::allows(const AuthorizerTerms& terms, const ClientIdentity& who,
                           AclOperation operation, AclResource resource,
                           std::string_view name) const {
  Verdict verdict;
  for (const std::string_view literal : {name, std::string_view("*")}) {
    const auto found = literal_.find({resource, std::string(literal)});
    if (found == literal_.end()) continue;
    for (const auto* rule : found->second) judge(verdict, *rule, who, operation);
  }
  // A name is looked up once for each length that a prefix of some rule has, however long it is.
  for (const std::size_t size : prefix_sizes_) {
    if (size > name.size()) break;
    const auto found = prefixed_.find({resource, std::string(name.substr(0, size))});
    if (found == prefixed_.end()) continue;
    for (const auto* rule : found->second) judge(verdict, *rule, who, operation);
  }
  // A rule that denies counts more than any that allows, as in Kafka.
  if (verdict.denied) return false;
  return verdict.allowed || (!verdict.any_rule && terms.allow_without_rule);
}

bool SecurityImage::has_rule_of_action(std::string_view name) const {
  if (literal_.contains({AclResource::topic, std::string(name)})) return true;
  for (const std::size_t size : prefix_sizes_) {
    const auto prefix = name.substr(0, size);
    if (size <= name.size() && prefix.contains(action_separator) &&
        prefixed_.contains({AclResource::topic, std::string(prefix)}))
      return true;
  }
  return false;
}

bool SecurityImage::allows_for_some(const AuthorizerTerms& terms, const ClientIdentity& who,
                                    AclOperation operation, AclResource resource) const {
  bool allowed = terms.allow_without_rule;
  for (const std::string_view principal : {std::string_view(who.principal), everybody}) {
    for (const auto host :
         {std::string_view(who.host), std::string_view(who.host_in_full), any_host}) {
      const auto found = summaries_.find({resource, principal, host});
      if (found == summaries_.end()) continue;
      const Summary& summary = found->second;
      if (summary.denied_all.test(bit_of(AclOperation::all)) ||
          summary.denied_all.test(bit_of(operation)))
        return false;
      for (std::size_t granted = 0; granted < summary.allowed.size(); ++granted) {
        allowed |=
            summary.allowed.test(granted) && implies(static_cast<AclOperation>(granted), operation);
      }
    }
  }
  return allowed;
}

std::string SecurityImage::user_key(std::string_view name, ScramMechanism mechanism) {
  return fmt::format("{}{}{}", user_prefix, static_cast<int>(mechanism), name);
}

std::string SecurityImage::user_value(const ScramCredential& credential) {
  Buffer out;
  append_be(out, credential.iterations);
  storage::put_short(out, credential.salt);
  storage::put_short(out, credential.stored_key);
  storage::put_short(out, credential.server_key);
  return std::string(as_text(out));
}

PrincipalId SecurityImage::find_principal(std::string_view name) const {
  const auto found = principals_.find(name);
  return found == principals_.end() ? unknown_principal : found->second;
}

std::string SecurityImage::principal_key(std::string_view name) {
  return fmt::format("{}{}", principal_prefix, name);
}

std::string SecurityImage::principal_value(PrincipalId number) {
  Buffer out;
  append_be(out, number);
  return std::string(as_text(out));
}

std::optional<PrincipalId> SecurityImage::read_principal(std::string_view value) {
  storage::Fields fields(as_bytes(value));
  const auto number = fields.number<PrincipalId>();
  return fields.good() ? std::optional(number) : std::nullopt;
}

std::string SecurityImage::rule_key(const AclBinding& rule) {
  return fmt::format("{}{}", rule_prefix, rule.key());
}

}  // namespace tarry::broker
