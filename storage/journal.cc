#include "storage/journal.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <new>
#include <utility>

#include <fmt/core.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "base/log.h"

namespace tarry::storage {
namespace {

constexpr std::uint64_t min_file_bytes = 64 << 10;
constexpr std::uint64_t zeros_bytes =
    1 << 20;  // Written in one piece.  A round may have to wait for one piece.
constexpr std::string_view spare_extension = ".spare";
// A piece of fewer bytes is copied at once, also if its memory is kept.
constexpr std::size_t copied_late = std::size_t{64} << 10;

bool lies_in(Bytes piece, const SharedBytes& kept) {
  constexpr std::less_equal<const std::uint8_t*> up_to{};
  return up_to(kept.begin(), piece.data()) && up_to(piece.data() + piece.size(), kept.end());
}

// Preallocates the file's space.  If that fails, the file is removed.
Result<> make_file(Disk& disk, const std::string& path, std::uint64_t bytes) {
  auto file = disk.open(path, {.write = true, .create = OpenOptions::Create::must});
  if (!file) return std::unexpected(file.error());
  if (auto taken = (*file)->preallocate(bytes); !taken) {
    (void)disk.remove(path);
    return taken;
  }
  return {};
}

// A spare is wanted, not needed: without memory it is made later, or has no zeros.
template <typename Work>
Result<> with_memory(Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return fail(Errc::exhausted, "no memory");  // Short enough to need no allocation.
  }
}

// A missing file may be there again when its directory is: the data directory may have been moved
// away.  If the directory is there, the file does not come back.
std::unexpected<Error> not_begun(Disk& disk, const std::string& directory, Error error) {
  if (error.code == Errc::not_found) {
    const auto there = disk.list(directory);
    if (!there && there.error().code == Errc::not_found) error.code = Errc::exhausted;
  }
  return std::unexpected(std::move(error));
}

}  // namespace

struct Journal::JournalFile {
  std::string path;
  std::uint64_t bytes = 0;
  Lsn first = 0;               // Once it is begun, as is
  std::shared_ptr<File> file;  // this.
  bool filling = false;        // The Background writes zeros; no other write may run.
  bool taken = false;          // For a round: no more zeros.
};

struct Journal::Round {
  struct Waiter {
    Completion completion;
    Durability durability;
  };

  Lsn lsn = 0;
  AlignedBuffer buffer;  // Begins with room for the header.
  std::uint32_t records = 0;
  std::uint64_t number = 0;         // From its start on, as is
  Lsn synced_to = 0;                // this and
  std::uint32_t payload_bytes = 0;  // this; the Background then writes the header, no more.
  std::uint64_t begins_file = 0;    // The least size of the file that it is the first of; 0: none.
  std::shared_ptr<JournalFile> new_file;  // The file itself, as soon as there is one.
  std::vector<Waiter> waiters;
  bool some_wait_for_write = false;
  // A piece that the Background copies into the buffer before it writes the buffer.
  struct LatePiece {
    std::size_t place;
    SharedBytes bytes;
  };
  std::vector<LatePiece> late;

  std::uint64_t size() const { return round_up_to_block(buffer.size()); }
  Lsn end() const { return lsn + size(); }
};

// The result of writing a round.
struct Journal::Outcome {
  Result<> result;
  std::shared_ptr<File> opened;  // The file that the round begins.
  std::chrono::nanoseconds took{0};
};

Journal::Journal(Disk& disk, Background& background, const Clock& clock, JournalOptions options,
                 JournalHooks hooks)
    : disk_(disk),
      background_(background),
      round_lane_(options.round_lane != nullptr ? *options.round_lane : background),
      clock_(clock),
      options_(std::move(options)),
      hooks_(std::move(hooks)) {
  TARRY_ASSERT(options_.file_bytes % block_bytes == 0 && options_.first_lsn % block_bytes == 0,
               "files begin and end between two blocks");
  TARRY_ASSERT(options_.file_bytes >= min_file_bytes, "a file has room for some rounds");
  TARRY_ASSERT(options_.max_bytes >= 2 * options_.file_bytes,
               "one file can be released while another is written");
  TARRY_ASSERT(options_.reserve_bytes <= options_.max_bytes / 2, "the reserve is the lesser part");
}

