#include "storage/segment.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/core.h>

#include "base/assert.h"
#include "records/record_batch.h"
#include "storage/index.h"

namespace tarry::storage {
namespace {

// The size of one write to the disk.
constexpr std::size_t write_bytes = 1 << 20;

// Positions are numbers of 32 bits with a sign: no batch begins after this.
constexpr std::uint64_t max_bytes = std::uint64_t{1} << 31;

constexpr auto never = OpenOptions::Create::never;
constexpr auto if_absent = OpenOptions::Create::if_absent;

// A failed sync is final, whatever the reason: also for want of space, since what it should have
// kept is gone from memory by then.
Result<> sync_file(File& file) {
  auto synced = file.sync();
  if (!synced) return fail(Errc::io, std::move(synced.error().message));
  return {};
}

// Cuts what a failed write left behind `size`.
Result<> cut_to(File& file, std::uint64_t size) {
  const auto there = file.size();
  if (!there) return std::unexpected(there.error());
  if (*there < size) {
    return fail(Errc::corrupt, fmt::format("{}: the file has {} bytes, but {} were written",
                                           file.path(), *there, size));
  }
  return *there > size ? file.truncate(size) : Result<>{};
}

Result<> write_batches(File& file, std::uint64_t at, const std::vector<SharedBytes>& batches) {
  std::uint64_t start = at / block_bytes * block_bytes;
  const auto lead = static_cast<std::size_t>(at - start);
  std::size_t total = lead;
  for (const auto& batch : batches) total += batch.size();
  AlignedBuffer buffer;
  buffer.reserve(static_cast<std::size_t>(round_up_to_block(std::min(total, write_bytes))));

  if (lead > 0) {  // The block that the file ends in, which is written again with what follows.
    // Direct I/O writes whole blocks only, so the bytes before `at` are read back and written again
    // unchanged.
    buffer.resize(block_bytes);
    const auto got = file.pread(start, buffer.span());
    // Nothing of these batches has been written, so unlike a failed write this may be tried again.
    if (!got) return fail(Errc::exhausted, got.error().message);
    if (*got < lead) return fail(Errc::corrupt, fmt::format("{}: ends before {}", file.path(), at));
    buffer.resize(lead);
  }
  for (const auto& batch : batches) {
    Bytes left = batch.view();
    while (!left.empty()) {
      const auto part = std::min(left.size(), write_bytes - buffer.size());
      buffer.append(left.first(part));
      left = left.subspan(part);
      if (buffer.size() < write_bytes) continue;
      if (auto written = file.pwrite(start, buffer.view()); !written) return written;
      start += buffer.size();
      buffer.clear();
    }
  }
  const std::uint64_t end = start + buffer.size();
  if (buffer.empty()) return {};
  buffer.pad_to_block();
  if (auto written = file.pwrite(start, buffer.view()); !written) return written;
  // The file never keeps the padding: its size is where its batches end.
  return end == start + buffer.size() ? Result<>{} : file.truncate(end);
}

Result<> append_to_index(Disk& disk, const std::string& path, std::uint64_t at, Bytes entries,
                         bool sync) {
  auto file = disk.open(path, {.write = true, .create = if_absent});
  if (!file) return std::unexpected(file.error());
  if (auto cut = cut_to(**file, at); !cut) return cut;
  if (!entries.empty()) {
    if (auto written = (*file)->pwrite(at, entries); !written) return written;
  }
  return sync ? sync_file(**file) : Result<>{};
}

Result<> sync_path(Disk& disk, const std::string& path) {
  auto file = disk.open(path, {.write = true});
  if (!file) return std::unexpected(file.error());
  return sync_file(**file);
}

// An index file that is open, with the entries that its size has room for; null without a file.
struct IndexFile {
  std::unique_ptr<File> file;
  std::uint32_t entries = 0;
};
Result<IndexFile> open_index(Disk& disk, const std::string& path, std::size_t entry_bytes) {
  auto file = disk.open(path, {});
  if (!file && file.error().code == Errc::not_found) return IndexFile{};
  if (!file) return std::unexpected(file.error());
  const auto size = (*file)->size();
  if (!size) return std::unexpected(size.error());
  return IndexFile{std::move(*file), static_cast<std::uint32_t>(*size / entry_bytes)};
}

// The whole of an index file; empty without a file.
Result<Buffer> read_index(Disk& disk, const std::string& path, std::size_t entry_bytes) {
  auto index = open_index(disk, path, entry_bytes);
  if (!index) return std::unexpected(index.error());
  Buffer bytes(index->entries * entry_bytes);
  if (bytes.empty()) return bytes;
  const auto got = index->file->pread(0, bytes);
  if (!got) return std::unexpected(got.error());
  bytes.resize(*got / entry_bytes * entry_bytes);
  return bytes;
}

// The batch that begins at `position`, if there is one with a right checksum.
Result<std::optional<BatchPlace>> good_batch_at(const File& file, std::uint64_t position,
                                                std::uint64_t end) {
  if (position >= end) return std::nullopt;
  SegmentScanner scanner(file, position, end, block_bytes);
  const auto place = scanner.next();
  if (!place && place.error().code == Errc::corrupt) return std::nullopt;
  if (!place || !*place) return place;
  const auto bytes = scanner.bytes();
  if (!bytes) return std::unexpected(bytes.error());
  const auto batch = records::BatchView::parse(*bytes);
  if (!batch || !batch->crc_matches()) return std::nullopt;
  return place;
}

// Whether nothing stands from `from` to `end` but zeros up to the end of the block: what a direct
// write leaves when the process dies before the file is cut to its length.
Result<bool> is_padding(const File& file, std::uint64_t from, std::uint64_t end) {
  if (end - from >= block_bytes || end % block_bytes != 0) return false;
  AlignedBuffer buffer(2 * block_bytes);
  const std::uint64_t start = from / block_bytes * block_bytes;
  const auto got = file.pread(start, buffer.span());
  if (!got) return std::unexpected(got.error());
  const auto bytes = buffer.view().first(std::min<std::size_t>(*got, end - start));
  return std::ranges::all_of(bytes.subspan(std::min<std::size_t>(bytes.size(), from - start)),
                             [](std::uint8_t byte) { return byte == 0; });
}

// Gives checked batches to `take` until it returns false, or the file or what is good of it ends.
Result<std::optional<SegmentDamage>> scan_checked(const File& file, std::uint64_t from,
                                                  std::uint64_t end, const auto& take) {
  SegmentScanner scanner(file, from, end);
  for (;;) {
    const std::uint64_t position = scanner.position();
    const auto place = scanner.next();
    std::string wrong;
    if (!place && place.error().code != Errc::corrupt) return std::unexpected(place.error());
    if (!place) {
      wrong = place.error().message;
    } else if (!*place) {
      return std::nullopt;
    } else {
      const auto bytes = scanner.bytes();
      if (!bytes) return std::unexpected(bytes.error());
      const auto batch = records::BatchView::parse(*bytes);
      if (batch && batch->crc_matches()) {
        if (!take(**place)) return std::nullopt;
        continue;
      }
      wrong = fmt::format("{}: the batch of offset {} at position {} has a wrong checksum",
                          file.path(), (*place)->first, position);
    }
    const auto padding = is_padding(file, position, end);
    if (!padding) return std::unexpected(padding.error());
    if (*padding) return std::nullopt;
    return SegmentDamage{position, std::move(wrong)};
  }
}

}  // namespace

std::string segment_path(std::string_view directory, Offset base, std::string_view suffix) {
  return fmt::format("{}/{:020}{}", directory, base, suffix);
}

std::optional<Offset> segment_base(std::string_view name) {
  constexpr std::size_t digits = 20;
  if (name.size() != digits + 4 || !name.ends_with(".log")) return std::nullopt;
  Offset base = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + digits, base);
  if (error != std::errc{} || end != name.data() + digits || name[0] == '-') return std::nullopt;
  return base;
}

