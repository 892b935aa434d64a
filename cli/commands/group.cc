#include "cli/commands/group.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/log.h"
#include "cli/command_tree.h"
#include "cli/io/exit_status.h"
#include "cli/io/json.h"
#include "cli/io/number_text.h"
#include "cli/io/output.h"
#include "cli/io/table.h"
#include "cli/io/text.h"
#include "cli/kafka/admin.h"
#include "cli/offset_word.h"
#include "cli/options.h"

namespace tarry::cli {
namespace {

struct GroupOptions {
  BrokerOptions broker;
  std::string name;
  std::string topic;
  std::string to;
  std::optional<PartitionIndex> partition;
  bool dry_run = false;
  bool create = false;
};

int list(const GroupOptions& options) {
  auto admin = KafkaAdmin::open(options.broker.kafka());
  if (!admin) return failure(admin.error().message);
  const auto groups = admin->groups();
  if (!groups) return failure(groups.error().message);
  Output out;
  Table table({{"GROUP"}, {"STATE"}});
  for (const auto& group : *groups) {
    if (options.broker.json) {
      out.line(text_of(Json{{"group", group.name}, {"state", group.state}}));
    } else {
      table.row({cell(group.name), group.state});
    }
  }
  table.print(out);
  return out.end(done);
}

// A partition that the group reads or has committed.
struct Row {
  std::string topic;
  PartitionIndex partition = 0;
  std::optional<Offset> offset;
  std::optional<Offset> end;            // None: the topic is gone.
  const GroupMember* member = nullptr;  // The member that reads it.

