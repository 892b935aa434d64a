#include "storage/log_repair.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <memory>
#include <utility>

#include <fmt/core.h>

#include "records/record_batch.h"
#include "storage/damaged_file.h"
#include "storage/index.h"
#include "storage/retention.h"
#include "storage/segment_writer.h"

namespace tarry::storage {
namespace {

namespace field = records::field;
using Kind = RepairFinding::Kind;

// Offsets that clients have committed are believed up to so far behind the log's end: a client may
// commit any number.
constexpr Offset max_believed_gap = Offset{1} << 24;

constexpr std::uint64_t batches_a_step = 1000;  // Progress is told so often.
constexpr std::size_t max_index_file_bytes = std::size_t{1} << 30;

// Whole batches one behind the other.
struct Run {
  std::uint64_t begin = 0, end = 0;  // Positions.
  Offset first = 0, next = 0;
};
struct Broken {
  std::uint64_t begin = 0, end = 0;
  Offset after = 0;  // Behind the last whole batch before it.
  std::string why;
};
// A part that becomes a segment of its own: a run of a file or, without a file, a hole.
struct NewSegment {
  std::shared_ptr<const File> file;
  Run run;
};
// Whole batches that a start has saved from the journal.
struct SavedFile {
  std::string path;
  std::shared_ptr<const File> file;
  std::uint64_t end = 0;  // The end of the whole batches.
  Offset first = 0, next = 0;
  std::string wrong;  // Why the bytes after them are not a batch; empty: there are no more bytes.
  bool is_used = false;
};
struct CheckedSegment {
  Offset base = 0;
  std::vector<Run> runs;
  std::vector<Broken> broken;
  std::string index_wrong, times_wrong;  // Empty: nothing.
  bool reached_journal = false;

  Offset next() const { return runs.empty() ? base : runs.back().next; }
};

// Compares the entries of an index with the batches, in their order.
template <typename Entry>
class IndexWalk {
 public:
  explicit IndexWalk(std::vector<Entry> entries) : entries_(std::move(entries)) {}

  const std::vector<Entry>& entries() const { return entries_; }
  void take(const BatchPlace& batch) {
    max_timestamp_ = std::max(max_timestamp_, batch.max_timestamp);
    while (at_ < entries_.size() && lies_before(entries_[at_], batch)) {
      note("points to no batch");
      ++at_;
    }
    if (at_ == entries_.size() || !points_to(entries_[at_], batch)) return;
    if (!agrees(entries_[at_], batch)) note("disagrees with the batch that it points to");
    ++at_;
  }
  void end() {
    if (at_ < entries_.size()) note("points past the last batch");
  }
  std::int64_t max_timestamp() const { return max_timestamp_; }
  const std::string& wrong() const { return wrong_; }
  void note_once(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }

 private:
  static bool lies_before(const IndexEntry& entry, const BatchPlace& batch) {
    return entry.position < batch.position;
  }
  static bool lies_before(const TimeEntry& entry, const BatchPlace& batch) {
    return entry.offset < batch.first;
  }
  static bool points_to(const IndexEntry& entry, const BatchPlace& batch) {
    return entry.position == batch.position;
  }
  static bool points_to(const TimeEntry& entry, const BatchPlace& batch) {
    return entry.offset <= batch.last;
  }
  static bool agrees(const IndexEntry& entry, const BatchPlace& batch) {
    return entry.offset == batch.last;
  }
  static bool agrees(const TimeEntry& entry, const BatchPlace& batch) {
    return entry.timestamp == batch.max_timestamp && entry.offset == batch.last;
  }
  void note(const char* what) { note_once(fmt::format("entry {} {}", at_, what)); }

