// DescribeUserScramCredentials (key 50) and AlterUserScramCredentials (key 51), version 0: the
// users of SCRAM.  The client computes the salted password; the broker keeps what checks a proof.
// They need DESCRIBE and ALTER on the cluster.  All changes of one user hold together or not at
// all.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "broker/broker.h"
#include "broker/handlers/all.h"
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

protocol::DescribeUserScramCredentialsResponse describe_users(
    RequestContext& context, const protocol::DescribeUserScramCredentialsRequest& request) {
  protocol::DescribeUserScramCredentialsResponse response;
  if (!authorize_cluster(context, AclOperation::describe)) {
    response.error_code = ErrorCode::cluster_authorization_failed;
    response.error_message = "Cluster authorization failed.";
    return response;
  }
  const auto image = context.broker.security(context.shard).image;
  std::map<std::string, protocol::DescribeUserScramCredentialsResponse::Result> found;
  for (const auto& [who, credential] : image->users()) {
    auto& result = found[who.first];
    result.user = who.first;
    result.credential_infos.push_back({std::to_underlying(who.second), credential.iterations});
  }
  if (!request.users || request.users->empty()) {
    for (auto& [name, result] : found) response.results.push_back(std::move(result));
    return response;
  }
  std::map<std::string_view, int> asked;
  for (const auto& user : *request.users) ++asked[user.name];
  for (const auto& [name, times] : asked) {
    const auto known = found.find(std::string(name));
    auto& result = response.results.emplace_back();
    if (times == 1 && known != found.end()) {
      result = std::move(known->second);
      continue;
    }
    result.user = name;
    result.error_code = times > 1 ? ErrorCode::duplicate_resource : ErrorCode::resource_not_found;
    result.error_message =
        times > 1 ? "Cannot describe SCRAM credentials for the same user twice in a single request"
                  : "Attempt to describe a user credential that does not exist";
  }
  return response;
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

std::map<std::string, UserChange> changes_of(
    const protocol::AlterUserScramCredentialsRequest& request, const SecurityImage& image) {
  std::map<std::string, UserChange> users;
  for (const auto& wanted : request.deletions) {
    auto& user = users[std::string(wanted.name)];
    user.add(wanted.mechanism, check(wanted, image));
    if (!user.refused) {
      user.changes.push_back(
          {SecurityImage::user_key(wanted.name, static_cast<ScramMechanism>(wanted.mechanism)),
           std::nullopt});
    }
  }
  for (const auto& wanted : request.upsertions) {
    auto& user = users[std::string(wanted.name)];
    user.add(wanted.mechanism, check(wanted));
    if (user.refused) continue;
    const auto mechanism = static_cast<ScramMechanism>(wanted.mechanism);
    const auto credential = scram_credential(mechanism, as_text(wanted.salted_password),
                                             as_text(wanted.salt), wanted.iterations);
    user.changes.push_back(
        {SecurityImage::user_key(wanted.name, mechanism), SecurityImage::user_value(credential)});
  }
  return users;
}

asio::awaitable<protocol::AlterUserScramCredentialsResponse> alter_users(
    RequestContext& context, const protocol::AlterUserScramCredentialsRequest& request) {
  protocol::AlterUserScramCredentialsResponse response;
  const auto image = context.broker.security(context.shard).image;
  auto users = changes_of(request, *image);
  std::optional<Refusal> all_refused;
  if (!authorize_cluster(context, AclOperation::alter)) {
    all_refused = {ErrorCode::cluster_authorization_failed, "Cluster authorization failed."};
  } else if (image->users().size() + request.upsertions.size() > max_users) {
    all_refused = {ErrorCode::policy_violation, "There would be more than 100000 users."};
  }
  std::vector<LiveSecurity::Change> changes;
  for (auto& [name, user] : users) {
    if (!user.refused && !all_refused) std::ranges::move(user.changes, std::back_inserter(changes));
  }
  const auto changed = co_await change_security(context, changes);
  if (!changed) all_refused = {ErrorCode::kafka_storage_error, changed.error().message};
  for (const auto& [name, user] : users) {
    auto& result = response.results.emplace_back();
    result.user = name;
    const auto& refused = all_refused ? all_refused : user.refused;
    if (refused) {
      result.error_code = refused->code;
      result.error_message = refused->message;
    } else {
      log_info("audit", "{} from {} has changed the login of user {}",
               printable(context.connection.principal()), context.connection.peer(),
               printable(name));
    }
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_describe_scram_users(RequestContext context) {
  return run_at_once<protocol::DescribeUserScramCredentialsRequest, describe_users>(
      std::move(context));
}

asio::awaitable<Answer> run_alter_scram_users(RequestContext context) {
  return run<protocol::AlterUserScramCredentialsRequest, alter_users>(std::move(context));
}

}  // namespace tarry::broker