Journal::~Journal() = default;

template <typename Work, typename Then>
void Journal::run_on(Background& where, Work work, Then then) {
  // The Journal may be gone when the work comes back; then nobody is notified.
  where.run(std::move(work),
            [alive = std::weak_ptr<bool>(alive_), then = std::move(then)](auto value) mutable {
              if (!alive.expired()) then(std::move(value));
            });
}

Result<std::unique_ptr<Journal>> Journal::open(Disk& disk, Background& background, Random& random,
                                               const Clock& clock, JournalOptions options,
                                               JournalHooks hooks,
                                               const RecoveredJournal& recovered) {
  std::unique_ptr<Journal> journal(
      new Journal(disk, background, clock, std::move(options), std::move(hooks)));
  if (auto begun = journal->begin(random, recovered); !begun) return std::unexpected(begun.error());
  return journal;
}

Result<> Journal::begin(Random& random, const RecoveredJournal& recovered) {
  if (auto made = disk_.make_directories(options_.directory); !made) return made;
  begin_ = recovered.exists ? recovered.end : options_.first_lsn;
  // A new incarnation, in a new file: what the last one left behind its end can then never be taken
  // for a round of this one.
  incarnation_ = recovered.incarnation + 1;
  salt_ = random.u64();
  if (auto taken = take_over_files(recovered); !taken) return taken;
  // A journal need not begin at 0.
  checkpoint_ = live_.empty() ? begin_ : std::max(recovered.checkpoint, live_.front()->first);

  auto file = take_spare(options_.file_bytes);
  if (!file) {
    file = std::make_shared<JournalFile>();
    file->path = new_spare_path();
    file->bytes = options_.file_bytes;
    auto made = make_file(disk_, file->path, file->bytes);
    // On a full disk a small file will do to begin with: deliveries free space.
    while (!made && made.error().code == Errc::no_space && file->bytes > min_file_bytes) {
      disk_is_full_ = true;
      file->bytes = std::max(min_file_bytes, round_up_to_block(file->bytes / 4));
      made = make_file(disk_, file->path, file->bytes);
    }
    if (!made) return made;
  }

  file->first = begin_;
  const auto path = path_of(journal_file_name(begin_));
  if (auto renamed = disk_.rename(std::exchange(file->path, path), path); !renamed) return renamed;
  auto opened = disk_.open(path, {.write = true, .direct = true});
  if (!opened) return std::unexpected(opened.error());
  file->file = std::move(*opened);
  AlignedBuffer header(block_bytes);
  file_header(begin_).write(header.span());
  if (auto written = file->file->pwrite(0, header.view()); !written) return written;
  if (auto synced = file->file->sync(); !synced) return synced;
  // The name too: without it a power cut may keep the header and lose the file.
  if (auto synced = disk_.sync_directory(options_.directory); !synced) return synced;

  open_first_ = begin_;
  open_bytes_ = file->bytes;
  // The header's block is synced, so the first round begins after it.
  durable_ = begin_ + block_bytes;
  data_end_ = stated_ = begin_;
  written_ = file;
  live_.push_back(std::move(file));
  ++stats_.files;
  return {};
}

// A file that we are about to remove must be none that recover_journal() would have read.
Result<> Journal::check_never_begun(const std::string& path, Lsn first) {
  auto file = disk_.open(path, {});
  if (!file) return std::unexpected(file.error());
  Buffer block(block_bytes);
  const auto got = (*file)->pread(0, block);
  if (!got) return std::unexpected(got.error());
  block.resize(*got);
  const auto header = parse_file_header(block);
  if (!header || (*header && (*header)->first == first))
    return fail(
        Errc::invalid,
        fmt::format("{}: holds records that were not recovered; nothing was changed", path));
  return {};
}

