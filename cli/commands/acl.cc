#include "cli/commands/acl.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/ascii_case.h"
#include "cli/command_tree.h"
#include "cli/io/exit_status.h"
#include "cli/io/json.h"
#include "cli/io/output.h"
#include "cli/io/table.h"
#include "cli/io/text.h"
#include "cli/kafka/wire_client.h"
#include "cli/options.h"
#include "protocol/messages/create_acls.h"
#include "protocol/messages/delete_acls.h"
#include "protocol/messages/describe_acls.h"

namespace tarry::cli {
namespace {

using protocol::ErrorCode;

// Kafka's numbers are the places.
constexpr std::array<std::string_view, 13> acl_operations = {"unknown",
                                                             "any",
                                                             "all",
                                                             "read",
                                                             "write",
                                                             "create",
                                                             "delete",
                                                             "alter",
                                                             "describe",
                                                             "cluster-action",
                                                             "describe-configs",
                                                             "alter-configs",
                                                             "idempotent-write"};
constexpr std::array<std::string_view, 6> acl_resources = {
    "unknown", "any", "topic", "group", "cluster", "transactional-id"};
// Kafka's numbers.
namespace acl {
constexpr std::int8_t any = 1, literal = 3, prefixed = 4, deny = 2, allow = 3;
constexpr std::int8_t topic = 2, group = 3, cluster = 4;
}  // namespace acl

template <std::size_t N>
std::optional<std::int8_t> acl_number_of(const std::array<std::string_view, N>& names,
                                         std::string_view word) {
  std::string given(word);
  std::ranges::replace(given, '_', '-');
  // From 1 on: "unknown" stands for numbers in answers, and is not to be given.
  for (std::size_t i = 1; i < names.size(); ++i)
    if (equals_ignoring_case(names[i], given)) return static_cast<std::int8_t>(i);
  return std::nullopt;
}
template <std::size_t N>
std::string acl_word_of(const std::array<std::string_view, N>& names, std::int8_t number) {
  // A later broker may have numbers that are not in the table.
  const auto at = static_cast<std::size_t>(static_cast<std::uint8_t>(number));
  return at < names.size() ? std::string(names[at]) : std::to_string(number);
}

std::string is_operation(const std::string& word) {
  // As in Kafka's own tools, in either case and with _ for -.
  return acl_number_of(acl_operations, word)
             ? ""
             : word + ": there is no such operation; give one such as read, write or all";
}
std::string is_principal(const std::string& word) {
  return word.contains(':') ? "" : word + ": write it as User:alice";
}

struct AclOptions {
  BrokerOptions broker;
  std::optional<std::string> principal, host, topic, group;
  std::vector<std::string> operations;
  bool cluster = false, prefixed = false, denies = false;
};

struct AclResourceChoice {
  std::int8_t type = acl::any;
  std::optional<std::string> name;
};
// Empty: more than one is given.
std::optional<AclResourceChoice> resource_of(const AclOptions& options) {
  const int given = (options.topic ? 1 : 0) + (options.group ? 1 : 0) + (options.cluster ? 1 : 0);
  if (given > 1) return std::nullopt;
  if (options.topic) return AclResourceChoice{acl::topic, options.topic};
  if (options.group) return AclResourceChoice{acl::group, options.group};
  // Kafka's name for the only resource of this type.
  if (options.cluster) return AclResourceChoice{acl::cluster, "kafka-cluster"};
  return AclResourceChoice{};
}

int acl_refused(ErrorCode code, const std::optional<std::string>& message) {
  return failure(fmt::format("{} ({})", cell(message.value_or("the broker refuses it")),
                             protocol::name(code)));
}

// One rule, for tables and programs.
class AclPrinter {
 public:
  explicit AclPrinter(bool json) : json_(json) {}