Result<std::optional<SegmentDamage>> scan_segment(
    const File& file, std::uint64_t from, std::uint64_t end,
    const std::function<bool(const BatchPlace&)>& take) {
  return scan_checked(file, from, end, take);
}

void add_batch(SegmentState& state, const BatchPlace& batch, std::int64_t index_interval_bytes,
               Buffer& index, Buffer& time_index) {
  if (batch.max_timestamp > state.max_timestamp) {
    state.max_timestamp = batch.max_timestamp;
    state.max_timestamp_offset = batch.last;
  }
  if (std::int64_t{state.bytes_since_entry} > index_interval_bytes) {
    // Before the batch is counted: the entry is to name the place where it begins.
    append_entry(index, state.base, IndexEntry{batch.last, state.bytes});
    ++state.index_entries;
    // Kafka adds a time entry together with an index entry.
    close_segment(state, time_index);
    state.bytes_since_entry = 0;
  }
  state.bytes += batch.bytes;
  state.bytes_since_entry += batch.bytes;
  state.next = batch.last + 1;
}

void close_segment(SegmentState& state, Buffer& time_index) {
  if (state.max_timestamp <= state.last_time_entry) return;
  append_entry(time_index, state.base, TimeEntry{state.max_timestamp, state.max_timestamp_offset});
  ++state.time_entries;
  state.last_time_entry = state.max_timestamp;
}