// Sorts what is in the directory into live files, spares, and what is removed.
Result<> Journal::take_over_files(const RecoveredJournal& recovered) {
  const auto entries = disk_.list(options_.directory);
  if (!entries) return std::unexpected(entries.error());
  bool removed_some = false;
  const auto remove = [&](const std::string& path) {
    removed_some = true;
    return disk_.remove(path);
  };
  // The last first: that a file is there says that all before it was synced.
  for (auto entry = entries->rbegin(); entry != entries->rend(); ++entry) {
    const auto path = path_of(entry->name);
    const auto first = parse_journal_file_name(entry->name);
    const bool is_spare = entry->name.ends_with(spare_extension);
    if (!first && !is_spare) continue;
    // Begun, but nothing in it was ever synced.
    if (first && (!recovered.exists || *first >= begin_)) {
      if (auto unused = check_never_begun(path, *first); !unused) return unused;
      if (auto gone = remove(path); !gone) return gone;
      continue;
    }
    const auto opened = disk_.open(path, {});
    if (!opened) return std::unexpected(opened.error());
    const auto size = (*opened)->size();
    if (!size) return std::unexpected(size.error());
    auto file = std::make_shared<JournalFile>();
    file->path = path;
    file->bytes = *size / block_bytes * block_bytes;
    // The file that the checkpoint lies in is the last that begins at or before it.
    const bool is_live = first && (live_.empty() || live_.front()->first > recovered.checkpoint);
    if (is_live) {
      file->first = *first;
      live_.push_front(std::move(file));
    } else if (file->bytes == options_.file_bytes) {
      spares_.push_back(std::move(file));
    } else if (auto gone = remove(path); !gone) {
      return gone;
    }
  }
  if (removed_some) return disk_.sync_directory(options_.directory);
  return {};
}

// The salt makes it a name that no leftover has.
std::string Journal::new_spare_path() {
  return path_of(fmt::format("{:016x}-{}{}", salt_, next_spare_++, spare_extension));
}

JournalFileHeader Journal::file_header(Lsn first) const {
  return {options_.shard, incarnation_, salt_, first, begin_};
}

Lsn Journal::gathered_end() const {
  if (!rounds_.empty()) return rounds_.back()->end();
  return in_flight_ ? in_flight_->end() : durable_;
}

bool Journal::has_room(std::uint64_t bytes, Reserve reserve) const {
  if (failure_) return false;
  const auto kept = reserve == Reserve::keep ? options_.reserve_bytes : 0;
  const auto need = round_up_to_block(round_header_bytes + 4 + bytes) + block_bytes;
  if (live_bytes() + need + kept > options_.max_bytes) return false;
  if (!disk_is_full_ && need <= options_.file_bytes) return true;

  // Only what is on the disk counts.
  const auto end = gathered_end();
  const auto open_end = open_first_ + open_bytes_;
  const auto rest = open_is_on_disk_ && open_end > end ? open_end - end : 0;
  std::uint64_t sum = rest, largest = rest;
  for (const auto& spare : spares_) {
    sum += spare->bytes;
    largest = std::max(largest, spare->bytes);
  }
  // A round never spans two files, so one of them needs room for all of it.
  if (need <= largest && need + kept <= sum) return true;
  if (disk_is_full_) return false;
  const auto free = disk_.free_space(options_.directory);
  return free && need + kept <= *free;
}

