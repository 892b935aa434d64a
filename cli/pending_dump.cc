#include "cli/pending_dump.h"

#include <filesystem>
#include <system_error>

#include <fmt/core.h>

#include "base/time_text.h"
#include "cli/io/json.h"
#include "cli/io/output.h"
#include "storage/pending_dump.h"

namespace tarry::cli {
namespace {

void print_pending(const storage::PendingView& record, bool json, Output& out) {
  const auto handle = storage::encode_handle(record.handle());
  if (!json) {
    std::string line = fmt::format("due: {} topic: {} partition: {}", format_time(record.key.due),
                                   record.partition.topic.text(), record.partition.partition);
    if (!record.id.empty()) line += fmt::format(" id: {}", cell(record.id));
    out.line(fmt::format("{} handle: {} bytes: {}", line, handle, record.record.size()));
    return;
  }
  Json body;
  body["topic"] = record.partition.topic.text();
  body["partition"] = record.partition.partition;
  if (!record.id.empty()) put_bytes(body, "id", record.id);
  body["handle"] = handle;
  body["due_ms"] = to_ms(record.key.due);
  body["accepted_ms"] = to_ms(record.accepted);
  if (record.expires != storage::never_expires) body["expires_ms"] = to_ms(record.expires);
  body["bytes"] = record.record.size();
  out.line(text_of(body));
}

}  // namespace

Result<DumpFindings> dump_pending(const std::string& directory, bool json, Output& out) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const auto below = fs::path(directory) / "db" / "pending";
  const auto store =
      storage::PendingDump::open(fs::exists(below, ignored) ? below.string() : directory);
  if (!store) return std::unexpected(store.error());
  DumpFindings findings;
  (*store)->for_each(
      [&](const storage::PendingView& record) {
        print_pending(record, json, out);
        ++findings.entries;
        return !out.is_over();
      },
      [&](const Error& damage) { findings.add(damage.message); });
  return findings;
}

}  // namespace tarry::cli