bool must_roll(const SegmentState& state, const LogConfig& config, std::uint64_t batch_bytes,
               Offset batch_last, WallTime appended) {
  // A batch that is larger than a segment may be gets one of its own, so an empty segment takes
  // anything.
  if (state.empty()) return false;
  constexpr std::int64_t max_delta = std::numeric_limits<std::int32_t>::max();
  const auto segment_bytes =
      static_cast<std::uint64_t>(std::clamp<std::int64_t>(config.segment_bytes, 0, max_delta));
  const std::int64_t index_bytes = config.segment_index_bytes;
  return state.bytes + batch_bytes > segment_bytes ||
         appended - state.first_append > config.segment_ms ||
         state.index_entries >= index_bytes / std::int64_t{index_entry_bytes} ||
         // One less: closing needs an entry.
         state.time_entries >= index_bytes / std::int64_t{time_entry_bytes} - 1 ||
         batch_last - state.base > max_delta;
}

Result<> write_segment(Disk& disk, std::string_view directory, const SegmentWrite& write,
                       bool sync) {
  const auto& before = write.before;
  const bool create = write.is_new || before.empty();
  {
    auto file = disk.open(segment_path(directory, before.base, ".log"),
                          {.write = true, .create = create ? if_absent : never, .direct = true});
    if (!file) return std::unexpected(file.error());
    if (auto cut = cut_to(**file, before.bytes); !cut) return cut;
    if (!write.batches.empty()) {
      if (auto written = write_batches(**file, before.bytes, write.batches); !written)
        return written;
    }
    if (sync) {
      if (auto synced = sync_file(**file); !synced) return synced;
    }
  }
  // The file is made without an entry too: sync_segment() opens all three.
  if (create || !write.index.empty() || (sync && write.indexes_unsynced)) {
    if (auto written = append_to_index(disk, segment_path(directory, before.base, ".index"),
                                       before.index_entries * index_entry_bytes, write.index, sync);
        !written)
      return written;
  }
  if (create || !write.time_index.empty() || (sync && write.indexes_unsynced)) {
    if (auto written =
            append_to_index(disk, segment_path(directory, before.base, ".timeindex"),
                            before.time_entries * time_entry_bytes, write.time_index, sync);
        !written)
      return written;
  }
  return {};
}

Result<> sync_segment(Disk& disk, std::string_view directory, Offset base) {
  for (const char* suffix : {".log", ".index", ".timeindex"}) {
    if (auto synced = sync_path(disk, segment_path(directory, base, suffix)); !synced)
      return synced;
  }
  return {};
}