  const std::vector<Entry> entries_;
  std::size_t at_ = 0;
  std::int64_t max_timestamp_ = -1;
  std::string wrong_;
};

Result<std::optional<BatchPlace>> batch_at(const File& file, std::uint64_t position,
                                           std::uint64_t end) {
  std::optional<BatchPlace> found;
  const auto damage = scan_segment(file, position, end, [&](const BatchPlace& place) {
    found = place;
    return false;
  });
  if (!damage) return std::unexpected(damage.error());
  return found;
}

// The fields of a broken batch's header that may still be true; empty where there is none.
struct ClaimedBatch {
  std::uint64_t bytes = 0;
  Offset first = 0;
  std::int32_t delta = 0, count = 0;
};
Result<std::optional<ClaimedBatch>> claimed_batch(const File& file, std::uint64_t position) {
  std::array<std::uint8_t, records::batch_header_size> bytes;
  const auto got = file.pread(position, bytes);
  if (!got) return std::unexpected(got.error());
  const auto size = records::batch_size(Bytes(bytes).first(*got));
  if (!size) return std::nullopt;
  return ClaimedBatch{*size, load_be<std::int64_t>(bytes.data() + field::base_offset),
                      load_be<std::int32_t>(bytes.data() + field::last_offset_delta),
                      load_be<std::int32_t>(bytes.data() + field::record_count)};
}

// The end of the log by the headers of broken batches from `position` on: as far as each continues
// the one before it and names its records twice in the same way.
Result<Offset> claimed_end(const File& file, std::uint64_t position, std::uint64_t end,
                           Offset next) {
  while (position < end) {
    const auto claimed = claimed_batch(file, position);
    if (!claimed) return std::unexpected(claimed.error());
    const bool believed = *claimed && (*claimed)->first == next && (*claimed)->count > 0 &&
                          (*claimed)->delta == (*claimed)->count - 1;
    if (!believed) break;
    next += (*claimed)->count;
    position += (*claimed)->bytes;
  }
  return next;
}

// The end of the log by an index that is in order; 0: it does not tell.
Offset end_by(const std::vector<IndexEntry>& entries, Offset next) {
  const auto follows = [](const IndexEntry& a, const IndexEntry& b) {
    return b.offset <= a.offset || b.position <= a.position;
  };
  if (entries.empty() || std::ranges::adjacent_find(entries, follows) != entries.end()) return 0;
  const Offset end = entries.back().offset + 1;
  return end <= next + max_believed_gap ? end : 0;
}

// Writes the whole batches of `file` between two positions a segment of their own.
Result<> copy_run(SegmentWriter& writer, const File& file, const Run& run) {
  if (auto begun = writer.begin(run.first); !begun) return begun;
  SegmentScanner scanner(file, run.begin, run.end);
  for (;;) {
    const auto place = scanner.next();
    if (!place) return std::unexpected(place.error());
    if (!*place) return writer.finish();
    const auto bytes = scanner.bytes();
    if (!bytes) return std::unexpected(bytes.error());
    if (auto added =
            writer.append(*bytes, (*place)->first, (*place)->last, (*place)->max_timestamp);
        !added)
      return added;
  }
}

Result<> write_run(Disk& disk, const std::string& directory, const File& file, const Run& run,
                   const LogConfig& config) {
  SegmentWriter writer(disk, directory, config);
  auto copied = copy_run(writer, file, run);
  // On a full disk half a segment would be in the way.
  if (!copied) writer.abandon();
  return copied;
}

// A segment of its own for offsets whose records are lost.
Result<> write_hole(Disk& disk, const std::string& directory, Offset from, Offset until,
                    const LogConfig& config) {
  SegmentWriter writer(disk, directory, config);
  if (auto begun = writer.begin(from); !begun) return begun;
  if (auto filled = writer.append_hole(until); !filled) return filled;
  return writer.finish();
}

Result<> write_new_segment(Disk& disk, const std::string& directory, const NewSegment& piece,
                           const LogConfig& config) {
  if (!piece.file) return write_hole(disk, directory, piece.run.first, piece.run.next, config);
  return write_run(disk, directory, *piece.file, piece.run, config);
}

// Reads all of it, and stops where it is no row of whole batches.
Result<> read_saved(SavedFile& saved) {
  const auto size = saved.file->size();
  if (!size) return std::unexpected(size.error());
  const auto damage = scan_segment(*saved.file, 0, *size, [&](const BatchPlace& batch) {
    if (saved.end > 0 && batch.first < saved.next) {
      saved.wrong = fmt::format("the batch at position {} does not belong there", batch.position);
      return false;
    }
    if (saved.end == 0) saved.first = batch.first;
    saved.end = batch.position + batch.bytes;
    saved.next = batch.last + 1;
    return true;
  });
  if (!damage) return std::unexpected(damage.error());
  if (*damage) saved.wrong = (*damage)->message;
  return {};
}

// The batches of it that lie between two offsets; empty: none.
Result<std::optional<Run>> run_between(const SavedFile& saved, Offset from, Offset until) {
  if (saved.next <= from || saved.first >= until) return std::nullopt;
  std::optional<Run> run;
  const auto damage = scan_segment(*saved.file, 0, saved.end, [&](const BatchPlace& batch) {
    if (batch.first < from) return true;
    if (batch.last >= until) return false;
    if (!run) run = Run{batch.position, 0, batch.first, 0};
    run->end = batch.position + batch.bytes;
    run->next = batch.last + 1;
    return true;
  });
  if (!damage) return std::unexpected(damage.error());
  return run;
}

}  // namespace

class LogInspection {
 public:
  LogInspection(Disk& disk, const std::string& directory, const LogFacts& facts,
                const LogRepair::OnBatches& step)
      : disk_(disk), directory_(directory), facts_(facts), step_(step) {}

