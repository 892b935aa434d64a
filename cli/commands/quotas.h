#pragma once

// Quotas of users, client ids and addresses, for `tarry config`: docs/security.md, "Quotas".

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/options.h"

namespace tarry::cli {

// The owner of quotas: a user, a client id, both together, or an address; "any" is the default
// for everyone whom no quota names.
struct QuotaOwner {
  std::optional<std::string> user, client_id, ip;
  bool any_user = false, any_client_id = false, any_ip = false;

  bool is_given() const { return user || client_id || ip || any_user || any_client_id || any_ip; }
};

// Adds --user, --any-user and so on, each of which excludes the options in `excluded`.
void add_quota_owner(CLI::App& command, QuotaOwner& owner,
                     const std::vector<CLI::Option*>& excluded);

// Prints the quotas of the owner; with a user, those that hold for one of its client ids too.
// `names`: only these quotas; empty: all.
int get_quotas(const BrokerOptions& broker, const QuotaOwner& owner,
               const std::vector<std::string>& names);
// KEY=VALUE each; `unset`: these are removed.
int set_quotas(const BrokerOptions& broker, const QuotaOwner& owner,
               const std::vector<std::string>& words, const std::vector<std::string>& unset);

}  // namespace tarry::cli
