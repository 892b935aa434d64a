#include "cli/pending_changes.h"

#include <variant>

#include <fmt/core.h>

#include "cli/io/text.h"
#include "storage/journal_recovery.h"

namespace tarry::cli {

void PendingChanges::read(storage::Disk& disk, const std::string& root, DumpFindings& findings) {
  const auto shards = storage::journal_shards(disk, root);
  if (!shards) return findings.add(shards.error().message);
  for (const auto shard : *shards) {
    const auto read =
        storage::recover_journal(disk, fmt::format("{}/{}", root, shard), [&](Lsn, Bytes record) {
          return storage::for_each_operation(record,
                                             [&](const storage::Operation& operation) -> Result<> {
                                               apply(operation);
                                               return {};
                                             });
        });
    // The other shards' records are shown all the same.
    if (!read)
      findings.add(fmt::format("journal {}/{}: {}", cell(root), shard, read.error().message));
  }
}

void PendingChanges::apply(const storage::Operation& operation) {
  if (const auto* added = std::get_if<storage::PendingAdded>(&operation)) {
    const storage::PendingKey key{added->due, added->sequence};
    changes_[key] = ShownPending{key,
                                 added->first_due.value_or(added->due),
                                 added->partition,
                                 added->accepted,
                                 added->expires,
                                 std::string(added->id),
                                 added->record.size(),
                                 added->principal};
  } else if (const auto* removed = std::get_if<storage::PendingRemoved>(&operation)) {
    // An entry without a record, and not no entry: the store lags behind the journal, and may still
    // have the record.
    changes_[{removed->due, removed->sequence}] = std::nullopt;
  } else if (const auto* created = std::get_if<storage::TopicCreated>(&operation)) {
    created_.insert_or_assign(created->topic, created->name);
  } else if (const auto* deleted = std::get_if<storage::TopicDeleted>(&operation)) {
    // The operation names none of the topic's records, which the store may have under any key.
    deleted_.insert(deleted->topic);
  }
}

}  // namespace tarry::cli