  Result<LogRepair> run() {
    const auto entries = disk_.list(directory_);
    is_missing_ = !entries && entries.error().code == Errc::not_found;
    if (!entries && !is_missing_) return std::unexpected(entries.error());
    if (entries) {
      for (const auto& entry : *entries)
        if (const auto base = segment_base(entry.name)) bases_.push_back(*base);
    }
    std::ranges::sort(bases_);
    if (auto opened = open_saved(); !opened) return std::unexpected(opened.error());
    if (auto looked = look_at_metadata(); !looked) return std::unexpected(looked.error());
    if (!is_missing_) {
      if (auto looked = look_at_start(); !looked) return std::unexpected(looked.error());
    }
    for (std::size_t i = 0; i < bases_.size(); ++i) {
      // Recovery cuts this part off, so it need not be whole.
      if (i > 0 && facts_.journal_from && bases_[i] >= *facts_.journal_from) break;
      if (auto looked = look_at_segment(i); !looked) return std::unexpected(looked.error());
    }
    if (auto looked = look_at_end(); !looked) return std::unexpected(looked.error());
    add_renames();
    out_.steps_.insert(out_.steps_.begin(), first_steps_.begin(), first_steps_.end());
    return std::move(out_);
  }

 private:
  void add(RepairFinding finding) { out_.findings_.push_back(std::move(finding)); }
  void add_step(std::function<Result<>()> step) { out_.steps_.push_back(std::move(step)); }
  std::string path_of(std::string_view name) const {
    return fmt::format("{}/{}", directory_, name);
  }

  Result<> look_at_metadata() {
    const auto path = path_of(partition_metadata_name);
    const auto whose = topic_of_log(disk_, directory_);
    if (whose && *whose && **whose == facts_.topic) return {};
    if (whose && !*whose && bases_.empty()) return {};  // Not made yet.
    if (!whose && whose.error().code != Errc::corrupt) return std::unexpected(whose.error());
    if (whose && *whose) return set_aside(**whose);
    RepairFinding finding{Kind::metadata, path, {}, {}};
    finding.problem = whose ? "is missing, although there are segments" : "is not readable";
    finding.repair = fmt::format("is written again, with the topic id {}", facts_.topic.text());
    add(std::move(finding));
    add_step([disk = &disk_, path, id = facts_.topic.text()]() -> Result<> {
      if (auto kept = keep_whole_file(*disk, path); !kept) return kept;
      return replace_file(*disk, path, as_bytes(fmt::format("version: 0\ntopic_id: {}\n", id)));
    });
    return {};
  }

