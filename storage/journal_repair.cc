#include "storage/journal_repair.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/core.h>

#include "base/crc32c.h"
#include "storage/damaged_file.h"
#include "storage/hole_batch.h"
#include "storage/journal_format.h"
#include "storage/journal_record.h"
#include "storage/recovery.h"

namespace tarry::storage {
namespace {

// Offsets that a later round needs and a broken one had.
struct LostOffsets {
  TopicPartition partition;
  Offset from = 0, until = 0;
};

// The payload of a round with one record, which covers the offsets; empty without any.
Buffer payload_over(const std::vector<LostOffsets>& lost) {
  if (lost.empty()) return {};
  std::vector<Buffer> batches;
  for (const auto& each : lost) batches.push_back(hole_batch(each.from, each.until));
  RecordBuilder record;
  for (std::size_t i = 0; i < lost.size(); ++i)
    record.add(LogAppended{lost[i].partition, WallTime{}, batches[i]});
  Buffer payload;
  append_be(payload, static_cast<std::uint32_t>(record.size()));
  for (const Bytes piece : record.pieces()) append_bytes(payload, piece);
  return payload;
}

struct WholeRound {
  std::size_t file = 0;
  RoundHeader header;
};

// A broken stretch in one file.
struct Stretch {
  std::size_t file = 0;
  Lsn from = 0, until = 0;
  std::size_t next_round = 0;  // In the list of whole rounds.
  std::uint64_t salt = 0, incarnation = 0;
  std::optional<std::uint64_t> number;       // The number of the round before it.
  std::optional<std::uint64_t> next_number;  // That of the round behind it, in the same file.
  bool is_damage = false;                    // Something says that it was synced.
  std::vector<LostOffsets> lost = {};
};

}  // namespace

class JournalReading {
 public:
  JournalReading(Disk& disk, const std::string& directory) : disk_(disk), directory_(directory) {
    out_.disk_ = &disk;
  }

  Result<JournalRepair> run(const OnRecord& on_record) {
    // The judge of what is damage.
    std::uint64_t given = 0;
    const auto whole = recover_journal(disk_, directory_, [&](Lsn lsn, Bytes record) {
      ++given;
      return on_record(lsn, record);
    });
    if (whole) {
      out_.records_ = given;
      out_.torn_ = whole->torn;
      return std::move(out_);
    }
    if (whole.error().code != Errc::corrupt) return std::unexpected(whole.error());
    const auto found = find_stretches();
    if (!found) return std::unexpected(found.error());
    // The header of a file may be all that is broken, and has its patch by now.
    if (!*found ||
        (out_.patches_.empty() && std::ranges::none_of(stretches_, &Stretch::is_damage))) {
      out_.records_ = given;
      return give_up(missing_.empty() ? whole.error().message : missing_);
    }
    // Records that are given already are skipped: they were the same.
    if (auto read = give_records(on_record, given); !read) return std::unexpected(read.error());
    for (std::size_t i = 0; i < stretches_.size(); ++i)
      if (!add_patch(stretches_[i])) return give_up(whole.error().message);
    return std::move(out_);
  }

 private:
  std::string path_of(std::size_t file) const {
    return directory_ + "/" + journal_file_name(files_[file]);
  }

  Result<JournalRepair> give_up(const std::string& why) {
    out_.findings_.clear();
    out_.patches_.clear();
    RepairFinding finding{RepairFinding::Kind::journal, directory_, why, {}};
    if (const auto end = finding.problem.find("; nothing was changed"); end != std::string::npos)
      finding.problem.resize(end);
    out_.findings_.push_back(std::move(finding));
    return std::move(out_);
  }

  // False: what is there cannot be understood.
  Result<bool> find_stretches() {
    const auto checkpoint = read_checkpoint(disk_, directory_);
    if (!checkpoint && checkpoint.error().code == Errc::corrupt) return false;
    if (!checkpoint) return std::unexpected(checkpoint.error());
    checkpoint_ = checkpoint->lsn;
    const auto entries = disk_.list(directory_);
    if (!entries) return std::unexpected(entries.error());
    for (const auto& entry : *entries)
      if (const auto first = parse_journal_file_name(entry.name)) files_.push_back(*first);
    std::ranges::sort(files_);
    const auto behind = std::ranges::upper_bound(files_, checkpoint_);
    if (behind == files_.begin() && checkpoint_ > 0) return false;
    const auto begin = behind == files_.begin() ? 0 : behind - files_.begin() - 1;
    for (auto file = static_cast<std::size_t>(begin); file < files_.size(); ++file) {
      const auto read = read_file_rounds(file);
      if (!read || !*read) return read;
    }
    for (auto& stretch : stretches_) {
      stretch.is_damage =
          stretch.is_damage || stretch.file + 1 < files_.size() || stretch.from < checkpoint_;
      for (std::size_t i = stretch.next_round; i < rounds_.size() && !stretch.is_damage; ++i)
        stretch.is_damage = rounds_[i].header.synced_to > stretch.from;
    }
    // Recovery cuts the journal at the first that nobody has synced.
    const auto cut = std::ranges::find(stretches_, false, &Stretch::is_damage);
    if (cut != stretches_.end()) {
      rounds_.resize(std::min(rounds_.size(), cut->next_round));
      stretches_.erase(cut, stretches_.end());
    }
    return true;
  }