Result<Lsn> Journal::append(std::span<const Bytes> pieces, Completion completion,
                            Durability durability, Reserve reserve, const SharedBytes& kept) {
  if (failure_) return std::unexpected(*failure_);
  std::uint64_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size();
  const std::uint64_t limit = record_limit(options_.max_bytes, reserve);
  if (bytes > limit) {
    return fail(Errc::too_large, fmt::format("{}: a record has {} bytes; the limit is {}",
                                             options_.directory, bytes, limit));
  }
  if (!has_room(bytes, reserve)) {
    // A refused append is also a reason for a checkpoint, which frees files.
    notify_pressure();
    return fail(
        Errc::no_space,
        fmt::format("{}{}: no room for a record of {} bytes: {} of {} bytes wait for a checkpoint",
                    disk_is_full_ ? "disk full: " : "", options_.directory, bytes, live_bytes(),
                    options_.max_bytes));
  }

  // From here on the append cannot fail: half a record in the round would be written with it, and a
  // record that was reported as refused would come back at the next start.  So a lack of memory
  // ends the broker here (noexcept).
  return [&]() noexcept {
    auto& round = round_for(bytes);
    const Lsn lsn = round.lsn + round.buffer.size();
    round.buffer.append_be32(static_cast<std::uint32_t>(bytes));
    for (const auto& piece : pieces) {
      if (piece.size() < copied_late || !lies_in(piece, kept)) {
        round.buffer.append(piece);
        continue;
      }
      const std::size_t place = round.buffer.size();
      round.buffer.resize_for_overwrite(place + piece.size());
      const auto from = static_cast<std::size_t>(piece.data() - kept.data());
      round.late.push_back({place, kept.part(from, piece.size())});
    }
    ++round.records;
    ++stats_.records;
    stats_.bytes += bytes;
    if (completion) {
      round.waiters.push_back({std::move(completion), durability});
      if (durability == Durability::os) round.some_wait_for_write = true;
    }
    notify_ready();
    notify_pressure();
    return lsn;
  }();
}

// The gathered round that takes a record of so many bytes: the last one, or a new one.
Journal::Round& Journal::round_for(std::uint64_t record_bytes) {
  const auto bytes = 4 + record_bytes;
  const auto open_end = open_first_ + open_bytes_;
  if (!rounds_.empty()) {
    auto& last = *rounds_.back();
    const auto bytes_with_record = last.buffer.size() + bytes;
    // A round without records takes any record: one alone may be larger than a round should be.
    if ((last.records == 0 || bytes_with_record <= options_.round_bytes) &&
        last.lsn + round_up_to_block(bytes_with_record) <= open_end)
      return last;
  }

  const auto need = round_up_to_block(round_header_bytes + bytes);
  // A finished round's memory is reused: a fresh buffer costs page faults.
  auto round = used_ ? std::exchange(used_, nullptr) : std::make_shared<Round>();
  round->lsn = gathered_end();
  if (round->lsn + need > open_end) {
    // The record does not fit into the file, so this round begins the next one.  A round never
    // spans two files, so that it can be written with one call.
    open_first_ = round->lsn;
    open_bytes_ = std::max(options_.file_bytes, block_bytes + need);
    round->begins_file = open_bytes_;
    round->new_file = take_spare(open_bytes_);
    open_is_on_disk_ = round->new_file != nullptr;
    round->lsn += block_bytes;
  }
  round->buffer.reserve(round_header_bytes + bytes);
  round->buffer.resize(round_header_bytes);
  rounds_.push_back(std::move(round));
  return *rounds_.back();
}

std::shared_ptr<Journal::JournalFile> Journal::take_spare(std::uint64_t bytes) {
  // Prefers a spare that is not being filled: a round that takes one has to wait for the piece that
  // is being written.
  std::ranges::stable_sort(spares_, {}, &JournalFile::filling);
  const auto found =
      std::ranges::find_if(spares_, [&](const auto& spare) { return spare->bytes >= bytes; });
  if (found == spares_.end()) return nullptr;
  auto spare = *found;
  spares_.erase(found);
  spare->taken = true;
  return spare;
}

void Journal::notify_ready() {
  if (ready_notified_ || in_flight_ || rounds_.empty() || failure_) return;
  ready_notified_ = true;
  if (hooks_.on_ready) hooks_.on_ready();
}

void Journal::notify_pressure() {
  if (pressure_notified_ || live_bytes() < options_.max_bytes / 2 || failure_) return;
  pressure_notified_ = true;
  if (hooks_.on_pressure) hooks_.on_pressure();
}

