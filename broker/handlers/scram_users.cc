// DescribeUserScramCredentials (key 50) and AlterUserScramCredentials (key 51), version 0: the
// users of SCRAM.  The client computes the salted password; the broker keeps what checks a proof.
// They need DESCRIBE and ALTER on the cluster.  All changes of one user hold together or not at
// all.

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "broker/broker.h"
#include "broker/context/freed_on_pool.h"
#include "broker/context/yield_budget.h"
#include "broker/handlers/all.h"
#include "broker/handlers/answer_room.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/change_security.h"
#include "broker/handlers/run.h"
#include "protocol/messages/alter_user_scram_credentials.h"
#include "protocol/messages/describe_user_scram_credentials.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

constexpr std::size_t max_users = 100'000;
constexpr std::size_t max_user_name_bytes = 1024;
constexpr std::size_t max_salt_bytes = 1024;

using DescribeUsersRequest = protocol::DescribeUserScramCredentialsRequest;
using DescribeUsersResponse = protocol::DescribeUserScramCredentialsResponse;

// The rows of one user are neighbours: one for each mechanism.  Returns the row after them.
SecurityImage::Users::const_iterator describe_user(SecurityImage::Users::const_iterator row,
                                                   const SecurityImage::Users& users,
                                                   DescribeUsersResponse::Result& result) {
  result.user = row->first.first;
  for (; row != users.end() && row->first.first == result.user; ++row)
    result.credential_infos.push_back(
        {std::to_underlying(row->first.second), row->second.iterations});
  return row;
}

void describe_named(std::string_view name, int times, const SecurityImage::Users& users,
                    DescribeUsersResponse::Result& result) {
  const auto row = users.lower_bound({std::string(name), ScramMechanism{}});
  if (times == 1 && row != users.end() && row->first.first == name) {
    describe_user(row, users, result);
    return;
  }
  result.user = name;
  result.error_code = times > 1 ? ErrorCode::duplicate_resource : ErrorCode::resource_not_found;
  result.error_message =
      times > 1 ? "Cannot describe SCRAM credentials for the same user twice in a single request"
                : "Attempt to describe a user credential that does not exist";
}

asio::awaitable<DescribeUsersResponse> describe_users(RequestContext& context,
                                                      const DescribeUsersRequest& request) {
  DescribeUsersResponse response;
  if (!authorize_cluster(context, AclOperation::describe)) {
    response.error_code = ErrorCode::cluster_authorization_failed;
    response.error_message = "Cluster authorization failed.";
    co_return response;
  }
  const auto image = context.broker.security(context.shard).image;
  const auto& users = image->users();
  YieldBudget budget(context.shard, &context.connection);
  if (!request.users || request.users->empty()) {
    AnswerMemory memory(context);
    for (auto row = users.begin(); row != users.end();) {
      if (budget.spend()) {
        const bool wanted = co_await budget.yield();
        if (!wanted) co_return response;
      }
      row = describe_user(row, users, response.results.emplace_back());
      if (memory.spend(2 * sizeof(response.results.back()))) {
        const bool taken = co_await memory.take();
        if (!taken) co_return response;
      }
    }
    co_return response;
  }
  std::map<std::string_view, int> asked;
  const FreedOnPool freed(context.shard, asked);
  for (const auto& user : *request.users) {
    if (budget.spend()) {
      const bool wanted = co_await budget.yield();
      if (!wanted) co_return response;
    }
    ++asked[user.name];
  }
  const bool room = co_await reserve_charged(context, asked.size(), response.results);
  if (!room) co_return response;
  // The map goes piece by piece, because to free it takes long, too.
  while (!asked.empty()) {
    if (budget.spend()) {
      const bool wanted = co_await budget.yield();
      if (!wanted) co_return response;
    }
    const auto [name, times] = *asked.begin();
    asked.erase(asked.begin());
    describe_named(name, times, users, response.results.emplace_back());
  }
  co_return response;
}

struct Refusal {
  ErrorCode code;
  std::string message;
};
using Upsertion = protocol::AlterUserScramCredentialsRequest::Upsertion;
using Deletion = protocol::AlterUserScramCredentialsRequest::Deletion;

