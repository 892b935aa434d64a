#include "storage/journal_recovery.h"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <limits>
#include <optional>

#include <fmt/core.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "storage/journal_format.h"

namespace tarry::storage {
namespace {

constexpr std::size_t read_ahead_bytes = 1 << 20;
constexpr std::string_view checkpoint_name = "checkpoint";
constexpr std::string_view retired_prefix = "retired-";

std::string checkpoint_line(JournalCheckpoint checkpoint) {
  const auto text = fmt::format("tarry journal checkpoint 1 lsn {:016x} incarnation {}",
                                checkpoint.lsn, checkpoint.incarnation);
  return fmt::format("{} crc {:08x}\n", text, crc32c(as_bytes(text)));
}

// A file read from front to back, in large pieces.
class Reader {
 public:
  Reader(std::unique_ptr<File> file, AlignedBuffer& buffer)
      : file_(std::move(file)), buffer_(buffer) {
    buffer_.clear();
  }

  const std::string& path() const { return file_->path(); }

  // `count` bytes at `at`, a multiple of block_bytes; fewer where the file ends.  The view holds
  // until the next call.
  Result<Bytes> view(std::uint64_t at, std::size_t count) {
    if (at < first_ || at + count > first_ + buffer_.size()) {
      // The memory grows only with what the file holds, whatever a length field claims.
      const auto size = file_->size();
      if (!size) return std::unexpected(size.error());
      const auto left = round_up_to_block(*size - std::min(*size, at));
      const auto wanted = std::min<std::uint64_t>(
          left, std::max<std::uint64_t>(round_up_to_block(count), read_ahead_bytes));
      buffer_.clear();
      buffer_.resize(static_cast<std::size_t>(wanted));
      const auto got = file_->pread(at, buffer_.span());
      if (!got) return std::unexpected(got.error());
      buffer_.resize(*got);
      first_ = at;
    }
    const auto from = static_cast<std::size_t>(at - first_);
    return buffer_.view().subspan(from, std::min(count, buffer_.size() - from));
  }

 private:
  const std::unique_ptr<File> file_;
  AlignedBuffer& buffer_;
  std::uint64_t first_ = 0;  // The buffer's position in the file.
};

class Recovery {
 public:
  Recovery(Disk& disk, const std::string& directory, const OnRecord& on_record)
      : disk_(disk), directory_(directory), on_record_(on_record) {}

  // Reads file by file, from the one that the checkpoint lies in to the first that ends the
  // journal.
  Result<RecoveredJournal> run() {
    const auto entries = disk_.list(directory_);
    if (!entries && entries.error().code == Errc::not_found) return RecoveredJournal{};
    if (!entries) return std::unexpected(entries.error());
    for (const auto& entry : *entries)
      if (const auto first = parse_journal_file_name(entry.name)) files_.push_back(*first);

    const auto checkpoint = read_checkpoint(disk_, directory_);
    if (!checkpoint) return std::unexpected(checkpoint.error());
    found_.checkpoint = checkpoint->lsn;
    found_.incarnation = checkpoint->incarnation;
    if (files_.empty()) {
      if (found_.checkpoint > 0) return missing_files();
      return found_;
    }

    // The names first: a file whose name a power cut takes away must not be acted upon.
    if (auto synced = disk_.sync_directory(directory_); !synced)
      return std::unexpected(synced.error());

    const auto behind = std::ranges::upper_bound(files_, found_.checkpoint);
    if (behind == files_.begin() && found_.checkpoint > 0) return missing_files();
    // The file that the checkpoint lies in is the last one that begins at or before it.
    file_ = behind == files_.begin() ? 0 : static_cast<std::size_t>(behind - files_.begin()) - 1;
    first_file_ = file_;
    position_ = files_[file_];

    bool more = true;
    for (; more && file_ < files_.size(); file_ += more ? 1 : 0) {
      const auto whole = read_one_file();
      if (!whole) return std::unexpected(whole.error());
      more = *whole;
    }
    found_.end = position_;
    found_.exists = header_ || found_.checkpoint > 0;
    return found_;
  }