void Journal::start_round() {
  ready_notified_ = false;
  if (failure_ || in_flight_ || rounds_.empty() || holding_rounds_) return;
  auto& round = *rounds_.front();
  if (round.begins_file > 0) {
    if (!round.new_file) round.new_file = take_spare(round.begins_file);
    if (!round.new_file) {  // It goes when there is one.
      if (!disk_is_full_ && !spare_postponed_) prepare_spare(round.begins_file, false);
      return;
    }
    // Unless a later round begins yet another file, this is the open one.
    if (round.lsn - block_bytes == open_first_) open_is_on_disk_ = true;
    if (round.new_file->filling) return;  // It stops after its next piece.
  }

  in_flight_ = std::move(rounds_.front());
  rounds_.pop_front();
  round.number = next_number_++;
  // Each round states how far the journal was synced, so that recovery can tell damage before that
  // position from a torn end after it.
  round.synced_to = durable_;
  round.payload_bytes = static_cast<std::uint32_t>(round.buffer.size() - round_header_bytes);
  round.buffer.pad_to_block();
  stats_.disk_bytes += round.size() + (round.begins_file > 0 ? block_bytes : 0);
  if (round.begins_file > 0) ++stats_.files;
  write_round(!round.some_wait_for_write);
}

// The work of one round, done on the Background.  After Errc::exhausted it may be run again, and
// continues where it stopped.
struct Journal::RoundTask {
  Disk& disk;
  const Clock& clock;
  std::string directory;
  std::shared_ptr<Round> round;
  std::shared_ptr<File> file;
  std::uint64_t place;
  JournalFileHeader header;
  std::string old_path, new_path;  // Only for a round that begins a file.
  bool renamed = false, written = false, synced = false;

  bool begins_file() const { return round->begins_file > 0; }
  Result<> write() {
    if (written) return {};
    if (begins_file()) {
      if (!renamed) {
        if (auto named = disk.rename(old_path, new_path); !named)
          return not_begun(disk, directory, named.error());
        renamed = true;
      }
      auto opened = disk.open(new_path, {.write = true, .direct = true});
      if (!opened) return not_begun(disk, directory, opened.error());
      file = std::move(*opened);
      AlignedBuffer block(block_bytes);
      header.write(block.span());
      if (auto begun = file->pwrite(0, block.view()); !begun) return begun;
    }
    auto& buffer = round->buffer;
    for (const auto& [at, bytes] : round->late)
      std::memcpy(buffer.data() + at, bytes.data(), bytes.size());
    // The checksum over the payload is computed here and not on the shard's thread.
    const auto payload = buffer.view().subspan(round_header_bytes, round->payload_bytes);
    const RoundHeader sealed{.salt = header.salt,
                             .incarnation = header.incarnation,
                             .number = round->number,
                             .lsn = round->lsn,
                             .synced_to = round->synced_to,
                             .payload_bytes = round->payload_bytes,
                             .records = round->records,
                             .payload_crc = crc32c(payload)};
    sealed.write(buffer.data());
    if (auto done = file->pwrite(place, buffer.view()); !done) return done;
    written = true;
    return {};
  }
  Result<> sync() {
    // Once only: a run that is repeated for the directory does not sync the file again.
    if (!synced) {
      if (auto done = file->sync(); !done) return done;
      synced = true;
    }
    // The name too: without it a power cut may keep the bytes and lose the file.
    if (!begins_file()) return {};
    if (auto named = disk.sync_directory(directory); !named)
      return not_begun(disk, directory, named.error());
    return {};
  }
  Outcome timed(Result<> (RoundTask::*step)()) {
    Outcome outcome;
    const auto start = clock.mono();
    outcome.result = Background::caught([&] { return (this->*step)(); });
    outcome.took = clock.mono() - start;
    if (begins_file()) outcome.opened = file;
    return outcome;
  }
  Result<> write_and_sync() {
    if (auto done = write(); !done) return done;
    return sync();
  }
};

