#pragma once

// SecurityImage: the users, the rules, the quotas and the numbers of principals at one moment, as
// every shard has them.
//
//   db/meta, journal of shard 0 --> rows --> SecurityImage --> authorization of each request
//
// It never changes; a change of users, rules or quotas makes a new one (topics/live_security.h).
//
// A request is allowed as in Kafka: one of super.users may do everything; a rule that denies counts
// more than all that allow; then any rule that allows is enough; without any rule for the resource
// allow.everyone.if.no.acl.found decides.  A user that may READ, WRITE, DELETE or ALTER may
// DESCRIBE too, and ALTER_CONFIGS implies DESCRIBE_CONFIGS.

#include <bitset>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/scram.h"
#include "broker/security/acl.h"
#include "broker/security/quota_table.h"
#include "storage/journal_record.h"

namespace tarry::broker {

// The settings of the authorizer.
struct AuthorizerTerms {
  bool enabled = false;                            // authorizer.class.name is given.
  std::set<std::string, std::less<>> super_users;  // super.users
  bool allow_without_rule = false;                 // allow.everyone.if.no.acl.found
};

struct ClientIdentity {
  std::string principal;  // "User:alice"
  std::string host;       // "10.0.0.7", "::1"
  // An IPv6 address as Java writes it, in which form rules that were made for Kafka have it:
  // "0:0:0:0:0:0:0:1".  Empty for others.
  std::string host_in_full = {};
};

class SecurityImage {
 public:
  SecurityImage() = default;
  // Rows that cannot be read are left out.
  explicit SecurityImage(const storage::Configs& rows);
  SecurityImage(const SecurityImage&) = delete;
  SecurityImage& operator=(const SecurityImage&) = delete;

  // The store has them too, while they change there are two images, and all of them are told in one
  // answer, which has at most 64 MiB.
  static constexpr std::size_t max_bytes = std::size_t{32} << 20;
  static constexpr std::string_view above_max_bytes =
      "Users and rules would have more than 32 MiB together.";
  // The size of the rows of users and rules.
  std::size_t bytes() const { return bytes_; }

  const std::set<AclBinding>& rules() const { return rules_; }
  using Users = std::map<std::pair<std::string, ScramMechanism>, ScramCredential>;
  const Users& users() const { return users_; }
  const ScramCredential* find_user(std::string_view name, ScramMechanism mechanism) const;
  // One user for each look that a salt has (ScramExchange::FindExample); null: nobody logs in so.
  const ScramCredential* example_user(std::uint64_t number, ScramMechanism mechanism) const;

  const QuotaTable& quotas() const { return quotas_; }

  // The numbers of the principals that have produced.
  using Principals = std::map<std::string, PrincipalId, std::less<>>;
  const Principals& principals() const { return principals_; }
  // unknown_principal: it has none yet.
  PrincipalId find_principal(std::string_view name) const;

  // By the rules alone: whether there is an authorizer, and super users, are the caller's.
  bool allows(const AuthorizerTerms& terms, const ClientIdentity& who, AclOperation operation,
              AclResource resource, std::string_view name) const;
  // Whether some rule is for this name of a topic's action ("orders/cancel"): by the whole name, or
  // by a prefix that no topic's own name has.
  bool has_rule_of_action(std::string_view name) const;
  bool has_rules_of_actions() const { return any_of_action_; }
  // The topics whose name for reading their pending records ("orders/pending") has such a rule.
  const std::set<std::string, std::less<>>& topics_with_rule_of_reading() const {
    return rules_of_reading_;
  }
  // Whether there may be a resource of this kind for which `operation` is allowed.  It costs the
  // same however many rules there are.
  bool allows_for_some(const AuthorizerTerms& terms, const ClientIdentity& who,
                       AclOperation operation, AclResource resource) const;

  // A row of the broker's own, which is no user, rule or quota.
  static constexpr std::string_view login_secret_key = "secret:logins";
  static std::string user_key(std::string_view name, ScramMechanism mechanism);
  static std::string user_value(const ScramCredential& credential);
  static std::string rule_key(const AclBinding& rule);
  // "User:alice"
  static constexpr std::string_view principal_prefix = "principal:";
  static std::string principal_key(std::string_view name);
  static std::string principal_value(PrincipalId number);
  static std::optional<PrincipalId> read_principal(std::string_view value);

 private:
  struct Verdict {
    bool any_rule = false, denied = false, allowed = false;
  };
  // The rules for one principal from one host, summed up over all resources of a kind.
  struct Summary {
    // By the operations' numbers.
    std::bitset<16> allowed;     // For some name.
    std::bitset<16> denied_all;  // For every name.
  };
  void choose_examples();
  void note_action(const AclBinding& rule);
  void judge(Verdict& verdict, const AclBinding& rule, const ClientIdentity& who,
             AclOperation operation) const;

  std::set<AclBinding> rules_;
  // By resource and literal name, and those with prefixes by resource; they point into rules_.
  std::map<std::pair<AclResource, std::string>, std::vector<const AclBinding*>, std::less<>>
      literal_;
  std::map<std::pair<AclResource, std::string>, std::vector<const AclBinding*>, std::less<>>
      prefixed_;
  std::set<std::size_t> prefix_sizes_;  // The lengths of all of these names.
  // By principal and host, which are views of rules_.
  std::map<std::tuple<AclResource, std::string_view, std::string_view>, Summary> summaries_;
  bool any_of_action_ = false;                           // Some rule is for a topic's action.
  std::set<std::string, std::less<>> rules_of_reading_;  // By the topic's own name.
  Users users_;
  // One for each look; they point into users_.
  std::map<ScramMechanism, std::vector<const ScramCredential*>> examples_;
  std::size_t bytes_ = 0;
  QuotaTable quotas_;
  Principals principals_;
};

}  // namespace tarry::broker