  Result<Buffer> read(std::uint64_t at, std::size_t bytes) const {
    Buffer out(bytes);
    if (bytes == 0) return out;  // An empty round has no payload.
    const auto got = opened_->pread(at, out);
    if (!got) return std::unexpected(got.error());
    out.resize(*got);
    return out;
  }

  // The header at `at` of a round of this incarnation, if there is one.
  Result<std::optional<RoundHeader>> header_at(std::size_t file, std::uint64_t at,
                                               Lsn limit) const {
    const auto block = read(at, round_header_bytes);
    if (!block) return std::unexpected(block.error());
    const auto round = parse_round_header(*block);
    if (!round || round->lsn != files_[file] + at || round->end() > limit) return std::nullopt;
    if (header_ && (round->salt != header_->salt || round->incarnation != header_->incarnation))
      return std::nullopt;
    return round;
  }

  // Whether its records are whole; nobody needs those before the checkpoint.
  Result<bool> is_whole(const RoundHeader& round, std::uint64_t at) const {
    if (round.end() <= checkpoint_) return true;
    const auto payload = read(at + round_header_bytes, round.payload_bytes);
    if (!payload) return std::unexpected(payload.error());
    return payload->size() == round.payload_bytes && crc32c(Bytes(*payload)) == round.payload_crc;
  }

  Result<bool> read_file_rounds(std::size_t file) {
    auto opened = disk_.open(path_of(file), {});
    if (!opened) return std::unexpected(opened.error());
    opened_ = std::move(*opened);
    const auto size = opened_->size();
    if (!size) return std::unexpected(size.error());
    const Lsn limit = file + 1 < files_.size() ? files_[file + 1] : std::numeric_limits<Lsn>::max();
    const auto block = read(0, block_bytes);
    if (!block) return std::unexpected(block.error());
    const auto header = parse_file_header(*block);
    if (!header) return false;
    const auto before = std::exchange(header_, std::nullopt);
    if (*header && (*header)->first == files_[file]) {
      header_ = **header;
    } else {
      const auto made = header_of_rounds(file, *size, limit, before);
      if (!made) return std::unexpected(made.error());
      if (!*made) return file + 1 == files_.size();  // It was never begun.
    }
    // The numbers of an incarnation go on from file to file.
    if (!before || before->incarnation != header_->incarnation) number_.reset();
    return walk_rounds(file, *size, limit);
  }

  // Makes a header that was lost from the rounds behind it.
  Result<bool> header_of_rounds(std::size_t file, std::uint64_t size, Lsn limit,
                                const std::optional<JournalFileHeader>& before) {
    for (std::uint64_t at = block_bytes; at < size; at += block_bytes) {
      const auto round = header_at(file, at, limit);
      if (!round) return std::unexpected(round.error());
      if (!*round) continue;
      JournalFileHeader header;
      header.shard = before ? before->shard : shard_of_directory();
      header.incarnation = (*round)->incarnation;
      header.salt = (*round)->salt;
      header.first = files_[file];
      const bool goes_on = before && before->salt == header.salt;
      if (!goes_on && ((*round)->number != 1 || at != block_bytes)) return false;
      header.begin = goes_on ? before->begin : header.first;
      header_ = header;
      JournalRepair::Patch patch{path_of(file), 0, block_bytes, Buffer(block_bytes)};
      header.write(patch.replacement);
      out_.patches_.push_back(std::move(patch));
      out_.findings_.push_back({RepairFinding::Kind::journal, path_of(file),
                                "the file's header is broken",
                                "the header is rebuilt from the rounds after it", 0});
      return true;
    }
    return false;
  }

  std::uint32_t shard_of_directory() const {
    return static_cast<std::uint32_t>(
        std::strtoul(directory_.substr(directory_.rfind('/') + 1).c_str(), nullptr, 10));
  }