Result<> undo_write(Disk& disk, std::string_view directory, const SegmentWrite& write) {
  // The index files first: an entry must never name what is not there.
  const std::pair<const char*, std::uint64_t> files[] = {
      {".timeindex", write.before.time_entries * time_entry_bytes},
      {".index", write.before.index_entries * index_entry_bytes},
      {".log", write.before.bytes}};
  for (const auto& [suffix, size] : files) {
    const auto path = segment_path(directory, write.before.base, suffix);
    if (write.is_new) {
      const auto removed = disk.remove(path);
      if (!removed && removed.error().code != Errc::not_found) return removed;
      continue;
    }
    auto file = disk.open(path, {.write = true});
    if (!file && file.error().code == Errc::not_found) continue;
    if (!file) return std::unexpected(file.error());
    if (auto cut = cut_to(**file, size); !cut) return cut;
  }
  return {};
}

Result<SegmentState> load_closed_segment(Disk& disk, std::string_view directory, Offset base,
                                         Offset next) {
  SegmentState state;
  state.base = base;
  state.next = next;
  auto log = disk.open(segment_path(directory, base, ".log"), {.direct = true});
  if (!log) return std::unexpected(log.error());
  const auto size = (*log)->size();
  if (!size) return std::unexpected(size.error());
  if (*size > std::numeric_limits<std::uint32_t>::max()) {
    return fail(Errc::corrupt, fmt::format("{}: has {} bytes; a segment must be smaller than 4 GiB",
                                           (*log)->path(), *size));
  }
  const auto modified = (*log)->modified();
  if (!modified) return std::unexpected(modified.error());
  state.bytes = static_cast<std::uint32_t>(*size);
  // When batches were appended is not written anywhere; the file's own time stands for it.
  state.first_append = state.last_append = *modified;

  const auto index = open_index(disk, segment_path(directory, base, ".index"), index_entry_bytes);
  if (!index) return std::unexpected(index.error());
  state.index_entries = index->entries;
  const auto times =
      open_index(disk, segment_path(directory, base, ".timeindex"), time_entry_bytes);
  if (!times) return std::unexpected(times.error());
  state.time_entries = times->entries;
  if (times->entries > 0) {
    const auto last = read_time_entry(*times->file, base, times->entries - 1);
    if (!last) return std::unexpected(last.error());
    state.max_timestamp = state.last_time_entry = last->timestamp;
    state.max_timestamp_offset = last->offset;
    return state;
  }
  // No time index: only the batches know.
  SegmentScanner scanner(**log, 0, *size);
  for (;;) {
    const auto place = scanner.next();
    if (!place && place.error().code != Errc::corrupt) return std::unexpected(place.error());
    // Damage only ends the search: the read that meets it reports it.
    if (!place || !*place) return state;
    if ((*place)->max_timestamp <= state.max_timestamp) continue;
    state.max_timestamp = (*place)->max_timestamp;
    state.max_timestamp_offset = (*place)->last;
  }
}