// One piece of background work, or two when a completion waits for the write alone.
void Journal::write_round(bool also_sync) {
  auto& round = *in_flight_;
  auto& file = round.begins_file > 0 ? round.new_file : written_;
  RoundTask task{disk_, clock_,         options_.directory, in_flight_, file->file,
                 0,     file_header(0), file->path,         {}};
  if (round.begins_file > 0) {
    file->first = round.lsn - block_bytes;
    file->path = path_of(journal_file_name(file->first));
    task.new_path = file->path;
  }
  task.header.first = file->first;
  task.place = round.lsn - file->first;
  run_round(std::make_shared<RoundTask>(std::move(task)), also_sync);
}

void Journal::run_round(std::shared_ptr<RoundTask> task, bool also_sync) {
  run_on(
      round_lane_,
      [task, also_sync] {
        return task->timed(also_sync ? &RoundTask::write_and_sync : &RoundTask::write);
      },
      [this, task, also_sync](Outcome outcome) {
        if (failure_) return;
        if (postpone_round(outcome, [this, task, also_sync] { run_round(task, also_sync); }))
          return;
        if (also_sync || !outcome.result) return finish_round(std::move(outcome));
        // Completions that need only the write do not wait for the sync that follows.
        complete(*in_flight_, false, {});
        sync_round(task, outcome.took);
      });
}

void Journal::sync_round(std::shared_ptr<RoundTask> task, std::chrono::nanoseconds took) {
  run_on(
      round_lane_, [task] { return task->timed(&RoundTask::sync); },
      [this, task, took](Outcome outcome) {
        outcome.took += took;
        // Only the directory's sync can be postponed, because it opens the directory; a failed
        // fdatasync is final.
        if (postpone_round(outcome, [this, task, all = outcome.took] { sync_round(task, all); }))
          return;
        finish_round(std::move(outcome));
      });
}

bool Journal::postpone_round(const Outcome& outcome, std::function<void()> again) {
  if (failure_ || outcome.result || outcome.result.error().code != Errc::exhausted) return false;
  postponed_round_ = std::move(again);
  if (hooks_.on_postponed) hooks_.on_postponed(outcome.result.error());
  tell_held();
  return true;
}

void Journal::finish_round(Outcome outcome) {
  if (failure_) return;  // All have been notified.
  if (!outcome.result) return fail_all(outcome.result.error());

  const auto round = std::move(in_flight_);
  in_flight_ = nullptr;
  // The state is complete before the completions run, because they may append.
  durable_ = round->end();
  stated_ = round->synced_to;
  if (round->records > 0) data_end_ = durable_;
  if (round->begins_file > 0) {
    round->new_file->file = std::move(outcome.opened);
    written_ = std::move(round->new_file);
    live_.push_back(written_);  // Only now: until here the one before it was the last one.
  }
  ++stats_.syncs;
  ++(round->records > 0 ? stats_.rounds : stats_.idle_notes);
  round_us_.add(whole_microseconds(outcome.took), clock_.mono());

  // Ahead: not for a broker that hardly writes, and long before the file is full.
  if (spares_.empty() && !disk_is_full_ && !spare_postponed_ &&
      durable_ - written_->first > written_->bytes / 8)
    prepare_spare(options_.file_bytes, true);

  complete(*round, true, {});

  // A buffer that one large record has grown is not kept.
  if (!used_ && round->buffer.capacity() <= 2 * options_.round_bytes) {
    // Emptied piece by piece, so that the buffer and the list keep their memory.
    AlignedBuffer buffer = std::move(round->buffer);
    auto waiters = std::move(round->waiters);
    buffer.clear();
    waiters.clear();
    *round = Round{};
    round->buffer = std::move(buffer);
    round->waiters = std::move(waiters);
    used_ = round;
  }
  tell_held();
  notify_ready();
}