 private:
  std::string path_of(std::size_t file) const {
    return directory_ + "/" + journal_file_name(files_[file]);
  }

  std::unexpected<Error> missing_files() const {
    return fail(Errc::corrupt,
                fmt::format("{}: the journal's files from LSN {:016x} on are missing; nothing was "
                            "changed: put them back, or restore the data directory",
                            directory_, found_.checkpoint));
  }

  std::unexpected<Error> damage(const std::string& what, const std::string& evidence) const {
    return fail(
        Errc::corrupt,
        fmt::format("{}: {} at LSN {:016x}, byte {} of the file, is damaged, although {} says that "
                    "it was synced; nothing was changed: restore the file from a copy, or move the "
                    "journal's directory away and start without the records that only it holds",
                    path_of(file_), what, position_, position_ - files_[file_], evidence));
  }

  // Reads files_[file_], in which position_ lies.  False: the journal ends in it.
  Result<bool> read_one_file() {
    auto opened = disk_.open(path_of(file_), {.direct = true});
    if (!opened) return std::unexpected(opened.error());
    // A process that was killed may have left its last writes in the page cache alone; recovery
    // acts on them, so a power cut must not take them away afterwards.
    if (auto synced = (*opened)->sync(); !synced) return std::unexpected(synced.error());
    Reader reader(std::move(*opened), buffer_);

    if (const auto begun = take_file_header(reader); !begun || !*begun) return begun;

    const auto limit =
        file_ + 1 < files_.size() ? files_[file_ + 1] : std::numeric_limits<Lsn>::max();
    while (position_ < limit) {
      const auto whole = read_one_round(reader, limit);
      if (!whole || !*whole) return whole;
    }
    return true;
  }

  // False: the file was never begun, and the journal ends before it.
  Result<bool> take_file_header(Reader& reader) {
    const auto first = files_[file_];
    const auto block = reader.view(0, block_bytes);
    if (!block) return std::unexpected(block.error());
    auto parsed = parse_file_header(*block);
    if (!parsed)
      return fail(parsed.error().code,
                  fmt::format("{}: {}", reader.path(), parsed.error().message));
    // A header with another LSN was left there by the file's earlier life.
    if (!*parsed || (*parsed)->first != first) {
      const auto clear = end_unless_synced(reader, "the file's header");
      if (!clear) return std::unexpected(clear.error());
      return false;
    }
    const auto header = **parsed;
    // A file may continue the incarnation before it, begin a new one, or be the first that is read.
    const bool goes_on = header_ && header.incarnation == header_->incarnation &&
                         header.salt == header_->salt && header.begin == header_->begin;
    const bool new_incarnation =
        header_ && header.incarnation > header_->incarnation && header.begin == first;
    const bool very_first = found_.checkpoint < first && header.begin == first;
    const bool is_start = file_ == first_file_ && (found_.checkpoint >= first || very_first);
    if (!goes_on && !new_incarnation && !(is_start && !header_))
      return fail(
          Errc::corrupt,
          fmt::format("{}: incarnation {} (begun at LSN {:016x}) cannot follow here; a file before "
                      "it is missing or belongs to another journal; nothing was changed",
                      reader.path(), header.incarnation, header.begin));
    // Rounds of an incarnation are counted from its first file on; in a later file the number that
    // comes next is not known.
    if (!goes_on) number_ = header.begin == first ? std::optional<std::uint64_t>(0) : std::nullopt;
    header_ = header;
    found_.incarnation = std::max(found_.incarnation, header.incarnation);
    position_ = first + block_bytes;
    return true;
  }