  // A start would take the whole directory for a deleted topic's and remove it.
  Result<> set_aside(const TopicId& owner) {
    const auto aside = name_of_damaged_directory(disk_, directory_, owner);
    if (!aside) return std::unexpected(aside.error());
    const auto name = facts_.name_of ? facts_.name_of(owner) : std::string();
    add({Kind::directory, directory_,
         fmt::format("holds the log of the topic id {} ({}), not of {}; a start would delete it",
                     owner.text(), name.empty() ? "no topic has it" : "topic " + name,
                     facts_.topic.text()),
         fmt::format("is set aside as {}; if somebody moved it here, move it back instead",
                     *aside)});
    first_steps_.emplace_back(
        [disk = &disk_, directory = directory_, aside = *aside]() -> Result<> {
          if (auto renamed = disk->rename(directory, aside); !renamed) return renamed;
          return disk->sync_directory(directory_of(directory));
        });
    bases_.clear();
    is_missing_ = true;
    return {};
  }

  Result<> open_saved() {
    for (const auto& path : facts_.saved) {
      auto file = disk_.open(path, {});
      if (!file && file.error().code == Errc::not_found) continue;  // Put back already.
      if (!file) return std::unexpected(file.error());
      SavedFile saved{.path = path, .file = std::move(*file), .wrong = {}};
      if (auto read = read_saved(saved); !read) return read;
      if (saved.end > 0) saved_.push_back(std::move(saved));
    }
    return {};
  }

  // The parts that a start has saved of the offsets between two, with a hole in front of each part
  // that does not follow what is before it.  `from` becomes the end of the last part.
  Result<std::vector<NewSegment>> take_saved(Offset& from, Offset until) {
    std::vector<NewSegment> pieces;
    for (auto& saved : saved_) {
      const auto run = run_between(saved, from, until);
      if (!run) return std::unexpected(run.error());
      if (!*run) continue;
      saved.is_used = true;
      add({Kind::saved,
           saved.path,
           fmt::format("has the records from offset {} to {}, which an earlier start saved and the "
                       "log lacks{}",
                       (*run)->first, (*run)->next - 1,
                       saved.wrong.empty() ? "" : "; the rest of it is damaged: " + saved.wrong),
           "is put back into the log",
           {},
           from,
           (*run)->first});
      if (from < (*run)->first) pieces.push_back({nullptr, {0, 0, from, (*run)->first}});
      pieces.push_back({saved.file, **run});
      from = (*run)->next;
    }
    return pieces;
  }

  void add_pieces(const std::vector<NewSegment>& pieces) {
    for (const auto& piece : pieces) {
      add_step([disk = &disk_, directory = directory_, piece, config = facts_.config] {
        return write_new_segment(*disk, directory, piece, config);
      });
    }
  }

  // The last steps, because one file may have parts of several gaps.
  void add_renames() {
    for (const auto& saved : saved_) {
      if (!saved.is_used) continue;
      add_step([disk = &disk_, path = saved.path]() -> Result<> {
        const auto name =
            free_name(*disk, path, "restored", [](const File&) { return Result<bool>(false); });
        if (!name) return std::unexpected(name.error());
        if (auto renamed = disk->rename(path, *name); !renamed) return renamed;
        return disk->sync_directory(directory_of(path));
      });
    }
  }