std::optional<Refusal> check_name(std::string_view user) {
  if (user.empty())
    return Refusal{ErrorCode::unacceptable_credential, "Username must not be empty"};
  if (user.size() > max_user_name_bytes || user.contains('\0'))
    return Refusal{ErrorCode::unacceptable_credential,
                   "Username is too long, or contains a zero byte"};
  return std::nullopt;
}

bool is_mechanism(std::int8_t number) {
  return number == std::to_underlying(ScramMechanism::sha256) ||
         number == std::to_underlying(ScramMechanism::sha512);
}

std::optional<Refusal> check(const Upsertion& wanted) {
  if (auto refused = check_name(wanted.name)) return refused;
  if (!is_mechanism(wanted.mechanism))
    return Refusal{ErrorCode::unsupported_sasl_mechanism, "Unknown SCRAM mechanism"};
  if (wanted.iterations < min_scram_iterations)
    return Refusal{ErrorCode::unacceptable_credential, "Too few iterations"};
  if (wanted.iterations > max_scram_iterations)
    return Refusal{ErrorCode::unacceptable_credential, "Too many iterations"};
  if (wanted.salt.empty() || wanted.salt.size() > max_salt_bytes)
    return Refusal{ErrorCode::unacceptable_credential, "The salt is empty or too long"};
  const auto mechanism = static_cast<ScramMechanism>(wanted.mechanism);
  // The client has salted the password, so its size is all that can be checked.
  if (wanted.salted_password.size() != scram_hash(mechanism, {}).size())
    return Refusal{ErrorCode::unacceptable_credential,
                   "The salted password does not have the size of the mechanism's hash"};
  return std::nullopt;
}

std::optional<Refusal> check(const Deletion& wanted, const SecurityImage& image) {
  if (auto refused = check_name(wanted.name)) return refused;
  if (!is_mechanism(wanted.mechanism))
    return Refusal{ErrorCode::unsupported_sasl_mechanism, "Unknown SCRAM mechanism"};
  if (image.find_user(wanted.name, static_cast<ScramMechanism>(wanted.mechanism)) == nullptr)
    return Refusal{ErrorCode::resource_not_found,
                   "Attempt to delete a user credential that does not exist"};
  return std::nullopt;
}

// For each user the error, or the changes.
struct UserChange {
  std::optional<Refusal> refused;
  std::set<std::int8_t> mechanisms;
  std::vector<LiveSecurity::Change> changes;

  void add(std::int8_t mechanism, std::optional<Refusal> why) {
    // The first error counts for everything that the request wants of this user.
    if (!refused) refused = std::move(why);
    if (!mechanisms.insert(mechanism).second && !refused) {
      refused = Refusal{ErrorCode::duplicate_resource,
                        "A user credential cannot be altered twice in the same request"};
    }
  }
};

// Two proofs of SHA-512 and a hash.
constexpr std::size_t microseconds_a_credential = 5;

using UserChanges = std::map<std::string, UserChange>;

void take_deletion(UserChange& user, const Deletion& wanted, const SecurityImage& image) {
  user.add(wanted.mechanism, check(wanted, image));
  if (user.refused) return;
  const auto mechanism = static_cast<ScramMechanism>(wanted.mechanism);
  user.changes.push_back({.key = SecurityImage::user_key(wanted.name, mechanism),
                          .value = std::nullopt,
                          .with_previous = !user.changes.empty()});
}

void take_upsertion(UserChange& user, const Upsertion& wanted) {
  user.add(wanted.mechanism, check(wanted));
  if (user.refused) return;
  const auto mechanism = static_cast<ScramMechanism>(wanted.mechanism);
  const auto credential = scram_credential(mechanism, as_text(wanted.salted_password),
                                           as_text(wanted.salt), wanted.iterations);
  user.changes.push_back({.key = SecurityImage::user_key(wanted.name, mechanism),
                          .value = SecurityImage::user_value(credential),
                          .with_previous = !user.changes.empty()});
}

// By the users' names.  A request that is refused as a whole has no changes, and costs no hashing.
asio::awaitable<UserChanges> changes_of(const protocol::AlterUserScramCredentialsRequest& request,
                                        const SecurityImage& image,
                                        const std::optional<Refusal>& all_refused,
                                        YieldBudget& budget) {
  UserChanges users;
  for (const auto& wanted : request.deletions) {
    if (budget.spend()) co_await budget.yield();
    auto& user = users[std::string(wanted.name)];
    if (all_refused) user.refused = all_refused;
    take_deletion(user, wanted, image);
  }
  for (const auto& wanted : request.upsertions) {
    if (budget.spend(microseconds_a_credential)) co_await budget.yield();
    auto& user = users[std::string(wanted.name)];
    if (all_refused) user.refused = all_refused;
    take_upsertion(user, wanted);
  }
  co_return users;
}