  // False: the journal ends at position_.
  Result<bool> read_one_round(Reader& reader, Lsn limit) {
    const auto at = position_ - files_[file_];
    const auto block = reader.view(at, block_bytes);
    if (!block) return std::unexpected(block.error());
    const auto round = parse_round_header(*block);
    if (!round || !is_ours(*round, position_) || round->end() > limit ||
        (number_ && round->number != *number_ + 1)) {
      // Rounds before the checkpoint are not needed any more, so damage to them does not matter.
      if (position_ < found_.checkpoint && found_.checkpoint < limit && !jumped_) {
        jumped_ = true;
        number_.reset();
        position_ = found_.checkpoint;
        return true;
      }
      return end_unless_synced(reader, "the round");
    }
    // A round before the checkpoint is kept elsewhere: its payload is not even read.
    if (round->end() > found_.checkpoint) {
      const auto bytes =
          reader.view(at, static_cast<std::size_t>(round_header_bytes + round->payload_bytes));
      if (!bytes) return std::unexpected(bytes.error());
      if (bytes->size() < round_header_bytes + round->payload_bytes ||
          crc32c(bytes->subspan(round_header_bytes)) != round->payload_crc) {
        found_.torn = true;
        return end_unless_synced(reader, "the round");
      }
      if (const auto given = give_records(*round, bytes->subspan(round_header_bytes)); !given)
        return std::unexpected(given.error());
    }
    number_ = round->number;
    position_ = round->end();
    return true;
  }

  bool is_ours(const RoundHeader& round, Lsn lsn) const {
    return round.salt == header_->salt && round.incarnation == header_->incarnation &&
           round.lsn == lsn;
  }

  Result<> give_records(const RoundHeader& round, Bytes payload) {
    ++found_.rounds;
    std::size_t at = 0;
    for (std::uint32_t i = 0; i < round.records; ++i) {
      const auto left = payload.size() - at;
      const std::size_t length = left < 4 ? 0 : load_be<std::uint32_t>(payload.data() + at);
      if (left < 4 || left - 4 < length)
        return fail(Errc::corrupt,
                    fmt::format("{}: the round at LSN {:016x} is whole, but its record {} of {} is "
                                "longer than the round; nothing was changed",
                                path_of(file_), round.lsn, i + 1, round.records));
      const Lsn lsn = round.lsn + round_header_bytes + at;
      if (lsn >= found_.checkpoint) {
        ++found_.records;
        found_.bytes += length;
        if (auto taken = on_record_(lsn, payload.subspan(at + 4, length)); !taken) return taken;
      }
      at += 4 + length;
    }
    return {};
  }

  // The bytes at position_ are broken.  Returns false (this is the journal's end) unless something
  // states that they were synced; then they are damage.
  Result<bool> end_unless_synced(Reader& reader, const char* what) {
    if (found_.checkpoint > position_) return damage(what, "the checkpoint");
    // A file is begun when all before it is synced.
    if (file_ + 1 < files_.size()) return damage(what, "the file " + path_of(file_ + 1));
    const auto first = files_[file_];
    const bool header_is_whole = position_ > first;
    // A later round that states a sync beyond this place proves that the broken bytes were durable,
    // so every block after it is looked at.
    for (auto at = position_ - first + block_bytes;; at += block_bytes) {
      const auto block = reader.view(at, block_bytes);
      if (!block) return std::unexpected(block.error());
      if (block->size() < round_header_bytes) break;
      const auto round = parse_round_header(*block);
      if (!round || round->lsn != first + at || round->synced_to <= position_) continue;
      // Without the file's header its salt is not known; the LSN tells earlier lives apart.
      const bool ours =
          header_is_whole ? is_ours(*round, round->lsn) : round->incarnation >= found_.incarnation;
      if (ours) return damage(what, fmt::format("the round at LSN {:016x}", round->lsn));
    }
    return false;
  }

