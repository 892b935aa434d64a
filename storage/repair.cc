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

// A disk that fails, a full one or a later version's format says nothing about what the database
// holds, and no backup helps.
Result<> Repair::add_database(const std::string& directory, const Error& error) {
  if (error.code != Errc::corrupt && error.code != Errc::not_found) return std::unexpected(error);
  databases_.push_back({Kind::database, directory, without_advice(error.message), {}});
  return {};
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
    // The journals of several shards may have it, in any order.
    if (offsets)
      known.journal_from = std::min(known.journal_from.value_or(offsets->first), offsets->first);
  } else if (const auto* committed = std::get_if<OffsetsCommitted>(&operation)) {
    for (const auto& offset : committed->offsets) {
      auto& known = appended_[offset.partition];
      known.seen_end = std::max(known.seen_end, offset.offset);
    }
  }
}

Result<> Repair::read_meta(Database& meta) {
  if (auto verified = meta.verify(); !verified) return verified;
  Catalog catalog(meta);
  if (auto loaded = catalog.load(); !loaded) return loaded;
  const auto image = catalog.image();
  for (const auto& topic : image->by_name())
    topics_.emplace(topic->id, KnownTopic{topic->name, topic->partitions, topic->configs});
  OffsetStore offsets(meta);
  if (auto read = offsets.load([](const TopicId&) { return true; },
                               [&](const OffsetStore::StoredGroup& group) -> Result<> {
                                 take(OffsetsCommitted{group.id, group.offsets});
                                 return {};
                               });
      !read)
    return read;
  for (const auto& topic : image->by_name())
    for (PartitionIndex index = 0; index < topic->partitions; ++index)
      if (auto read = read_producers(meta, {topic->id, index}); !read) return read;
  return {};
}

// Reads which offsets producers were told.
Result<> Repair::read_producers(Database& meta, const TopicPartition& partition) {
  const auto rows = load_producer_states(meta, partition);
  if (!rows) return std::unexpected(rows.error());
  if (rows->empty()) return {};
  auto& known = appended_[partition];
  for (const auto& row : *rows) {
    for (const auto& answer : row.answers) {
      known.appended_end = std::max(known.appended_end, answer.base_offset + 1);
      known.seen_end =
          std::max(known.seen_end,
                   end_of_answer(answer.base_offset, answer.first_sequence, answer.last_sequence));
    }
  }
  return {};
}

Result<> Repair::read_pending(Database* meta) {
  const std::string directory = data_ + "/db/pending";
  const auto pending = PendingDump::open(directory);
  if (!pending) return add_database(directory, pending.error());
  const auto newest =
      meta == nullptr ? Result<>() : check_generation(*meta, (*pending)->generation(), directory);
  if (!newest) {
    if (auto added = add_database(directory, newest.error()); !added) return added;
  }
  if (const auto verified = (*pending)->verify(); !verified)
    return add_database(directory, verified.error());
  Result<> read;
  (*pending)->for_each([](const PendingView&) { return true; },
                       [&](const Error& damage) {
                         if (auto added = add_database(directory, damage); !added && read)
                           read = std::move(added);
                       });
  return read;
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
          fmt::format("{}: ends in an incomplete round, as a crash leaves it; nothing in it was "
                      "acknowledged, and the next start cuts it off",
                      directory));
    }
    if (!read->findings().empty()) journals_.push_back({directory, std::move(*read)});
  }
  return {};
}

// kept/TOPIC.ID-PARTITION-OFFSET.log, in the order of offsets; by the id, because the file may be
// of a topic of the same name that was deleted.
Result<std::vector<std::string>> Repair::saved_of(const TopicPartition& partition) const {
  std::vector<std::string> out;
  const auto directory = data_ + "/kept";
  const auto entries = disk_.list(directory);
  if (!entries && entries.error().code == Errc::not_found) return out;
  if (!entries) return std::unexpected(entries.error());
  constexpr std::size_t digits_and_suffix = 24;
  const auto ending = fmt::format("{}-{}-", partition.topic.text(), partition.partition);
  for (const auto& entry : *entries) {
    if (entry.name.size() < digits_and_suffix) continue;
    const auto front = entry.name.size() - digits_and_suffix;
    if (segment_base(std::string_view(entry.name).substr(front)) &&
        std::string_view(entry.name).substr(0, front).ends_with(ending))
      out.push_back(directory + "/" + entry.name);
  }
  std::ranges::sort(out, {}, [](const std::string& path) {
    return path.substr(path.size() - digits_and_suffix);
  });
  return out;
}