  Result<> look_at_start() {
    constexpr std::string_view before = "version: 0\nstart_offset: ";
    const auto path = path_of(start_offset_name);
    const auto bytes = read_file(disk_, path, 4096);
    if (!bytes && bytes.error().code == Errc::not_found) return {};
    if (!bytes) return std::unexpected(bytes.error());
    std::string_view text = as_text(*bytes);
    if (text.starts_with(before)) {
      text.remove_prefix(before.size());
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), start_);
      if (error == std::errc{} && start_ >= 0 && end == text.data() + text.find('\n')) return {};
    }
    start_ = 0;
    add({Kind::metadata,
         path,
         "is not readable",
         "is moved aside; records that were deleted by offset can be read again",
         {},
         0,
         0,
         bytes->size(),
         path + ".damaged"});
    add_step([disk = &disk_, path]() -> Result<> {
      if (auto kept = keep_whole_file(*disk, path); !kept) return kept;
      if (auto removed = disk->remove(path); !removed) return removed;
      return disk->sync_directory(directory_of(path));
    });
    return {};
  }

  template <typename Entry, typename Decode>
  Result<std::vector<Entry>> read_entries_of(const std::string& path, Offset base,
                                             std::size_t entry_bytes, Decode decode,
                                             std::string& wrong) {
    std::vector<Entry> entries;
    const auto bytes = read_file(disk_, path, max_index_file_bytes);
    if (!bytes && bytes.error().code == Errc::not_found) {
      wrong = "is missing";
      return entries;
    }
    if (!bytes) return std::unexpected(bytes.error());
    entries.reserve(bytes->size() / entry_bytes);
    for (std::size_t at = 0; at + entry_bytes <= bytes->size(); at += entry_bytes)
      entries.push_back(decode(bytes->data() + at, base));
    if (const auto rest = bytes->size() % entry_bytes; rest != 0)
      wrong = fmt::format("ends in {} bytes that are not an entry", rest);
    return entries;
  }

  // The begin of the next whole batch behind a broken one; `end`: there is none.
  Result<std::uint64_t> find_next_run(const File& file, const Broken& broken, std::uint64_t end,
                                      std::optional<Offset> below,
                                      const std::vector<IndexEntry>& index) {
    const auto fits = [&](std::uint64_t at, std::optional<Offset> last) -> Result<bool> {
      const auto place = batch_at(file, at, end);
      if (!place) return std::unexpected(place.error());
      return *place && (*place)->first >= broken.after && (!below || (*place)->last < *below) &&
             (!last || (*place)->last == *last);
    };
    const auto claimed = claimed_batch(file, broken.begin);
    if (!claimed) return std::unexpected(claimed.error());
    if (*claimed && broken.begin + (*claimed)->bytes < end) {
      const auto found = fits(broken.begin + (*claimed)->bytes, std::nullopt);
      if (!found) return std::unexpected(found.error());
      if (*found) return broken.begin + (*claimed)->bytes;
    }
    for (const auto& entry : index) {
      if (entry.position <= broken.begin || entry.position >= end) continue;
      const auto found = fits(entry.position, entry.offset);
      if (!found) return std::unexpected(found.error());
      if (*found) return std::uint64_t{entry.position};
    }
    return end;
  }

  Result<CheckedSegment> check(const File& file, std::uint64_t end, Offset base,
                               std::optional<Offset> below) {
    CheckedSegment out;
    out.base = base;
    auto entries = read_entries_of<IndexEntry>(segment_path(directory_, base, ".index"), base,
                                               index_entry_bytes, index_entry_at, out.index_wrong);
    if (!entries) return std::unexpected(entries.error());
    auto time_entries =
        read_entries_of<TimeEntry>(segment_path(directory_, base, ".timeindex"), base,
                                   time_entry_bytes, time_entry_at, out.times_wrong);
    if (!time_entries) return std::unexpected(time_entries.error());
    const std::int64_t last_time = time_entries->empty() ? -1 : time_entries->back().timestamp;
    IndexWalk<IndexEntry> index(std::move(*entries));
    IndexWalk<TimeEntry> times(std::move(*time_entries));

    std::uint64_t position = 0;
    while (position < end) {
      Run run{position, position, out.next(), out.next()};
      std::string wrong;
      const auto damage = scan_segment(file, position, end, [&](const BatchPlace& batch) {
        if (facts_.journal_from && batch.first >= *facts_.journal_from) {
          out.reached_journal = true;
          return false;
        }
        if (batch.first < run.next || (below && batch.last >= *below)) {
          wrong = fmt::format(
              "{}: the batch at position {} has the offsets {} to {}, which do not "
              "belong there",
              file.path(), batch.position, batch.first, batch.last);
          return false;
        }
        if (run.end == run.begin) run.first = batch.first;
        run.end = batch.position + batch.bytes;
        run.next = batch.last + 1;
        if (++out_.batches_ % batches_a_step == 0 && step_) step_(out_.batches_);
        index.take(batch);
        times.take(batch);
        return true;
      });
      if (!damage) return std::unexpected(damage.error());
      if (run.end > run.begin) out.runs.push_back(run);
      if (*damage) wrong = (*damage)->message;
      // The journal has everything behind its beginning, and replaces what the log has there.
      if (wrong.empty() || out.reached_journal ||
          (facts_.journal_from && run.next >= *facts_.journal_from)) {
        out.reached_journal = out.reached_journal || !wrong.empty();
        break;
      }
      Broken broken{run.end, end, run.next, std::move(wrong)};
      const auto next = find_next_run(file, broken, end, below, index.entries());
      if (!next) return std::unexpected(next.error());
      position = broken.end = *next;
      out.broken.push_back(std::move(broken));
    }
    index.end();
    times.end();
    if (out.index_wrong.empty()) out.index_wrong = index.wrong();
    // A closed segment's last entry says how old it is.
    if (below && times.max_timestamp() > last_time) times.note_once("lacks its last entry");
    if (out.times_wrong.empty()) out.times_wrong = times.wrong();
    last_index_end_ = end_by(index.entries(), out.next());
    return out;
  }

  Result<> look_at_segment(std::size_t number) {
    const Offset base = bases_[number];
    const bool is_last = number + 1 == bases_.size();
    const auto below = is_last ? std::nullopt : std::optional(bases_[number + 1]);
    const auto path = segment_path(directory_, base, ".log");
    auto file = disk_.open(path, {});
    if (!file) return std::unexpected(file.error());
    const auto size = (*file)->size();
    if (!size) return std::unexpected(size.error());
    auto checked = check(**file, *size, base, below);
    if (!checked) return std::unexpected(checked.error());
    end_ = std::max(end_, checked->next());
    const bool ends_broken =
        !checked->broken.empty() &&
        (checked->runs.empty() || checked->broken.back().begin > checked->runs.back().begin);
    if (!checked->broken.empty()) {
      if (auto noted = cut_at(*checked, std::move(*file), *size, below); !noted) return noted;
    } else if (!checked->reached_journal && !checked->runs.empty()) {
      look_at_indexes(*checked);
    }
    if (below && !ends_broken && !checked->reached_journal) {
      const auto pieces = take_saved(end_, std::min(*below, journal_from()));
      if (!pieces) return std::unexpected(pieces.error());
      add_pieces(*pieces);
    }
    last_ = std::move(*checked);
    return {};
  }

  // The journal has the log from there on; without a journal it lies behind all offsets.
  Offset journal_from() const {
    return facts_.journal_from.value_or(std::numeric_limits<Offset>::max());
  }

  // Notes the end of what is lost by a broken part that no whole batch follows, in this segment and
  // in others; what a start has saved from there on is put back behind it.
  Result<> note_broken_tail(RepairFinding& finding, const File& file, std::uint64_t size) {
    const auto claimed = claimed_end(file, *finding.position, size, finding.lost_from);
    if (!claimed) return std::unexpected(claimed.error());
    claimed_end_ = std::max({claimed_end_, *claimed, last_index_end_});
    finding.lost_until = std::max(*claimed, last_index_end_);
    for (const auto& saved : saved_) {
      const auto run = run_between(saved, finding.lost_from, std::numeric_limits<Offset>::max());
      if (!run) return std::unexpected(run.error());
      if (*run) finding.lost_until = std::min(finding.lost_until, (*run)->first);
    }
    tail_finding_ = out_.findings_.size();
    return {};
  }

  // Cuts a segment at its first broken batch; the runs behind become segments.
  Result<> cut_at(const CheckedSegment& segment, std::unique_ptr<File> file, std::uint64_t size,
                  std::optional<Offset> below) {
    const auto path = segment_path(directory_, segment.base, ".log");
    const std::uint64_t cut = segment.broken.front().begin;
    const std::shared_ptr<const File> shared = std::move(file);
    std::vector<NewSegment> pieces;
    for (const auto& run : segment.runs)
      if (run.begin > cut) pieces.push_back({shared, run});
    const bool any_follows = !pieces.empty();
    for (const auto& broken : segment.broken) {
      const auto next = std::ranges::find_if(
          segment.runs, [&](const Run& run) { return run.begin >= broken.end; });
      RepairFinding finding{Kind::segment, path, broken.why, {}, broken.begin};
      finding.lost_from = broken.after;
      if (next == segment.runs.end() && !below && !facts_.journal_from) {
        if (auto noted = note_broken_tail(finding, *shared, size); !noted) return noted;
      } else {
        const Offset until = next != segment.runs.end()
                                 ? next->first
                                 : std::min(below.value_or(journal_from()), journal_from());
        const auto saved = take_saved(finding.lost_from, until);
        if (!saved) return std::unexpected(saved.error());
        pieces.insert(pieces.end(), saved->begin(), saved->end());
        finding.lost_until = until;
      }
      finding.lost_until = std::max(finding.lost_until, finding.lost_from);
      if (finding.lost_until > finding.lost_from)
        pieces.push_back({nullptr, {0, 0, finding.lost_from, finding.lost_until}});
      end_ = std::max(end_, finding.lost_until);
      finding.repair =
          broken.begin == cut
              ? fmt::format("is cut at position {}, after offset {}; {}the indexes are rebuilt",
                            cut, broken.after - 1,
                            any_follows
                                ? "whole batches after the cut become segments of their own, and "
                                : "")
              : "is left out of the segments that are made of the batches after the cut";
      if (broken.begin == cut) {
        finding.moved_bytes = size - cut;
        finding.moved_to = fmt::format("{}.{}.damaged", path, cut);
      }
      add(std::move(finding));
    }
    std::ranges::sort(pieces, {}, [](const NewSegment& piece) { return piece.run.first; });
    add_step(cut_step(segment.base, shared, cut, size, std::move(pieces)));
    return {};
  }

  // Keeps what is cut off, makes segments of what is whole in it and of the holes, and cuts.
  std::function<Result<>()> cut_step(Offset base, std::shared_ptr<const File> file,
                                     std::uint64_t cut, std::uint64_t size,
                                     std::vector<NewSegment> pieces) {
    return [disk = &disk_, directory = directory_, file = std::move(file), cut, size,
            pieces = std::move(pieces), base, config = facts_.config]() -> Result<> {
      const auto path = segment_path(directory, base, ".log");
      const auto moved = fmt::format("{}.{}", path, cut);
      if (const auto kept = keep_damaged(*disk, *file, cut, size - cut, moved); !kept)
        return std::unexpected(kept.error());
      // Before the cut, which takes away the evidence for them, and from the back: a segment that
      // is there bounds what the next repair finds in this one, if there has to be one.
      for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
        if (auto written = write_new_segment(*disk, directory, *piece, config); !written)
          return written;
      }
      if (cut == 0) {
        // Nothing is whole in front of the cut: the first piece, or nothing, takes the segment's
        // place.
        const bool is_replaced = !pieces.empty() && pieces.front().run.first == base;
        return is_replaced ? Result<>() : write_hole(*disk, directory, base, base, config);
      }
      // The indexes first: an entry must never say more than there is.
      if (auto made = rebuild_indexes(*disk, directory, base, cut, config); !made) return made;
      auto log = disk->open(path, {.write = true});
      if (!log) return std::unexpected(log.error());
      if (auto shorter = (*log)->truncate(cut); !shorter) return shorter;
      return (*log)->sync();
    };
  }

  void look_at_indexes(const CheckedSegment& segment) {
    bool any = false;
    for (const auto& [suffix, wrong] :
         {std::pair{".index", &segment.index_wrong}, {".timeindex", &segment.times_wrong}}) {
      if (wrong->empty()) continue;
      any = true;
      const auto path = segment_path(directory_, segment.base, suffix);
      add({Kind::index, path, *wrong, "is rebuilt from the segment"});
      add_step([disk = &disk_, path] { return keep_whole_file(*disk, path); });
    }
    if (any) add_rebuild(segment);
  }

  void add_rebuild(const CheckedSegment& segment) {
    add_step([disk = &disk_, directory = directory_, base = segment.base, config = facts_.config,
              end = segment.runs.back().end] {
      return rebuild_indexes(*disk, directory, base, end, config);
    });
  }

  Result<> look_at_end() {
    const Offset end_before = end_;
    const auto saved = take_saved(end_, journal_from());
    if (!saved) return std::unexpected(saved.error());
    add_pieces(*saved);
    Offset wanted = end_;
    if (facts_.journal_from) {
      wanted = std::max(wanted, *facts_.journal_from);
    } else {
      wanted = std::max({wanted, facts_.appended_end, start_, claimed_end_});
      if (tail_finding_ && facts_.seen_end <= wanted + max_believed_gap)
        wanted = std::max(wanted, facts_.seen_end);
    }
    if (is_missing_ && (wanted > end_ || !saved->empty())) add_directory();
    if (wanted > end_) {
      add({Kind::log_end,
           directory_,
           facts_.journal_from
               ? fmt::format("the log ends at offset {}, but the journal continues at {}", end_,
                             wanted)
               : fmt::format("the log ends at offset {}, but offsets below {} were given out", end_,
                             wanted),
           fmt::format("the log continues at offset {}, after a hole", wanted),
           {},
           end_,
           wanted});
      // Before a cut takes away what tells of it.  Batches that were saved lie before it and are
      // written later; until then there is a gap, which the next repair fills.
      first_steps_.emplace_back(
          [disk = &disk_, directory = directory_, from = end_, wanted, config = facts_.config] {
            return write_hole(*disk, directory, from, wanted, config);
          });
    } else if (tail_finding_ && end_ == end_before) {
      auto& finding = out_.findings_[*tail_finding_];
      if (finding.lost_until <= finding.lost_from) {
        finding.repair += fmt::format(
            "; it is unknown which offsets from {} on were given out, so they may be given out "
            "again",
            end_);
      }
    }
    // The next segment, or the end of the log, closes the last one.
    if (wanted > end_before && last_ && last_->broken.empty() && !last_->runs.empty())
      add_rebuild(*last_);
    return {};
  }

  void add_directory() {
    first_steps_.emplace_back(
        [disk = &disk_, directory = directory_, id = facts_.topic.text()]() -> Result<> {
          if (auto made = disk->make_directories(directory); !made) return made;
          return replace_file(*disk, fmt::format("{}/{}", directory, partition_metadata_name),
                              as_bytes(fmt::format("version: 0\ntopic_id: {}\n", id)));
        });
  }

  Disk& disk_;
  const std::string directory_;
  const LogFacts& facts_;
  const LogRepair::OnBatches& step_;
  std::vector<Offset> bases_;
  Offset start_ = 0;           // As start-offset has it.
  Offset end_ = 0;             // The log's end when everything that was found is repaired.
  Offset last_index_end_ = 0;  // The index's end in the segment that was checked last.
  Offset claimed_end_ = 0;     // By what is left of a broken end.
  bool is_missing_ = false;    // The directory.
  std::optional<std::size_t> tail_finding_;  // The finding that is about the broken end.
  std::optional<CheckedSegment> last_;
  std::vector<SavedFile> saved_;                        // In the order of their offsets.
  std::vector<std::function<Result<>()>> first_steps_;  // Before those of out_.
  LogRepair out_;
};

Result<LogRepair> LogRepair::inspect(Disk& disk, const std::string& directory,
                                     const LogFacts& facts, const OnBatches& step) {
  return LogInspection(disk, directory, facts, step).run();
}

Result<> LogRepair::run() {
  for (const auto& step : steps_)
    if (auto done = step(); !done) return done;
  return {};
}

}  // namespace tarry::storage