  Disk& disk_;
  const std::string& directory_;
  const OnRecord& on_record_;
  std::vector<Lsn> files_;  // The first LSN of each, in order.
  std::size_t file_ = 0;    // The one that is read.
  std::size_t first_file_ = 0;
  Lsn position_ = 0;     // All before it was whole, or is before the checkpoint.
  bool jumped_ = false;  // Over something broken before the checkpoint.
  std::optional<JournalFileHeader> header_;  // The header of the file that position_ is in.
  std::optional<std::uint64_t> number_;      // The number of the round before position_.
  AlignedBuffer buffer_;
  RecoveredJournal found_;
};

}  // namespace

Result<RecoveredJournal> recover_journal(Disk& disk, const std::string& directory,
                                         const OnRecord& on_record) {
  return Recovery(disk, directory, on_record).run();
}

Result<JournalCheckpoint> read_checkpoint(Disk& disk, const std::string& directory) {
  const auto path = fmt::format("{}/{}", directory, checkpoint_name);
  const auto bytes = read_file(disk, path, 4096);
  if (!bytes && bytes.error().code == Errc::not_found) return JournalCheckpoint{};
  if (!bytes) return std::unexpected(bytes.error());
  JournalCheckpoint read;
  std::string text(as_text(*bytes));
  // sscanf accepts more than we write, so the line must also equal the one that we would write for
  // these values.
  if (std::sscanf(text.c_str(), "tarry journal checkpoint 1 lsn %16" SCNx64 " incarnation %" SCNu64,
                  &read.lsn, &read.incarnation) != 2 ||
      text != checkpoint_line(read))
    return fail(
        Errc::corrupt,
        fmt::format("{}: is not a checkpoint: \"{}\"; nothing was changed: restore the file", path,
                    printable(text, 100)));
  return read;
}

Result<> write_checkpoint(Disk& disk, const std::string& directory, JournalCheckpoint checkpoint) {
  return replace_file(disk, fmt::format("{}/{}", directory, checkpoint_name),
                      as_bytes(checkpoint_line(checkpoint)));
}

Result<std::vector<std::uint32_t>> journal_shards(Disk& disk, const std::string& root) {
  std::vector<std::uint32_t> shards;
  const auto entries = disk.list(root);
  if (!entries && entries.error().code == Errc::not_found) return shards;
  if (!entries) return std::unexpected(entries.error());
  for (const auto& [name, is_directory] : *entries) {
    std::uint32_t shard = 0;
    std::from_chars(name.data(), name.data() + name.size(), shard);
    if (is_directory && name == std::to_string(shard)) shards.push_back(shard);
  }
  std::ranges::sort(shards);
  return shards;
}

Result<> retire_journal(Disk& disk, const std::string& root, std::uint32_t shard) {
  // A leftover of that name would make the rename fail.
  if (auto removed = remove_retired_journals(disk, root); !removed) return removed;
  const auto from = fmt::format("{}/{}", root, shard);
  const auto to = fmt::format("{}/{}{}", root, retired_prefix, shard);
  // By a rename, so that no start sees half of a journal.
  if (auto renamed = disk.rename(from, to); !renamed) return renamed;
  if (auto synced = disk.sync_directory(root); !synced) return synced;
  return remove_retired_journals(disk, root);
}

Result<> remove_retired_journals(Disk& disk, const std::string& root) {
  const auto entries = disk.list(root);
  if (!entries && entries.error().code == Errc::not_found) return {};
  if (!entries) return std::unexpected(entries.error());
  for (const auto& [name, is_directory] : *entries) {
    if (!is_directory || !name.starts_with(retired_prefix)) continue;
    const auto directory = root + "/" + name;
    const auto files = disk.list(directory);
    if (!files) return std::unexpected(files.error());
    for (const auto& file : *files)
      if (auto removed = disk.remove(directory + "/" + file.name); !removed) return removed;
    if (auto removed = disk.remove_directory(directory); !removed) return removed;
  }
  return {};
}

}  // namespace tarry::storage