Result<LogFacts> Repair::facts_of(const TopicPartition& partition, const KnownTopic& topic) const {
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
  auto saved = saved_of(partition);
  if (!saved) return std::unexpected(saved.error());
  facts.saved = std::move(*saved);
  facts.name_of = [this](const TopicId& id) {
    const auto found = topics_.find(id);
    return found == topics_.end() ? std::string() : found->second.name;
  };
  return facts;
}

Result<> Repair::look_at_logs(const LogRepair::OnBatches& step) {
  std::vector<std::pair<std::string, TopicId>> by_name;
  for (const auto& [id, topic] : topics_) by_name.emplace_back(topic.name, id);
  std::ranges::sort(by_name);
  bool any_there = false;
  for (const auto& [name, id] : by_name) {
    const auto& topic = topics_.at(id);
    for (PartitionIndex index = 0; index < topic.partitions; ++index) {
      const auto directory = fmt::format("{}/{}-{}", logs_, name, index);
      auto facts = facts_of({id, index}, topic);
      if (!facts) return std::unexpected(facts.error());
      const auto more = [&](std::uint64_t batches) {
        if (step) step(batches_ + batches);
      };
      auto looked = LogRepair::inspect(disk_, directory, *facts, more);
      if (!looked) return std::unexpected(looked.error());
      ++logs_seen_;
      any_there = any_there || disk_.list(directory).has_value();
      batches_ += looked->batches();
      more(0);
      if (!looked->findings().empty())
        damaged_logs_.push_back({directory, std::move(*facts), std::move(*looked)});
    }
  }
  // With log.dirs elsewhere all of them would seem to be lost.
  if (!any_there && !damaged_logs_.empty()) {
    return fail(Errc::not_found,
                fmt::format("{} contains no partition directories, although {} of them should have "
                            "records; if the broker has log.dirs, give it with --log-dir",
                            logs_, damaged_logs_.size()));
  }
  return {};
}

Result<> Repair::inspect(const LogRepair::OnBatches& step) {
  const std::string directory = data_ + "/db/meta";
  auto meta = Database::open_to_read(directory);
  const auto known = meta ? read_meta(**meta) : Result<>(std::unexpected(meta.error()));
  if (!known) {
    if (auto added = add_database(directory, known.error()); !added) return added;
  }
  if (auto read = read_pending(known ? meta->get() : nullptr); !read) return read;
  if (auto read = read_journals(); !read) return read;
  if (!known) {
    notes_.push_back(
        fmt::format("{}: was not checked, because db/meta does not say which topics exist", logs_));
    return {};
  }
  // The end of a log that such a journal would replace looks like damage.
  const auto is_whole = [](const DamagedJournal& journal) {
    return std::ranges::all_of(journal.repair.findings(), &RepairFinding::can_repair);
  };
  if (!std::ranges::all_of(journals_, is_whole)) {
    notes_.push_back(fmt::format(
        "{}: was not checked, because a journal that cannot be repaired may have its end", logs_));
    return {};
  }
  return look_at_logs(step);
}

std::vector<RepairFinding> Repair::findings() const {
  auto out = databases_;
  for (const auto& journal : journals_)
    out.insert(out.end(), journal.repair.findings().begin(), journal.repair.findings().end());
  for (const auto& log : damaged_logs_)
    out.insert(out.end(), log.repair.findings().begin(), log.repair.findings().end());
  return out;
}

Result<std::vector<RepairFinding>> Repair::run(const LogRepair::OnBatches& step) {
  auto left = databases_;
  std::uint64_t batches = 0;
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
    const auto again = LogRepair::inspect(disk_, log.directory, log.facts, [&](std::uint64_t more) {
      if (step) step(batches + more);
    });
    if (!again) return std::unexpected(again.error());
    batches += again->batches();
    left.insert(left.end(), again->findings().begin(), again->findings().end());
  }
  return left;
}

}  // namespace tarry::storage