  std::optional<Offset> lag() const {
    if (!offset || !end) return std::nullopt;
    // A topic that was deleted and created again ends before an offset that was committed for the
    // old one.
    return std::max<Offset>(*end - *offset, 0);
  }
};

Result<std::vector<Row>> rows_of(KafkaAdmin& admin, const GroupInfo& group) {
  // Puts together what is committed and what the members read, then asks for the ends topic by
  // topic.
  const auto committed = admin.committed(group.name);
  if (!committed) return std::unexpected(committed.error());
  // The map's order is that of the output.
  std::map<std::pair<std::string, PartitionIndex>, Row> rows;
  const auto row = [&](const std::string& topic, PartitionIndex partition) -> Row& {
    Row& found = rows[{topic, partition}];
    found.topic = topic;
    found.partition = partition;
    return found;
  };
  for (const auto& one : *committed) row(one.topic, one.partition).offset = one.offset;
  for (const auto& member : group.members)
    for (const auto& [topic, partition] : member.assigned) row(topic, partition).member = &member;

  std::map<std::string, std::vector<PartitionIndex>> topics;
  for (const auto& [key, one] : rows) topics[one.topic].push_back(one.partition);
  // One question for each topic: if one of them is gone, the others are answered all the same.
  for (const auto& [topic, partitions] : topics) {
    const auto ends = admin.offsets(topic, partitions, log_end);
    // Commits stay when their topic is deleted.
    if (!ends && ends.error().code == Errc::not_found) continue;
    if (!ends) return std::unexpected(ends.error());
    for (const auto& [partition, end] : *ends) row(topic, partition).end = end;
  }
  std::vector<Row> out;
  for (auto& [key, one] : rows) out.push_back(std::move(one));
  return out;
}

Json number_or_null(std::optional<Offset> number) {
  return number ? Json(*number) : Json(nullptr);
}
std::string number_or_dash(std::optional<Offset> number) {
  return number ? std::to_string(*number) : "-";
}

void print_json(const GroupInfo& group, const std::vector<Row>& rows, Output& out) {
  Json json;
  json["group"] = group.name;
  json["state"] = group.state;
  json["assignor"] = group.assignor;
  json["coordinator"] = group.coordinator;
  json["members"] = Json::array();
  for (const auto& member : group.members) {
    json["members"].push_back(
        Json{{"member", member.id},
             {"client", member.client},
             {"host", member.host},
             {"instance", member.instance ? Json(*member.instance) : Json(nullptr)},
             {"partitions", member.assigned.size()}});
  }
  json["offsets"] = Json::array();
  for (const auto& row : rows) {
    json["offsets"].push_back(Json{{"topic", row.topic},
                                   {"partition", row.partition},
                                   {"offset", number_or_null(row.offset)},
                                   {"end", number_or_null(row.end)},
                                   {"lag", number_or_null(row.lag())},
                                   {"member", row.member ? Json(row.member->id) : Json(nullptr)}});
  }
  out.line(text_of(json));
}

int describe(const GroupOptions& options) {
  auto admin = KafkaAdmin::open(options.broker.kafka());
  if (!admin) return failure(admin.error().message);
  const auto group = admin->group(options.name);
  if (!group) return failure(group.error().message);
  // Kafka answers so for a group that it does not know, and without an error.
  if (group->state == "Dead")
    return failure(fmt::format("{}: there is no such group", cell(options.name)));
  const auto rows = rows_of(*admin, *group);
  if (!rows) return failure(rows.error().message);

  Output out;
  if (options.broker.json) {
    print_json(*group, *rows, out);
    return out.end(done);
  }
  Table head({{"GROUP"}, {"STATE"}, {"ASSIGNOR"}, {"MEMBERS", true}});
  head.row({cell(group->name), group->state, group->assignor.empty() ? "-" : cell(group->assignor),
            std::to_string(group->members.size())});
  head.print(out);
  out.line("");
  Table table({{"TOPIC"},
               {"PARTITION", true},
               {"OFFSET", true},
               {"END", true},
               {"LAG", true},
               {"MEMBER"},
               {"HOST"},
               {"CLIENT"}});
  for (const auto& row : *rows) {
    table.row({cell(row.topic), std::to_string(row.partition), number_or_dash(row.offset),
               number_or_dash(row.end), number_or_dash(row.lag()),
               row.member ? cell(row.member->id) : "-", row.member ? cell(row.member->host) : "-",
               row.member ? cell(row.member->client) : "-"});
  }
  // Members without partitions come last.
  for (const auto& member : group->members) {
    if (!member.assigned.empty()) continue;
    table.row({"-", "-", "-", "-", "-", cell(member.id), cell(member.host), cell(member.client)});
  }
  table.print(out);
  return out.end(done);
}

// The offset to commit for each partition.  Refuses an offset that a partition does not hold.
Result<PartitionOffsets> targets(KafkaAdmin& admin, const GroupOptions& options,
                                 const OffsetWord& to) {
  const auto info = admin.topic(options.topic);
  if (!info) return std::unexpected(info.error());
  std::vector<PartitionIndex> partitions;
  for (const auto& one : info->partitions)
    if (!options.partition || one.partition == *options.partition)
      partitions.push_back(one.partition);
  if (partitions.empty()) {
    return fail(Errc::not_found,
                fmt::format("{}: there is no partition {}; the topic has {}", cell(options.topic),
                            options.partition.value_or(0),
                            counted(info->partitions.size(), "partition", "partitions")));
  }
  if (to.time) return admin.offsets(options.topic, partitions, to_ms(*to.time));
  if (to.offset < 0) return admin.offsets(options.topic, partitions, to.offset);
  // Kafka commits any offset.  A consumer that later finds no record at it begins where its
  // auto.offset.reset says, so the bounds are checked here.
  const auto starts = admin.offsets(options.topic, partitions, log_start);
  if (!starts) return starts;
  const auto ends = admin.offsets(options.topic, partitions, log_end);
  if (!ends) return ends;
  PartitionOffsets offsets;
  for (const auto& [partition, start] : *starts) {
    const auto end = std::ranges::find(*ends, partition, &PartitionOffsets::value_type::first);
    // A partition may have been added between the two questions.
    if (end == ends->end()) continue;
    if (to.offset < start || to.offset > end->second) {
      return fail(Errc::invalid,
                  fmt::format("{} partition {} does not hold offset {}: it begins at {} and ends "
                              "before {}",
                              cell(options.topic), partition, to.offset, start, end->second));
    }
    offsets.emplace_back(partition, to.offset);
  }
  return offsets;
}

int reset(const GroupOptions& options) {
  const auto to = parse_offset_word(options.to);
  if (!to) return usage_error(fmt::format("--to: {}", to.error().message));
  auto admin = KafkaAdmin::open(options.broker.kafka());
  if (!admin) return failure(admin.error().message);
  const auto group = admin->group(options.name);
  if (!group) return failure(group.error().message);
  // The broker would refuse the commit as well; this is known before anything else is asked.
  if (group->is_active()) {
    return failure(fmt::format("{}: the group is active ({}, {}); stop its consumers first",
                               cell(options.name), group->state,
                               counted(group->members.size(), "member", "members")));
  }
  const auto committed = admin->committed(options.name);
  if (!committed) return failure(committed.error().message);
  auto offsets = targets(*admin, options, *to);
  if (!offsets) return failure(offsets.error().message);
  // Kafka knows no such state as "not there": a commit would make the group by a slip of the name.
  if (group->state == "Dead" && committed->empty() && !options.create) {
    return failure(
        fmt::format("{}: there is no such group; --create creates it, for consumers that will "
                    "begin at this offset",
                    cell(options.name)));
  }
  // People look for a partition by its number.
  std::ranges::sort(*offsets);
  if (!options.dry_run) {
    const auto changed = admin->commit(options.name, options.topic, *offsets);
    if (!changed) return failure(changed.error().message);
  }

  Output out;
  Table table({{"TOPIC"}, {"PARTITION", true}, {"FROM", true}, {"TO", true}});
  for (const auto& [partition, offset] : *offsets) {
    std::optional<Offset> before;
    for (const auto& one : *committed)
      if (one.topic == options.topic && one.partition == partition) before = one.offset;
    if (options.broker.json) {
      out.line(text_of(Json{{"group", options.name},
                            {"topic", options.topic},
                            {"partition", partition},
                            {"from", number_or_null(before)},
                            {"to", offset},
                            {"result", options.dry_run ? "not changed" : "reset"}}));
    } else {
      table.row({cell(options.topic), std::to_string(partition), number_or_dash(before),
                 std::to_string(offset)});
    }
  }
  table.print(out);
  const int status = out.end(done);
  if (options.dry_run && !options.broker.json) complain("--dry-run: nothing was changed");
  return status;
}

int remove(const GroupOptions& options) {
  auto admin = KafkaAdmin::open(options.broker.kafka());
  if (!admin) return failure(admin.error().message);
  const auto removed = admin->remove_group(options.name);
  if (!removed) return failure(removed.error().message);
  Output out;
  if (options.broker.json) {
    out.line(text_of(Json{{"group", options.name}, {"result", "deleted"}}));
  } else {
    out.line(fmt::format("{} deleted", cell(options.name)));
  }
  return out.end(done);
}

}  // namespace

void add_group_commands(CLI::App& program, Chosen& chosen) {
  auto* group = add_group(program, chosen, "group", "Shows, resets and deletes consumer groups");
  const auto add = [&](const char* name, const char* help, int (*run)(const GroupOptions&)) {
    return add_broker_command<GroupOptions>(*group, chosen, name, help, run);
  };
  const auto add_name = [](CLI::App& command, GroupOptions& options) {
    command.add_option("GROUP", options.name, "The group")->required()->check(is_group);
  };

  add_examples(*add("list", "Lists all groups", list).first,
               {"tarry group list", "tarry group list --json"});
  {
    const auto [command, options] =
        add("describe", "Shows the members, committed offsets and lag of a group", describe);
    add_name(*command, *options);
    add_examples(*command, {"tarry group describe billing", "tarry group describe billing --json"});
  }
  {
    const auto [command, options] = add(
        "reset", "Moves the committed offsets of a topic; stop the group's consumers first", reset);
    add_name(*command, *options);
    command->add_option("TOPIC", options->topic, "The topic")->required()->check(is_topic);
    command->add_option("--to", options->to, "The offset at which the group continues")
        ->option_text("start|end|OFFSET|@TIME")
        ->required()
        ->take_last();
    command->add_option("-p,--partition", options->partition, "Only this partition (default: all)")
        ->option_text("PARTITION")
        ->check(is_partition)
        ->take_last();
    command->add_flag("--create", options->create,
                      "Creates the group if it does not exist (default: an error)");
    command->add_flag("--dry-run", options->dry_run, "Shows the changes without making them");
    add_examples(*command, {"tarry group reset billing orders --to start --dry-run",
                            "tarry group reset billing orders --to @2026-11-21T10:00:00Z -p 2"});
  }
  {
    const auto [command, options] =
        add("delete", "Deletes a group and its committed offsets", remove);
    add_name(*command, *options);
    add_examples(*command, {"tarry group delete billing", "tarry group delete billing --json"});
  }
  add_examples(*group, {"tarry group list", "tarry group describe billing"});
}

}  // namespace tarry::cli
