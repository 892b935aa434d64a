#pragma once

// PendingChanges: what the journals of a data directory say about pending records since the last
// checkpoint, which its db/pending does not know yet.
//
//   journal/0, journal/1, ...  --read()-->  due, sequence -> added (shown), or removed
//                                           topics that were created or deleted
//
// A record that covers() is true for is printed as added() has it, or not at all; every other one
// as the store has it.  Nothing is changed, and no broker may have the directory open.

#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/ids.h"
#include "cli/dump_findings.h"
#include "storage/file.h"
#include "storage/journal_record.h"
#include "storage/pending.h"

namespace tarry::cli {

// A pending record without its contents.
struct ShownPending {
  storage::PendingKey key;
  WallTime first_due;
  TopicPartition partition;
  WallTime accepted;
  WallTime expires = storage::never_expires;
  std::string id;  // Empty: none.
  std::size_t bytes = 0;
  PrincipalId principal = unknown_principal;
};

class PendingChanges {
 public:
  // `root` is the data directory's journal/.  A journal that cannot be read is a finding; what
  // comes before the damage counts.
  void read(storage::Disk& disk, const std::string& root, DumpFindings& findings);

  bool covers(const storage::PendingKey& key, const TopicId& topic) const {
    return changes_.contains(key) || deleted_.contains(topic);
  }

  // The names of topics that the journals have created.
  const std::map<TopicId, std::string>& topic_names() const { return created_; }

  // By due time; `take` returns whether to go on.
  template <typename Take>
  void for_each_added(Take take) const {
    for (const auto& [key, added] : changes_)
      if (added && !deleted_.contains(added->partition.topic) && !take(*added)) return;
  }

 private:
  void apply(const storage::Operation& operation);

  // Empty: removed.
  std::map<storage::PendingKey, std::optional<ShownPending>> changes_;
  std::map<TopicId, std::string> created_;
  std::set<TopicId> deleted_;
};

}  // namespace tarry::cli