  // Takes one whole round after the other; what lies between two is a stretch.
  Result<bool> walk_rounds(std::size_t file, std::uint64_t size, Lsn limit) {
    const Lsn first = files_[file];
    std::optional<Lsn> broken;
    std::uint64_t at = block_bytes;
    while (at < size && first + at < limit) {
      const auto round = header_at(file, at, limit);
      if (!round) return std::unexpected(round.error());
      const auto whole = *round ? is_whole(**round, at) : Result<bool>(false);
      if (!whole) return std::unexpected(whole.error());
      if (*whole) {
        if (broken) add_stretch(file, *std::exchange(broken, std::nullopt), **round);
        rounds_.push_back({file, **round});
        number_ = (*round)->number;
        at = (*round)->end() - first;
        continue;
      }
      if (first + at < checkpoint_ && checkpoint_ < limit) {  // Not needed any more.
        at = checkpoint_ - first;
        number_.reset();
        continue;
      }
      // The round is broken itself, but its header says that what lies before it was synced.
      if (*round && broken && (*round)->synced_to > *broken) {
        add_stretch(file, *broken, **round);
        stretches_.back().is_damage = true;
        number_ = (*round)->number - 1;
        broken = first + at;
      }
      if (!broken) broken = first + at;
      at += block_bytes;
    }
    if (limit == std::numeric_limits<Lsn>::max()) return true;  // Behind its end.
    // The bytes that a file is short of may be in another one, which is elsewhere.
    if (first + size < limit) {
      missing_ = fmt::format(
          "{}: ends at LSN {:016x}, but the next file begins at {:016x}: it is too short, or files "
          "that follow it are missing",
          path_of(file), first + size, limit);
      return false;
    }
    if (broken) {
      stretches_.push_back({file, *broken, limit, rounds_.size(), header_->salt,
                            header_->incarnation, number_, std::nullopt});
      number_.reset();  // Counted by what follows.
    }
    return true;
  }

  void add_stretch(std::size_t file, Lsn from, const RoundHeader& next) {
    stretches_.push_back({file, from, next.lsn, rounds_.size(), header_->salt, header_->incarnation,
                          number_, next.number});
  }

  // Gives the records of whole rounds to `on_record`, but for the first `given`, and finds out
  // which offsets of logs lie in the stretches.
  Result<> give_records(const OnRecord& on_record, std::uint64_t given) {
    std::unordered_map<TopicPartition, Offset> ends;
    std::size_t stretch = 0;  // The number of those that lie before the round.
    std::size_t open_file = files_.size();
    for (std::size_t i = 0; i < rounds_.size(); ++i) {
      while (stretch < stretches_.size() && stretches_[stretch].next_round <= i) ++stretch;
      const auto& [file, header] = rounds_[i];
      if (header.end() <= checkpoint_) continue;
      if (file != open_file) {
        auto opened = disk_.open(path_of(file), {});
        if (!opened) return std::unexpected(opened.error());
        opened_ = std::move(*opened);
        open_file = file;
      }
      const auto payload =
          read(header.lsn - files_[file] + round_header_bytes, header.payload_bytes);
      if (!payload) return std::unexpected(payload.error());
      std::size_t at = 0;
      for (std::uint32_t record = 0; record < header.records; ++record) {
        if (payload->size() - at < 4) break;
        const std::size_t length = load_be<std::uint32_t>(payload->data() + at);
        if (payload->size() - at - 4 < length) break;
        const Lsn lsn = header.lsn + round_header_bytes + at;
        const Bytes bytes = Bytes(*payload).subspan(at + 4, length);
        at += 4 + length;
        if (lsn < checkpoint_) continue;
        note_ends(bytes, stretch, ends);
        if (out_.records_++ < given) continue;
        if (auto taken = on_record(lsn, bytes); !taken) return taken;
      }
    }
    return {};
  }

  void note_ends(Bytes record, std::size_t stretch,
                 std::unordered_map<TopicPartition, Offset>& ends) {
    const auto noted = for_each_operation(record, [&](const Operation& operation) -> Result<> {
      const auto* appended = std::get_if<LogAppended>(&operation);
      if (appended == nullptr) return {};
      const auto offsets = offsets_of(appended->batches);
      if (!offsets) return {};
      const auto [known, is_new] = ends.try_emplace(appended->partition, offsets->first);
      if (known->second < offsets->first && stretch > 0 &&
          offsets->first - known->second <= max_hole_offsets) {
        stretches_[stretch - 1].lost.push_back(
            {appended->partition, known->second, offsets->first});
      }
      known->second = offsets->second;
      return {};
    });
    static_cast<void>(noted);  // Recovery tells of an operation that it does not know.
  }