// In the order of the appends.  Not `all`: those that wait for the write.
void Journal::complete(Round& round, bool all, const Result<>& result) {
  for (auto& waiter : round.waiters) {
    // Waiters that were called after the write are empty by the time of the sync.
    if (!waiter.completion || (!all && waiter.durability != Durability::os)) continue;
    auto completion = std::exchange(waiter.completion, nullptr);
    completion(result);
  }
}

void Journal::fail_all(const Error& error) {
  if (failure_) return;
  failure_ = error;
  postponed_round_ = nullptr;
  log_error("storage", "journal {}: {}; nothing more is written to it", options_.directory,
            error.message);
  // Before the completions: the host must refuse new work before any waiting request sees the
  // error.
  if (hooks_.on_failure) hooks_.on_failure(*failure_);
  // The round in flight is the oldest: an error too is reported in the order of the appends.
  auto rounds = std::exchange(rounds_, {});
  if (in_flight_) rounds.push_front(std::exchange(in_flight_, nullptr));
  for (const auto& round : rounds) complete(*round, true, std::unexpected(*failure_));
  tell_held();
}

void Journal::prepare_spare(std::uint64_t bytes, bool ahead) {
  if (preparing_ || failure_) return;
  preparing_ = true;
  auto spare = std::make_shared<JournalFile>();
  spare->path = new_spare_path();
  spare->bytes = bytes;
  run([&disk = disk_, path = spare->path,
       bytes] { return with_memory([&] { return make_file(disk, path, bytes); }); },
      [this, spare, ahead](Result<> made) {
        preparing_ = false;
        if (failure_) return;
        // A new file is not found where its directory is not, which may come back.
        if (!made &&
            (made.error().code == Errc::exhausted || made.error().code == Errc::not_found)) {
          spare_postponed_ = true;
          if (hooks_.on_postponed) hooks_.on_postponed(made.error());
          return;
        }
        if (!made && made.error().code != Errc::no_space) return fail_all(made.error());
        if (!made) {
          if (!std::exchange(disk_is_full_, true)) {
            log_warn("storage",
                     "disk full, no space for journal {}: {}; new records are refused until there "
                     "is space",
                     options_.directory, made.error().message);
            if (hooks_.on_pressure) hooks_.on_pressure();
          }
          return;
        }
        disk_is_full_ = false;
        spares_.push_back(spare);
        // A round that waits for the file goes first: zeros would only hold it up.
        const bool wanted_now = std::ranges::any_of(
            rounds_, [](const auto& round) { return round->begins_file > 0 && !round->new_file; });
        if (ahead && !wanted_now) fill_with_zeros(spare, 0);
        notify_ready();
      });
}

// A sync over blocks with zeros has no extent to convert.  They are written one piece at a time, so
// that rounds get between; it ends early when the spare is taken.
void Journal::fill_with_zeros(std::shared_ptr<JournalFile> spare, std::uint64_t at) {
  spare->filling = true;
  const auto end = std::min(at + zeros_bytes, spare->bytes);
  run(
      [&disk = disk_, path = spare->path, at, end, last = end == spare->bytes] {
        return with_memory([&]() -> Result<> {
          auto file = disk.open(path, {.write = true, .direct = true});
          if (!file) return std::unexpected(file.error());
          const AlignedBuffer zeros(static_cast<std::size_t>(end - at));
          if (auto written = (*file)->pwrite(at, zeros.view()); !written) return written;
          return last ? (*file)->sync() : Result<>{};
        });
      },
      [this, spare, end](Result<> filled) {
        spare->filling = false;
        if (failure_) return;
        // A spare without zeros will do: syncs over it cost more.  One that is not found is so
        // with its directory, or the round that takes it finds that out.
        if (!filled && filled.error().code != Errc::exhausted &&
            filled.error().code != Errc::not_found)
          return fail_all(filled.error());
        if (!filled) return notify_ready();
        if (!spare->taken && end < spare->bytes) return fill_with_zeros(spare, end);
        notify_ready();
      });
}

void Journal::hold_rounds(std::move_only_function<void()> held) {
  TARRY_ASSERT(!holding_rounds_, "rounds are held once at a time");
  holding_rounds_ = true;
  on_held_ = std::move(held);
  tell_held();
}

