#include "cli/pending_dump.h"

#include <filesystem>
#include <map>
#include <system_error>

#include <fmt/core.h>

#include "base/time_text.h"
#include "cli/io/json.h"
#include "cli/io/output.h"
#include "cli/io/text.h"
#include "cli/pending_changes.h"
#include "storage/catalog.h"
#include "storage/database.h"
#include "storage/directory_lock.h"
#include "storage/file.h"
#include "storage/pending_dump.h"

namespace tarry::cli {
namespace {

ShownPending shown(const storage::PendingView& record) {
  return {record.key,     record.first,           record.partition,     record.accepted,
          record.expires, std::string(record.id), record.record.size(), record.principal};
}

using TopicNames = std::map<TopicId, std::string>;

// Without db/meta the records are shown all the same: their topics have no names then.
TopicNames topic_names(const std::string& meta, const PendingChanges& changes) {
  TopicNames names;
  std::error_code ignored;
  if (std::filesystem::exists(meta + "/CURRENT", ignored)) {
    auto database = storage::Database::open_to_read(meta);
    if (database) {
      storage::Catalog catalog(**database);
      if (catalog.load()) {
        const auto image = catalog.image();
        for (const auto& topic : image->by_name()) names.insert_or_assign(topic->id, topic->name);
      }
    }
  }
  for (const auto& [topic, name] : changes.topic_names()) names.insert_or_assign(topic, name);
  return names;
}

void print_pending(const ShownPending& record, const TopicNames& names, bool json, Output& out) {
  const auto named = names.find(record.partition.topic);
  const auto handle = storage::encode_handle({record.first_due, record.key.sequence});
  if (!json) {
    std::string line = fmt::format("due: {} topic: {}", format_time(record.key.due),
                                   record.partition.topic.text());
    if (named != names.end()) line += fmt::format(" name: {}", cell(named->second));
    line += fmt::format(" partition: {}", record.partition.partition);
    if (!record.id.empty()) line += fmt::format(" id: {}", cell(record.id));
    line += fmt::format(" handle: {} bytes: {}", handle, record.bytes);
    if (record.principal != unknown_principal)
      line += fmt::format(" principal: {}", record.principal);
    out.line(line);
    return;
  }
  Json body;
  body["topic"] = record.partition.topic.text();
  if (named != names.end()) body["name"] = named->second;
  body["partition"] = record.partition.partition;
  if (!record.id.empty()) put_bytes(body, "id", record.id);
  body["handle"] = handle;
  body["due_ms"] = to_ms(record.key.due);
  body["accepted_ms"] = to_ms(record.accepted);
  if (record.expires != storage::never_expires) body["expires_ms"] = to_ms(record.expires);
  body["bytes"] = record.bytes;
  if (record.principal != unknown_principal) body["principal"] = record.principal;
  out.line(text_of(body));
}

namespace fs = std::filesystem;

}  // namespace

Result<DumpFindings> dump_pending(const std::string& directory, bool json, Output& out) {
  std::error_code ignored;
  auto data = fs::absolute(directory, ignored).lexically_normal();
  // A path that ends with a slash.
  if (!data.has_filename()) data = data.parent_path();
  auto database = data / "db" / "pending";
  if (!fs::exists(database, ignored)) {
    database = data;
    data = data.parent_path().parent_path();
  }
  if (!fs::exists(database / "CURRENT", ignored)) {
    return fail(Errc::not_found,
                fmt::format("{} is neither a data directory nor the db/pending of one", directory));
  }
  const auto lock =
      storage::DirectoryLock::take(data.string(), storage::DirectoryLock::For::reading,
                                   "stop it first, or ask it with `tarry delayed list`");
  if (!lock) return std::unexpected(lock.error());
  const auto store = storage::PendingDump::open(database.string());
  if (!store) {
    // The advice in the message is for people who start a broker there.
    const auto& message = store.error().message;
    return fail(store.error().code, message.substr(0, message.find("; nothing was changed")));
  }
  DumpFindings findings;
  // First: they know which of the store's records are gone.
  storage::PosixDisk disk;
  PendingChanges changes;
  changes.read(disk, (data / "journal").string(), findings);
  const auto names = topic_names((data / "db" / "meta").string(), changes);
  const auto print = [&](const ShownPending& record) {
    print_pending(record, names, json, out);
    ++findings.entries;
    return !out.is_over();
  };
  (*store)->for_each(
      [&](const storage::PendingView& record) {
        return changes.covers(record.key, record.partition.topic) || print(shown(record));
      },
      [&](const Error& damage) { findings.add(damage.message); });
  if (!out.is_over()) changes.for_each_added(print);
  return findings;
}

}  // namespace tarry::cli