  // The rounds that replace a stretch; false: they do not fit.
  bool add_patch(const Stretch& stretch) {
    // As many rounds are missing as numbers.
    auto next = stretch.next_number;
    if (!next && stretch.next_round < rounds_.size()) {
      const auto& behind = rounds_[stretch.next_round].header;
      if (behind.incarnation == stretch.incarnation) next = behind.number;
    }
    std::uint64_t number = stretch.number.value_or(0) + 1;
    if (next && !stretch.number) number = *next - 1;
    const std::uint64_t count = next ? *next - number : 1;
    const std::uint64_t bytes = stretch.until - stretch.from;
    const auto payload = payload_over(stretch.lost);
    if (count < 1 || count > bytes / block_bytes) return false;
    const std::uint64_t last_bytes = bytes - (count - 1) * block_bytes;
    if (payload.size() + round_header_bytes > last_bytes ||
        last_bytes - round_header_bytes > std::numeric_limits<std::uint32_t>::max())
      return false;

    JournalRepair::Patch patch{path_of(stretch.file), stretch.from - files_[stretch.file], bytes,
                               Buffer(static_cast<std::size_t>(bytes))};
    for (std::uint64_t i = 0; i < count; ++i) {
      const bool is_last = i + 1 == count;
      const std::uint64_t at = i * block_bytes;
      RoundHeader header;
      header.salt = stretch.salt;
      header.incarnation = stretch.incarnation;
      header.number = number + i;
      header.lsn = header.synced_to = stretch.from + at;
      if (is_last) {
        // To the next round: what is behind the record are zeros.
        header.payload_bytes = static_cast<std::uint32_t>(last_bytes - round_header_bytes);
        header.records = payload.empty() ? 0 : 1;
        std::ranges::copy(payload, patch.replacement.begin() +
                                       static_cast<std::ptrdiff_t>(at + round_header_bytes));
      }
      header.payload_crc = crc32c(
          Bytes(patch.replacement)
              .subspan(static_cast<std::size_t>(at) + round_header_bytes, header.payload_bytes));
      header.write(patch.replacement.data() + at);
    }
    add_findings(stretch, patch);
    out_.patches_.push_back(std::move(patch));
    return true;
  }

  void add_findings(const Stretch& stretch, const JournalRepair::Patch& patch) {
    RepairFinding finding{RepairFinding::Kind::journal, patch.file, {}, {}, patch.position};
    finding.problem =
        fmt::format("{} bytes from LSN {:016x} on are broken, although they were synced",
                    patch.bytes, stretch.from);
    finding.repair =
        "rounds without records replace them; their contents are lost: accepted records, cancels, "
        "committed offsets; records that were delivered in them are delivered again";
    finding.moved_bytes = patch.bytes;
    out_.findings_.push_back(finding);
    for (const auto& lost : stretch.lost) {
      RepairFinding hole{RepairFinding::Kind::journal, patch.file,
                         fmt::format("the broken rounds had records of partition {} of the topic "
                                     "with the id {}",
                                     lost.partition.partition, lost.partition.topic.text()),
                         "the log has a hole there", patch.position};
      hole.lost_from = lost.from;
      hole.lost_until = lost.until;
      out_.findings_.push_back(std::move(hole));
    }
  }

  Disk& disk_;
  const std::string directory_;
  std::vector<Lsn> files_;
  Lsn checkpoint_ = 0;
  std::unique_ptr<File> opened_;
  std::optional<JournalFileHeader> header_;  // The header of the file that is read.
  std::optional<std::uint64_t> number_;      // That of the last whole round of its incarnation.
  std::vector<WholeRound> rounds_;
  std::vector<Stretch> stretches_;
  std::string missing_;  // The error that files are missing; empty: none is.
  JournalRepair out_;
};

Result<JournalRepair> JournalRepair::inspect(Disk& disk, const std::string& directory,
                                             const OnRecord& on_record) {
  return JournalReading(disk, directory).run(on_record);
}

Result<> JournalRepair::run(const std::string& kept) {
  if (patches_.empty()) return {};
  if (auto made = disk_->make_directories(kept); !made) return made;
  for (const auto& patch : patches_) {
    auto file = disk_->open(patch.file, {.write = true});
    if (!file) return std::unexpected(file.error());
    const auto size = (*file)->size();
    if (!size) return std::unexpected(size.error());
    // journal/0/0000000000000000.journal -> journal-0-0000000000000000-4096
    const std::filesystem::path path(patch.file);
    const auto name =
        fmt::format("{}/journal-{}-{}-{}", kept, path.parent_path().filename().string(),
                    path.stem().string(), patch.position);
    const auto there = std::min(patch.bytes, *size - std::min(*size, patch.position));
    if (const auto saved = keep_damaged(*disk_, **file, patch.position, there, name); !saved)
      return std::unexpected(saved.error());
    if (auto written = (*file)->pwrite(patch.position, patch.replacement); !written) return written;
    if (auto synced = (*file)->sync(); !synced) return synced;
  }
  return {};
}

}  // namespace tarry::storage
