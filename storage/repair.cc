#include "storage/repair.h"

#include <algorithm>
#include <charconv>

#include <fmt/core.h>

#include "storage/catalog.h"
#include "storage/database.h"
#include "storage/journal_recovery.h"
#include "storage/offset_store.h"
#include "storage/pending_dump.h"
#include "storage/producer_states.h"
#include "storage/recovery.h"
#include "storage/store_generation.h"

namespace tarry::storage {
namespace {

using Kind = RepairFinding::Kind;

// The end of the offsets that an answer gave out.
Offset end_of_answer(Offset base, std::int32_t first_sequence, std::int32_t last_sequence) {
  // All records were delayed (-n), or the numbers began again.
  if (base < 0) return 0;
  return base + std::max(last_sequence - first_sequence, 0) + 1;
}

// Advice for people who start a broker is left out.
std::string without_advice(std::string message) {
  if (const auto end = message.find("; nothing was changed"); end != message.npos)
    message.resize(end);
  return message;
}

}  // namespace

void Repair::add_database(const std::string& directory, const Error& error) {
  databases_.push_back({Kind::database, directory, without_advice(error.message), {}});
}

void Repair::take(const Operation& operation) {
  if (const auto* created = std::get_if<TopicCreated>(&operation)) {
    topics_.try_emplace(created->topic, KnownTopic{std::string(created->name), created->partitions,
                                                   created->configs});
  } else if (const auto* deleted = std::get_if<TopicDeleted>(&operation)) {
    topics_.erase(deleted->topic);
  } else if (const auto* added = std::get_if<PartitionsAdded>(&operation)) {
    if (const auto found = topics_.find(added->topic); found != topics_.end())
      found->second.partitions = std::max(found->second.partitions, added->partitions);
  } else if (const auto* set = std::get_if<ConfigsSet>(&operation)) {
    if (const auto found = topics_.find(set->topic); found != topics_.end())
      found->second.configs = set->configs;
  } else if (const auto* batches = std::get_if<LogAppended>(&operation)) {
    auto& known = appended_[batches->partition];
    const auto offsets = offsets_of(batches->batches);
    if (offsets && !known.journal_from) known.journal_from = offsets->first;
  } else if (const auto* committed = std::get_if<OffsetsCommitted>(&operation)) {
    for (const auto& offset : committed->offsets) {
      auto& known = appended_[offset.partition];
      known.seen_end = std::max(known.seen_end, offset.offset);
    }
  }
}

// False: db/meta cannot be read, and nothing is known of the topics.
Result<bool> Repair::read_meta() {
  const std::string directory = data_ + "/db/meta";
  auto meta = Database::open_to_read(directory);
  if (!meta) return add_database(directory, meta.error()), false;
  if (const auto verified = (*meta)->verify(); !verified)
    return add_database(directory, verified.error()), false;
  Catalog catalog(**meta);
  if (const auto loaded = catalog.load(); !loaded)
    return add_database(directory, loaded.error()), false;
  const auto image = catalog.image();
  for (const auto& topic : image->by_name())
    topics_.emplace(topic->id, KnownTopic{topic->name, topic->partitions, topic->configs});
  OffsetStore offsets(**meta);
  const auto read = offsets.load([](const TopicId&) { return true; },
                                 [&](const OffsetStore::StoredGroup& group) -> Result<> {
                                   take(OffsetsCommitted{group.id, group.offsets});
                                   return {};
                                 });
  if (!read) return add_database(directory, read.error()), false;
  for (const auto& topic : image->by_name()) {
    for (PartitionIndex index = 0; index < topic->partitions; ++index) {
      const auto rows = load_producer_states(**meta, {topic->id, index});
      if (!rows) return add_database(directory, rows.error()), false;
      if (rows->empty()) continue;
      auto& known = appended_[{topic->id, index}];
      for (const auto& row : *rows) {
        for (const auto& answer : row.answers) {
          known.appended_end = std::max(known.appended_end, answer.base_offset + 1);
          known.seen_end = std::max(
              known.seen_end,
              end_of_answer(answer.base_offset, answer.first_sequence, answer.last_sequence));
        }
      }
    }
  }
  const auto pending = PendingDump::open(data_ + "/db/pending");
  if (!pending) return add_database(data_ + "/db/pending", pending.error()), true;
  if (const auto newest = check_generation(**meta, (*pending)->generation(), data_ + "/db/pending");
      !newest)
    add_database(data_ + "/db/pending", newest.error());
  return true;
}

void Repair::look_at_pending() {
  const std::string directory = data_ + "/db/pending";
  const auto pending = PendingDump::open(directory);
  if (!pending) return;  // Told already.
  if (const auto verified = (*pending)->verify(); !verified)
    return add_database(directory, verified.error());
  (*pending)->for_each([](const PendingView&) { return true; },
                       [&](const Error& damage) { add_database(directory, damage); });
}

Result<> Repair::read_journals() {
  const std::string root = data_ + "/journal";
  const auto shards = journal_shards(disk_, root);
  if (!shards) return std::unexpected(shards.error());
  if (shards->empty())
    notes_.push_back(
        fmt::format("{}: there are no journals: records that only they held are lost", root));
  for (const auto shard : *shards) {
    const auto directory = fmt::format("{}/{}", root, shard);
    auto read = JournalRepair::inspect(disk_, directory, [&](Lsn, Bytes record) {
      return for_each_operation(record, [&](const Operation& operation) -> Result<> {
        take(operation);
        return {};
      });
    });
    if (!read) return std::unexpected(read.error());
    if (read->is_torn()) {
      notes_.push_back(
          fmt::format("{}: ends in a round that was never whole, which a crash leaves "
                      "and the next start cuts; nobody was answered",
                      directory));
    }
    if (!read->findings().empty()) journals_.push_back({directory, std::move(*read)});
  }
  return {};
}

// kept/TOPIC-PARTITION-OFFSET.log, in the order of offsets; the topic by name or by id.
std::vector<std::string> Repair::saved_of(const TopicPartition& partition,
                                          const std::string& name) const {
  std::vector<std::string> out;
  const auto directory = data_ + "/kept";
  const auto entries = disk_.list(directory);
  if (!entries) return out;
  for (const auto& entry : *entries) {
    for (const auto& topic : {name, partition.topic.text()}) {
      const auto prefix = fmt::format("{}-{}-", topic, partition.partition);
      if (entry.name.starts_with(prefix) && segment_base(entry.name.substr(prefix.size())))
        out.push_back(directory + "/" + entry.name);
    }
  }
  std::ranges::sort(out, {}, [](const std::string& path) {
    constexpr std::size_t digits_and_suffix = 24;
    return path.substr(path.size() - digits_and_suffix);
  });
  return out;
}

LogFacts Repair::facts_of(const TopicPartition& partition, const KnownTopic& topic) const {
  LogFacts facts;
  facts.topic = partition.topic;
  if (const auto found = topic.configs.find("index.interval.bytes"); found != topic.configs.end()) {
    const auto& text = found->second;
    std::from_chars(text.data(), text.data() + text.size(), facts.config.index_interval_bytes);
  }
  if (const auto found = appended_.find(partition); found != appended_.end()) {
    facts.journal_from = found->second.journal_from;
    facts.appended_end = found->second.appended_end;
    facts.seen_end = found->second.seen_end;
  }
  facts.saved = saved_of(partition, topic.name);
  return facts;
}

Result<> Repair::look_at_logs(const std::function<void(std::uint64_t)>& step) {
  std::vector<std::pair<std::string, TopicId>> by_name;
  for (const auto& [id, topic] : topics_) by_name.emplace_back(topic.name, id);
  std::ranges::sort(by_name);
  bool any_there = false;
  for (const auto& [name, id] : by_name) {
    const auto& topic = topics_.at(id);
    for (PartitionIndex index = 0; index < topic.partitions; ++index) {
      const auto directory = fmt::format("{}/{}-{}", logs_, name, index);
      auto facts = facts_of({id, index}, topic);
      auto looked = LogRepair::inspect(disk_, directory, facts);
      if (!looked) return std::unexpected(looked.error());
      ++logs_seen_;
      any_there = any_there || disk_.list(directory).has_value();
      batches_ += looked->batches();
      if (step) step(batches_);
      if (!looked->findings().empty())
        damaged_logs_.push_back({directory, std::move(facts), std::move(*looked)});
    }
  }
  // With log.dirs elsewhere all of them would seem to be lost.
  if (!any_there && !damaged_logs_.empty()) {
    return fail(
        Errc::not_found,
        fmt::format("{} has the directory of no partition, although there are records of {}; "
                    "if the broker has log.dirs, give it with --log-dir",
                    logs_, damaged_logs_.size()));
  }
  return {};
}

Result<> Repair::inspect(const std::function<void(std::uint64_t)>& step) {
  const auto known = read_meta();
  if (!known) return std::unexpected(known.error());
  look_at_pending();
  if (auto read = read_journals(); !read) return read;
  if (*known) return look_at_logs(step);
  notes_.push_back(
      fmt::format("{}: was not looked at, because db/meta does not say which topics "
                  "there are",
                  logs_));
  return {};
}

std::vector<RepairFinding> Repair::findings() const {
  auto out = databases_;
  for (const auto& journal : journals_)
    out.insert(out.end(), journal.repair.findings().begin(), journal.repair.findings().end());
  for (const auto& log : damaged_logs_)
    out.insert(out.end(), log.repair.findings().begin(), log.repair.findings().end());
  return out;
}

Result<std::vector<RepairFinding>> Repair::run() {
  auto left = databases_;
  for (auto& journal : journals_) {
    if (auto done = journal.repair.run(data_ + "/kept"); !done)
      return std::unexpected(done.error());
    const auto again =
        JournalRepair::inspect(disk_, journal.directory, [](Lsn, Bytes) { return Result<>(); });
    if (!again) return std::unexpected(again.error());
    left.insert(left.end(), again->findings().begin(), again->findings().end());
  }
  for (auto& log : damaged_logs_) {
    if (auto done = log.repair.run(); !done) return std::unexpected(done.error());
    const auto again = LogRepair::inspect(disk_, log.directory, log.facts);
    if (!again) return std::unexpected(again.error());
    left.insert(left.end(), again->findings().begin(), again->findings().end());
  }
  return left;
}

}  // namespace tarry::storage