std::int64_t credential_bytes(std::string_view name, const ScramCredential& credential) {
  return std::ssize(name) + std::ssize(credential.salt) + std::ssize(credential.stored_key) +
         std::ssize(credential.server_key);
}

struct UsersAfter {
  std::size_t count = 0;
  std::int64_t more_bytes = 0;
};

// The users that there would be after the request: a user that exists is changed.
asio::awaitable<UsersAfter> users_after(const protocol::AlterUserScramCredentialsRequest& request,
                                        const SecurityImage& image, YieldBudget& budget) {
  UsersAfter after;
  std::size_t removed = 0, added = 0;
  for (const auto& wanted : request.deletions) {
    if (budget.spend()) co_await budget.yield();
    const auto* const user =
        image.find_user(wanted.name, static_cast<ScramMechanism>(wanted.mechanism));
    if (check(wanted, image)) continue;
    ++removed;
    after.more_bytes -= credential_bytes(wanted.name, *user);
  }
  for (const auto& wanted : request.upsertions) {
    if (budget.spend()) co_await budget.yield();
    const auto mechanism = static_cast<ScramMechanism>(wanted.mechanism);
    const auto* const user = image.find_user(wanted.name, mechanism);
    if (user == nullptr) ++added;
    // Both keys of a credential have the size of the salted password.
    after.more_bytes += std::ssize(wanted.name) + std::ssize(wanted.salt) +
                        2 * std::ssize(wanted.salted_password) -
                        (user == nullptr ? 0 : credential_bytes(wanted.name, *user));
  }
  const auto all = image.users().size() + added;
  after.count = all - std::min(all, removed);
  co_return after;
}

asio::awaitable<protocol::AlterUserScramCredentialsResponse> alter_users(
    RequestContext& context, const protocol::AlterUserScramCredentialsRequest& request) {
  protocol::AlterUserScramCredentialsResponse response;
  const auto image = context.broker.security(context.shard).image;
  YieldBudget budget(context.shard, nullptr);
  std::optional<Refusal> all_refused;
  if (!authorize_cluster(context, AclOperation::alter)) {
    all_refused = {ErrorCode::cluster_authorization_failed, "Cluster authorization failed."};
  } else {
    const UsersAfter after = co_await users_after(request, *image, budget);
    if (after.count > max_users) {
      all_refused = {ErrorCode::policy_violation, "There would be more than 100000 users."};
    } else if (after.more_bytes > 0 && image->bytes() + static_cast<std::size_t>(after.more_bytes) >
                                           SecurityImage::max_bytes) {
      all_refused = {ErrorCode::policy_violation, std::string(SecurityImage::above_max_bytes)};
    }
  }
  auto users = co_await changes_of(request, *image, all_refused, budget);
  std::vector<LiveSecurity::Change> changes;
  for (auto& [name, user] : users) {
    if (budget.spend()) co_await budget.yield();
    if (!user.refused) std::ranges::move(user.changes, std::back_inserter(changes));
  }
  const auto changed = co_await change_security(context, std::move(changes));
  // The map goes piece by piece, because to free it takes long, too.
  while (!users.empty()) {
    if (budget.spend(2)) co_await budget.yield();
    auto node = users.extract(users.begin());
    auto& refused = node.mapped().refused;
    if (!changed && !refused) refused = {ErrorCode::kafka_storage_error, changed.error().message};
    auto& result = response.results.emplace_back();
    result.user = node.key();
    if (refused) {
      result.error_code = refused->code;
      result.error_message = std::move(refused->message);
    } else {
      log_info("audit", "{} from {} has changed the login of user {}",
               printable(context.connection.principal()), context.connection.peer(),
               printable(node.key()));
    }
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_describe_scram_users(RequestContext context) {
  return run<DescribeUsersRequest, describe_users>(std::move(context));
}

asio::awaitable<Answer> run_alter_scram_users(RequestContext context) {
  return run<protocol::AlterUserScramCredentialsRequest, alter_users>(std::move(context));
}

}  // namespace tarry::broker