Result<LoadedSegment> load_active_segment(Disk& disk, std::string_view directory, Offset base,
                                          const LogConfig& config) {
  auto log = disk.open(segment_path(directory, base, ".log"), {.direct = true});
  if (!log) return std::unexpected(log.error());
  const auto size = (*log)->size();
  if (!size) return std::unexpected(size.error());
  const auto modified = (*log)->modified();
  if (!modified) return std::unexpected(modified.error());
  const auto index_path = segment_path(directory, base, ".index");
  const auto times_path = segment_path(directory, base, ".timeindex");
  const auto index = open_index(disk, index_path, index_entry_bytes);
  if (!index) return std::unexpected(index.error());
  const auto times = open_index(disk, times_path, time_entry_bytes);
  if (!times) return std::unexpected(times.error());
  const std::uint64_t end = std::min(*size, max_bytes);  // Only garbage can follow.

  LoadedSegment loaded;
  auto& state = loaded.state;
  state.base = state.next = base;

  // From the last entries on, if they are true.
  bool usable = true;
  std::uint64_t from = 0;
  if (index->entries > 0) {
    const auto entry = read_index_entry(*index->file, base, index->entries - 1);
    if (!entry) return std::unexpected(entry.error());
    const auto batch = good_batch_at(**log, entry->position, end);
    if (!batch) return std::unexpected(batch.error());
    usable = *batch && (*batch)->last == entry->offset && (*batch)->first >= base;
    from = entry->position;
    state.index_entries = index->entries;
  }
  if (usable && times->entries > 0) {
    const auto entry = read_time_entry(*times->file, base, times->entries - 1);
    if (!entry) return std::unexpected(entry.error());
    state.max_timestamp = state.last_time_entry = entry->timestamp;
    state.max_timestamp_offset = entry->offset;
    state.time_entries = times->entries;
  }
  if (usable) {
    auto damage = scan_checked(**log, from, end, [&](const BatchPlace& batch) {
      if (batch.max_timestamp > state.max_timestamp) {
        state.max_timestamp = batch.max_timestamp;
        state.max_timestamp_offset = batch.last;
      }
      state.bytes = static_cast<std::uint32_t>(batch.position + batch.bytes);
      state.next = batch.last + 1;
      return true;
    });
    if (!damage) return std::unexpected(damage.error());
    loaded.damage = std::move(*damage);
    state.bytes_since_entry = state.bytes - static_cast<std::uint32_t>(from);
    // A time entry for a batch that is not there shows that the index files do not belong to this
    // .log.
    usable = state.time_entries == 0 || state.max_timestamp_offset < state.next;
  }
  if (!usable) {
    state = {};
    state.base = state.next = base;
    Buffer entries, time_entries;
    auto damage = scan_checked(**log, 0, end, [&](const BatchPlace& batch) {
      add_batch(state, batch, config.index_interval_bytes, entries, time_entries);
      return true;
    });
    if (!damage) return std::unexpected(damage.error());
    loaded.damage = std::move(*damage);
    for (const auto& [path, bytes] :
         {std::pair{index_path, &entries}, {times_path, &time_entries}}) {
      auto file = disk.open(path, {.write = true, .create = if_absent});
      if (!file) return std::unexpected(file.error());
      if (auto cut = cut_to(**file, 0); !cut) return std::unexpected(cut.error());
      if (auto written = (*file)->pwrite(0, *bytes); !written)
        return std::unexpected(written.error());
      if (auto synced = sync_file(**file); !synced) return std::unexpected(synced.error());
    }
  }
  if (!loaded.damage && end < *size) {
    loaded.damage = SegmentDamage{end, fmt::format("{}: has {} bytes; the limit of a segment is {}",
                                                   (*log)->path(), *size, end)};
  }

  state.first_append = state.last_append = *modified;
  const auto first = good_batch_at(**log, 0, end);
  if (!first) return std::unexpected(first.error());
  // When the first batch came is not written anywhere; its own time is the best guess.
  if (*first && (*first)->max_timestamp >= 0)
    state.first_append = std::min(*modified, from_ms((*first)->max_timestamp));
  return loaded;
}