  template <typename Acl>
  void row(std::int8_t type, const std::string& name, std::int8_t pattern, const Acl& rule) {
    const auto* permission = rule.permission_type == acl::deny ? "deny" : "allow";
    // Brokers store no other forms; `any` and `match` are only for filters.
    const auto* form = pattern == acl::prefixed ? "prefixed" : "literal";
    if (json_) {
      out_.line(text_of(Json{{"principal", rule.principal},
                             {"permission", permission},
                             {"operation", acl_word_of(acl_operations, rule.operation)},
                             {"resource", acl_word_of(acl_resources, type)},
                             {"name", name},
                             {"pattern", form},
                             {"host", rule.host}}));
    } else {
      table_.row({cell(rule.principal), permission, acl_word_of(acl_operations, rule.operation),
                  acl_word_of(acl_resources, type), cell(name), form, cell(rule.host)});
    }
  }
  int end() {
    table_.print(out_);
    return out_.end(done);
  }

 private:
  const bool json_;
  Output out_;
  Table table_{
      {{"PRINCIPAL"}, {"RULE"}, {"OPERATION"}, {"RESOURCE"}, {"NAME"}, {"PATTERN"}, {"HOST"}}};
};

int add_acl(const AclOptions& options) {
  const auto resource = resource_of(options);
  if (!resource || resource->type == acl::any)
    return usage_error("acl add: give one of --topic, --group and --cluster");
  if (!options.principal || options.operations.empty())
    return usage_error("acl add: give --principal and --operation");
  // A rule always has a host: this is Kafka's word for every address.
  const std::string host = options.host.value_or("*");
  protocol::CreateAclsRequest request;
  for (const auto& operation : options.operations) {
    request.creations.push_back(
        {resource->type, *resource->name, options.prefixed ? acl::prefixed : acl::literal,
         // The option's check has made sure that there is one.
         *options.principal, host, *acl_number_of(acl_operations, operation),
         options.denies ? acl::deny : acl::allow});
  }
  auto client = WireClient::open(options.broker.kafka());
  if (!client) return failure(client.error().message);
  const auto answer = client->ask<protocol::CreateAclsResponse>(request, 3);
  if (!answer) return failure(answer.error().message);
  for (const auto& result : answer->results)
    if (result.error_code != ErrorCode::none)
      return acl_refused(result.error_code, result.error_message);
  AclPrinter printer(options.broker.json);
  // The answer does not repeat the rules.
  for (const auto& rule : request.creations)
    printer.row(
        rule.resource_type, std::string(rule.resource_name), rule.resource_pattern_type,
        protocol::DescribeAclsResponse::Acl{std::string(rule.principal), std::string(rule.host),
                                            rule.operation, rule.permission_type});
  return printer.end();
}

// The conditions of list and delete.
template <typename Filter>
Filter acl_filter_of(const AclOptions& options, const AclResourceChoice& resource) {
  Filter filter;
  filter.resource_type_filter = resource.type;
  if (resource.name) filter.resource_name_filter = *resource.name;
  // Without a name rules of both forms are meant.
  filter.pattern_type_filter = options.prefixed ? acl::prefixed
                               : resource.name  ? acl::literal
                                                : acl::any;
  if (options.principal) filter.principal_filter = *options.principal;
  if (options.host) filter.host_filter = *options.host;
  filter.operation =
      options.operations.empty() ? acl::any : *acl_number_of(acl_operations, options.operations[0]);
  filter.permission_type = options.denies ? acl::deny : acl::any;
  return filter;
}

int list_acls(const AclOptions& options) {
  const auto resource = resource_of(options);
  if (!resource) return usage_error("acl list: give one of --topic, --group and --cluster");
  // A filter of Kafka's protocol has one operation, or any.
  if (options.operations.size() > 1) return usage_error("acl list: give one --operation");
  const auto request = acl_filter_of<protocol::DescribeAclsRequest>(options, *resource);
  auto client = WireClient::open(options.broker.kafka());
  if (!client) return failure(client.error().message);
  const auto answer = client->ask<protocol::DescribeAclsResponse>(request, 3);
  if (!answer) return failure(answer.error().message);
  if (answer->error_code != ErrorCode::none)
    return acl_refused(answer->error_code, answer->error_message);
  AclPrinter printer(options.broker.json);
  for (const auto& each : answer->resources)
    for (const auto& rule : each.acls)
      printer.row(each.resource_type, each.resource_name, each.pattern_type, rule);
  return printer.end();
}

int delete_acls(const AclOptions& options) {
  const auto resource = resource_of(options);
  if (!resource) return usage_error("acl delete: give one of --topic, --group and --cluster");
  if (options.operations.size() > 1) return usage_error("acl delete: give one --operation");
  // Without any condition it would delete all rules.
  if (resource->type == acl::any && !options.principal)
    return usage_error("acl delete: give --topic, --group, --cluster or --principal");
  protocol::DeleteAclsRequest request;
  request.filters.push_back(acl_filter_of<protocol::DeleteAclsRequest::Filter>(options, *resource));
  auto client = WireClient::open(options.broker.kafka());
  if (!client) return failure(client.error().message);
  const auto answer = client->ask<protocol::DeleteAclsResponse>(request, 3);
  if (!answer) return failure(answer.error().message);
  AclPrinter printer(options.broker.json);
  std::size_t count = 0;
  for (const auto& result : answer->filter_results) {
    if (result.error_code != ErrorCode::none)
      return acl_refused(result.error_code, result.error_message);
    for (const auto& rule : result.matching_acls) {
      printer.row(rule.resource_type, rule.resource_name, rule.pattern_type, rule);
      ++count;
    }
  }
  // A rule that is not there was probably misspelt.
  if (count == 0) return failure("no rule matches; `tarry acl list` shows all rules");
  return printer.end();
}

}  // namespace

void add_acl_commands(CLI::App& program, Chosen& chosen) {
  auto* group = add_group(program, chosen, "acl", "Adds, lists and deletes access rules (ACLs)");
  const auto add_one = [&](const char* name, const char* help, int (*run)(const AclOptions&)) {
    const auto [command, options] = add_broker_command<AclOptions>(*group, chosen, name, help, run);
    command
        ->add_option("--principal", options->principal,
                     "The principal of the rule; User:* is everybody")
        ->option_text("User:NAME")
        ->check(is_principal)
        ->take_last();
    command->add_option("--host", options->host, "The address of the client (default: any)")
        ->option_text("ADDRESS")
        ->take_last();
    add_repeated(*command, "--operation", options->operations,
                 "read, write, create, delete, alter, describe, alter-configs ... or all")
        ->option_text("OPERATION")
        ->check(is_operation);
    command->add_option("--topic", options->topic, "A topic; * is every topic")
        ->option_text("TOPIC")
        ->take_last();
    command->add_option("--group", options->group, "A consumer group; * is every group")
        ->option_text("GROUP")
        ->take_last();
    command->add_flag("--cluster", options->cluster, "The cluster");
    command->add_flag("--prefixed", options->prefixed,
                      "The name is a prefix: the rule holds for all names that begin with it");
    command->add_flag("--deny", options->denies,
                      "The rule denies; it overrides all rules that allow");
    return command;
  };
  add_examples(
      *add_one("add", "Adds a rule for each operation", add_acl),
      {"tarry acl add --principal User:alice --operation read --topic orders",
       "tarry acl add --principal User:alice --operation write --topic orders. --prefixed"});
  add_examples(*add_one("list", "Lists rules", list_acls),
               {"tarry acl list", "tarry acl list --topic orders --json"});
  add_examples(
      *add_one("delete", "Deletes the rules that match", delete_acls),
      {"tarry acl delete --principal User:alice --topic orders",
       "tarry acl delete --principal User:alice --operation write --topic orders. --prefixed"});
  add_examples(*group, {"tarry acl add --principal User:alice --operation read --topic orders",
                        "tarry acl list"});
}

}  // namespace tarry::cli