// A round that is postponed does nothing and reports nothing while rounds are held.  To wait for it
// would hold up all shards for as long as a descriptor is missing.
void Journal::tell_held() {
  if (on_held_ && (!in_flight_ || postponed_round_)) std::exchange(on_held_, nullptr)();
}

void Journal::release_rounds() {
  holding_rounds_ = false;
  on_held_ = nullptr;
  // A try that fell into the time of the holding was left out.
  retry_space();
  notify_ready();
}

void Journal::keep_files(bool keep) {
  keeping_files_ = keep;
  // Files that checkpoints have passed meanwhile become free now.
  if (!keep && !failure_) release(checkpoint_);
}

void Journal::retry_space() {
  if (failure_) return;
  if (!holding_rounds_) {
    if (const auto again = std::exchange(postponed_round_, nullptr)) again();
  }
  const bool postponed = std::exchange(spare_postponed_, false);
  if (!disk_is_full_ && !postponed) return;
  // A waiting round may need a file of more than the usual size.
  const bool one_waits =
      !rounds_.empty() && rounds_.front()->begins_file > 0 && !rounds_.front()->new_file;
  prepare_spare(one_waits ? rounds_.front()->begins_file : options_.file_bytes, false);
}

bool Journal::needs_idle_note() const {
  return !failure_ && is_idle() && stated_ < data_end_;
}

JournalStats Journal::stats() const {
  JournalStats stats = stats_;
  stats.live_bytes = live_bytes();
  stats.round_us = round_us_.distribution(clock_.mono());
  return stats;
}

void Journal::note_idle() {
  if (!needs_idle_note()) return;
  // An empty round will do: its header says how far the journal was synced.
  round_for(0);
  start_round();
}

void Journal::checkpoint(Lsn lsn, Completion then) {
  TARRY_ASSERT(!checkpointing_, "one checkpoint at a time");
  TARRY_ASSERT(lsn >= checkpoint_ && lsn <= durable_ && lsn % block_bytes == 0,
               "a checkpoint is where durable_lsn() once was");
  checkpointing_ = true;
  run(
      [&disk = disk_, directory = options_.directory,
       checkpoint = JournalCheckpoint{lsn, incarnation_}] {
        return write_checkpoint(disk, directory, checkpoint);
      },
      [this, lsn, then = std::move(then)](Result<> noted) mutable {
        checkpointing_ = false;
        // Files are released only after the note is durable: recovery must never start at a reused
        // file.
        if (noted) release(lsn);
        if (then) then(noted);
      });
}

// The files wholly before `lsn` are used again, or removed when there are enough of them.
void Journal::release(Lsn lsn) {
  checkpoint_ = lsn;
  // This many files hold max_bytes; more of them would never be used.
  const auto enough = options_.max_bytes / options_.file_bytes + 1;
  std::vector<std::string> surplus;
  // A file is passed when the one after it begins at or before `lsn`.
  while (!keeping_files_ && live_.size() > 1 && live_[1]->first <= lsn) {
    auto file = std::move(live_.front());
    live_.pop_front();
    if (file->bytes != options_.file_bytes || live_.size() + spares_.size() >= enough) {
      surplus.push_back(file->path);
      continue;
    }
    file->file = nullptr;
    file->taken = false;
    spares_.push_back(std::move(file));
    disk_is_full_ = false;
  }
  if (!surplus.empty())
    run(
        [&disk = disk_, surplus = std::move(surplus)]() -> Result<> {
          for (const auto& path : surplus)
            if (auto removed = disk.remove(path); !removed) return removed;
          return {};
        },
        [this](Result<> removed) {
          // Harmless: the next start uses the file as a spare or removes it.
          if (!removed)
            log_warn("storage", "journal {}: {}", options_.directory, removed.error().message);
        });
  retry_space();
  pressure_notified_ = false;
  notify_pressure();
  notify_ready();
}

}  // namespace tarry::storage
