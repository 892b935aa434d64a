#include "cli/index_dump.h"

#include <algorithm>
#include <memory>
#include <optional>

#include <fmt/core.h>

#include "base/bytes.h"
#include "cli/io/json.h"
#include "cli/io/output.h"
#include "records/record_batch.h"
#include "storage/index.h"
#include "storage/segment.h"

namespace tarry::cli {
namespace {

constexpr std::size_t entries_a_read = 4096;

// The facts that a dump of either kind knows.
struct IndexFile {
  std::string path;
  Offset base = 0;
  bool is_time = false;
  std::unique_ptr<storage::File> file;
  std::unique_ptr<storage::File> log;  // Null: there is none.
};

Result<IndexFile> open_index(storage::Disk& disk, const std::string& path) {
  const auto dot = path.rfind('.');
  const auto slash = path.rfind('/');
  const std::string extension = dot == std::string::npos ? "" : path.substr(dot);
  const auto stem = path.substr(0, dot);
  const auto name = slash == std::string::npos ? stem : stem.substr(slash + 1);
  // It knows the names of .log files alone.
  const auto base = storage::segment_base(name + ".log");
  if ((extension != ".index" && extension != ".timeindex") || !base) {
    return fail(Errc::invalid,
                fmt::format("{}: the name of an index is 20 digits and .index or .timeindex, as in "
                            "00000000000000000000.index",
                            cell(path)));
  }
  IndexFile index{path, *base, extension == ".timeindex", nullptr, nullptr};
  auto file = disk.open(path, {});
  if (!file) return std::unexpected(file.error());
  index.file = std::move(*file);
  // Without a log beside it the entries are compared with one another only.
  if (auto log = disk.open(stem + ".log", {})) index.log = std::move(*log);
  return index;
}

// How an entry of .index contradicts the batch at its position; empty: it does not.
std::string mismatch(const IndexFile& index, const storage::IndexEntry& entry) {
  if (!index.log) return {};
  Buffer header(records::batch_header_size);
  // The header is enough: the CRC of the batch is for the dump of the log itself.
  const auto got = index.log->pread(entry.position, header);
  if (!got) return got.error().message;
  if (*got < header.size()) return "its position is not in the log";
  // An entry names the last offset of the batch at its position.
  const auto base = load_be<Offset>(header.data());
  const auto last = base + load_be<std::int32_t>(header.data() + records::field::last_offset_delta);
  if (last == entry.offset) return {};
  return fmt::format("the batch at its position ends with offset {}", last);
}

class IndexDumper {
 public:
  IndexDumper(const IndexFile& index, bool json, Output& out)
      : index_(index), json_(json), out_(out) {}

  void offset_entry(std::uint64_t number, const std::uint8_t* bytes) {
    const auto entry = storage::index_entry_at(bytes, index_.base);
    if (json_) {
      out_.line(text_of(
          Json{{"file", index_.path}, {"offset", entry.offset}, {"position", entry.position}}));
    } else {
      out_.line(fmt::format("offset: {} position: {}", entry.offset, entry.position));
    }
    // Look-ups are by binary search, so an entry out of order hides the ones around it.
    if (before_ && (entry.offset <= before_->offset || entry.position <= before_->position))
      add(number, "does not follow the entry before it");
    if (const auto why = mismatch(index_, entry); !why.empty()) add(number, why);
    before_ = entry;
    ++findings.entries;
  }

  void time_entry(std::uint64_t number, const std::uint8_t* bytes) {
    const auto entry = storage::time_entry_at(bytes, index_.base);
    if (json_) {
      out_.line(text_of(
          Json{{"file", index_.path}, {"timestamp", entry.timestamp}, {"offset", entry.offset}}));
    } else {
      out_.line(fmt::format("timestamp: {} offset: {}", entry.timestamp, entry.offset));
    }
    if (time_before_ &&
        (entry.timestamp <= time_before_->timestamp || entry.offset < time_before_->offset))
      add(number, "does not follow the entry before it");
    time_before_ = entry;
    ++findings.entries;
  }

  DumpFindings findings;

 private:
  void add(std::uint64_t number, std::string_view what) {
    findings.add(fmt::format("{}: entry {} {}", cell(index_.path), number, what));
  }

  const IndexFile& index_;
  const bool json_;
  Output& out_;
  std::optional<storage::IndexEntry> before_;
  std::optional<storage::TimeEntry> time_before_;
};

}  // namespace

Result<DumpFindings> dump_index(storage::Disk& disk, const std::string& path, bool json,
                                Output& out) {
  const auto index = open_index(disk, path);
  if (!index) return std::unexpected(index.error());
  const auto size = index->file->size();
  if (!size) return std::unexpected(size.error());
  const auto bytes = index->is_time ? storage::time_entry_bytes : storage::index_entry_bytes;
  if (!json) out.line("Dumping " + cell(path));
  IndexDumper dumper(*index, json, out);
  Buffer read(bytes * entries_a_read);
  // The buffer holds whole entries, so none lies across two reads.
  for (std::uint64_t at = 0; at + bytes <= *size && !out.is_over(); at += read.size()) {
    const auto got = index->file->pread(at, read);
    if (!got) return std::unexpected(got.error());
    for (std::size_t i = 0; i + bytes <= *got; i += bytes) {
      const auto number = (at + i) / bytes;
      index->is_time ? dumper.time_entry(number, read.data() + i)
                     : dumper.offset_entry(number, read.data() + i);
    }
  }
  if (const auto rest = *size % bytes; rest != 0) {
    dumper.findings.add(fmt::format("{}: position {}: {} bytes at the end are not a whole entry",
                                    cell(path), *size - rest, rest));
  }
  return dumper.findings;
}

}  // namespace tarry::cli