Result<SegmentState> cut_segment(Disk& disk, std::string_view directory, Offset base, Offset offset,
                                 const LogConfig& config) {
  const auto log_path = segment_path(directory, base, ".log");
  const auto log = disk.open(log_path, {.write = true, .direct = true});
  if (!log) return std::unexpected(log.error());
  const auto size = (*log)->size();
  if (!size) return std::unexpected(size.error());

  std::uint64_t position = 0;
  Offset next = base;
  if (offset != base) {
    // Uses as much of the index as exists; every entry is checked against the batches before it is
    // trusted.
    const auto from = checked_position_before(
        disk, directory, **log,
        {.base = base,
         .bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(*size, max_bytes)),
         .index_entries = std::numeric_limits<std::uint32_t>::max()},
        offset);
    if (!from) return std::unexpected(from.error());
    position = *from;
    const auto damage = scan_checked(**log, *from, *size, [&](const BatchPlace& batch) {
      if (batch.first >= offset) return false;
      position = batch.position + batch.bytes;
      next = batch.last + 1;
      return true;
    });
    if (!damage) return std::unexpected(damage.error());
    if (next != offset) {
      return fail(Errc::corrupt,
                  fmt::format("{}: cannot be cut at offset {}: {}", log_path, offset,
                              next > offset ? fmt::format("a batch extends to {}", next - 1)
                              : *damage     ? (*damage)->message
                                            : fmt::format("its batches end before {}", next)));
    }
  }

  // Entries of what stays are true, what follows may be anything.  A time entry that closed the
  // segment goes: it alone stands for a batch after the last one of .index, and may not be synced.
  const auto index_path = segment_path(directory, base, ".index");
  const auto index = read_index(disk, index_path, index_entry_bytes);
  if (!index) return std::unexpected(index.error());
  std::size_t keep = 0;
  IndexEntry before{base - 1, 0};
  for (std::size_t at = 0; at < index->size(); at += index_entry_bytes) {
    const auto entry = index_entry_at(index->data() + at, base);
    if (entry.offset <= before.offset || entry.offset >= offset ||
        entry.position <= before.position || entry.position >= position)
      break;
    before = entry;
    keep = at + index_entry_bytes;
  }
  const auto times_path = segment_path(directory, base, ".timeindex");
  const auto times = read_index(disk, times_path, time_entry_bytes);
  if (!times) return std::unexpected(times.error());
  std::size_t keep_times = 0;
  TimeEntry time_before{-1, base - 1};
  for (std::size_t at = 0; at < times->size(); at += time_entry_bytes) {
    const auto entry = time_entry_at(times->data() + at, base);
    if (entry.timestamp <= time_before.timestamp || entry.offset <= time_before.offset ||
        entry.offset > before.offset)
      break;
    time_before = entry;
    keep_times = at + time_entry_bytes;
  }

  // The index files first: an entry must never say more than there is.
  for (const auto& [path, bytes] : {std::pair{index_path, keep}, {times_path, keep_times}}) {
    auto file = disk.open(path, {.write = true, .create = if_absent});
    if (!file) return std::unexpected(file.error());
    if (auto cut = cut_to(**file, bytes); !cut) return std::unexpected(cut.error());
  }
  if (auto cut = cut_to(**log, position); !cut) return std::unexpected(cut.error());

  // Loaded as at a start, so that the result of the cut is checked and not assumed.
  auto loaded = load_active_segment(disk, directory, base, config);
  if (!loaded) return std::unexpected(loaded.error());
  if (loaded->damage || loaded->state.next != offset) {
    return fail(Errc::corrupt, loaded->damage
                                   ? loaded->damage->message
                                   : fmt::format("{}: ends at offset {} after it was cut at {}",
                                                 log_path, loaded->state.next, offset));
  }
  return loaded->state;
}

Result<std::uint64_t> position_before(Disk& disk, std::string_view directory,
                                      const SegmentState& state, Offset offset) {
  if (state.index_entries == 0) return std::uint64_t{0};
  const auto file = disk.open(segment_path(directory, state.base, ".index"), {});
  if (!file && file.error().code == Errc::not_found) return std::uint64_t{0};
  if (!file) return std::unexpected(file.error());
  const auto entry = find_entry(**file, state.base, state.index_entries, offset);
  if (!entry && entry.error().code != Errc::corrupt) return std::unexpected(entry.error());
  if (!entry || !*entry || (*entry)->position >= state.bytes) return std::uint64_t{0};
  return std::uint64_t{(*entry)->position};
}

Result<std::uint64_t> checked_position_before(Disk& disk, std::string_view directory,
                                              const File& log, const SegmentState& state,
                                              Offset offset) {
  const auto index =
      open_index(disk, segment_path(directory, state.base, ".index"), index_entry_bytes);
  if (!index) return std::unexpected(index.error());
  const auto entries = std::min(index->entries, state.index_entries);
  if (entries == 0) return std::uint64_t{0};
  const auto entry = find_entry(*index->file, state.base, entries, offset - 1);
  if (!entry) return std::unexpected(entry.error());
  if (!*entry) return std::uint64_t{0};
  const auto batch = good_batch_at(log, (*entry)->position, state.bytes);
  if (!batch) return std::unexpected(batch.error());
  if (*batch && (*batch)->last == (*entry)->offset && (*batch)->last < offset)
    return std::uint64_t{(*entry)->position};
  return std::uint64_t{0};
}

}  // namespace tarry::storage
