#include "storage/log.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/core.h>

#include "base/assert.h"
#include "base/log.h"
#include "records/record_batch.h"

namespace tarry::storage {
namespace {

constexpr std::size_t small_file = 4096;

std::string metadata_text(const TopicId& topic) {
  return fmt::format("version: 0\ntopic_id: {}\n", topic.text());
}
std::string start_text(Offset start) {
  return fmt::format("version: 0\nstart_offset: {}\n", start);
}

// The value of `key: value` in a small text file of version 0.
Result<std::string> read_value(Disk& disk, const std::string& path, std::string_view key) {
  const auto bytes = read_file(disk, path, small_file);
  if (!bytes) return std::unexpected(bytes.error());
  std::string_view text = as_text(*bytes);
  constexpr std::string_view version = "version: 0\n";
  const auto wrong = [&] {
    return fail(Errc::corrupt, fmt::format("{}: expected \"version: 0\" and \"{}: ...\", found "
                                           "\"{}\"",
                                           path, key, printable(as_text(*bytes))));
  };
  if (!text.starts_with(version)) return wrong();
  text.remove_prefix(version.size());
  if (!text.starts_with(key) || !text.substr(key.size()).starts_with(": ")) return wrong();
  text.remove_prefix(key.size() + 2);
  return std::string(text.substr(0, text.find('\n')));
}

// A file that a removal was about to unlink, or an index without its segment.
bool is_orphan(std::string_view name, const std::vector<Offset>& bases) {
  if (name.ends_with(".deleted")) return true;
  if (!name.ends_with(".index") && !name.ends_with(".timeindex")) return false;
  const auto base = segment_base(std::string(name.substr(0, name.rfind('.'))) + ".log");
  return base && std::ranges::find(bases, *base) == bases.end();
}

struct BatchHeader {
  std::size_t bytes;
  Offset first, last;
  std::int64_t max_timestamp;
};
// Reads the batch at the front of bytes that the broker itself has made or checked.
Result<BatchHeader> header_at(Bytes bytes) {
  const auto batch = records::next_batch(bytes);
  if (!batch) return fail(Errc::corrupt, batch.error().message);
  return BatchHeader{batch->size(), batch->base_offset(), batch->last_offset(),
                     to_ms(batch->max_timestamp())};
}

}  // namespace

// --- Flush

Result<FlushDone> Flush::run(bool sync) {
  // An error is moved, never copied: std::bad_alloc must not take the place of a failed sync's.
  const auto run_all = [&]() -> Result<> {
    if (start_) {
      const auto text = start_text(*start_);
      if (auto noted = replace_file(*disk_, fmt::format("{}/{}", directory_, start_offset_name),
                                    as_bytes(text));
          !noted)
        return noted;
    }
    bool names_unsynced = names_were_unsynced_;
    for (const auto& write : writes_) {
      // The name of a segment becomes durable before there is one after it: else a power cut might
      // keep only the later one, and the log would seem to begin there.
      if (write.is_new && std::exchange(names_unsynced, true)) {
        if (auto synced = disk_->sync_directory(directory_); !synced) return synced;
      }
      begun_ = std::max(begun_, static_cast<std::size_t>(&write - writes_.data()) + 1);
      if (auto written = write_segment(*disk_, directory_, write, sync); !written) return written;
    }
    if (!sync) return {};
    for (const Offset base : unsynced_) {
      auto synced = sync_segment(*disk_, directory_, base);
      // Retention may have been faster.
      if (!synced && synced.error().code != Errc::not_found) return synced;
    }
    if (names_unsynced_) return disk_->sync_directory(directory_);
    return {};
  };

  const auto held = hold_log_directory(directory_);
  const auto is_ours = is_log_of(*disk_, directory_, topic_);
  // This run has written nothing, so it may be repeated.
  if (!is_ours) return fail(Errc::exhausted, is_ours.error().message);
  if (!*is_ours) {
    return fail(Errc::io, fmt::format("{} is now the log of a topic other than {}", directory_,
                                      topic_.text()));
  }
  auto done = run_all();
  if (!done) {
    if (done.error().code == Errc::exhausted) return std::unexpected(done.error());
    if (done.error().code != Errc::no_space) {
      // Callers treat no_space and exhausted as temporary.  Any other failure of a write is final,
      // whatever its code was.
      return fail(done.error().code == Errc::corrupt ? Errc::corrupt : Errc::io,
                  std::move(done.error().message));
    }
    // Backwards: a segment must not stay when the one before it has been cut.
    for (std::size_t i = begun_; i-- > 0;) {
      auto undone = undo_write(*disk_, directory_, writes_[i]);
      if (undone) continue;
      if (undone.error().code == Errc::exhausted) return std::unexpected(undone.error());
      return fail(Errc::io, std::move(undone.error().message));
    }
    return std::unexpected(done.error());
  }
  done_.synced = sync;
  return std::move(done_);
}

// --- Log

Log::Log(Disk& disk, std::string directory, const TopicId& topic, const LogConfig& config)
    : disk_(&disk),
      directory_(std::move(directory)),
      topic_(topic),
      config_(config),
      segments_(1) {}

Log::Log(Log&&) noexcept = default;
Log& Log::operator=(Log&&) noexcept = default;
Log::~Log() = default;

// Lists the directory, makes sure whose it is, loads closed segments by the sizes of their files
// and the active one by its batches, and takes over the log start.
Result<Log::Opened> Log::open(Disk& disk, std::string directory, const TopicId& topic,
                              const LogConfig& config) {
  Log log(disk, std::move(directory), topic, config);
  const auto& path = log.directory_;
  std::optional<SegmentDamage> damage;

  // Until it has the file that says whose it is.
  auto held = hold_log_directory(path);
  const auto entries = disk.list(path);
  if (!entries && entries.error().code != Errc::not_found) return std::unexpected(entries.error());
  if (!entries) {
    // Never those above: where the data directory was removed, an empty one would take its place.
    if (const auto parent = disk.free_space(directory_of(path)); !parent)
      return std::unexpected(parent.error());
    if (auto made = disk.make_directories(path); !made) return std::unexpected(made.error());
  }
  std::vector<Offset> bases;
  bool has_metadata = false, has_start = false;
  if (entries) {
    for (const auto& entry : *entries) {
      has_metadata = has_metadata || entry.name == partition_metadata_name;
      has_start = has_start || entry.name == start_offset_name;
      if (const auto base = segment_base(entry.name)) bases.push_back(*base);
    }
    for (const auto& entry : *entries) {  // Files that a SegmentRemoval had no time to unlink.
      if (!is_orphan(entry.name, bases)) continue;
      if (auto removed = disk.remove(path + "/" + entry.name); !removed)
        return std::unexpected(removed.error());
    }
  }
  const auto metadata = fmt::format("{}/{}", path, partition_metadata_name);
  // The name of a directory does not identify a topic: it may belong to a deleted topic of the same
  // name.
  if (has_metadata) {
    const auto id = read_value(disk, metadata, "topic_id");
    if (!id) return std::unexpected(id.error());
    if (*id != topic.text()) {
      return fail(Errc::corrupt, fmt::format("{}: belongs to the topic id {}, not to {}", path,
                                             printable(*id), topic.text()));
    }
  } else if (bases.empty()) {
    if (auto written = replace_file(disk, metadata, as_bytes(metadata_text(topic))); !written)
      return std::unexpected(written.error());
  } else {
    return fail(Errc::corrupt,
                fmt::format("{}: has segments, but no {} that says which topic they belong to",
                            path, partition_metadata_name));
  }
  held.unlock();

  if (!bases.empty()) {
    std::ranges::sort(bases);
    log.segments_.clear();
    for (std::size_t i = 0; i + 1 < bases.size(); ++i) {
      const auto closed = load_closed_segment(disk, path, bases[i], bases[i + 1]);
      if (!closed) return std::unexpected(closed.error());
      log.segments_.push_back(*closed);
    }
    auto active = load_active_segment(disk, path, bases.back(), config);
    if (!active) return std::unexpected(active.error());
    log.segments_.push_back(active->state);
    log.active_exists_ = true;
    damage = std::move(active->damage);
    // No flush before recovery has cut the broken bytes off: it would overwrite what the operator
    // may need.
    log.flush_impossible_ = damage.has_value();
  }
  log.end_offset_ = log.active().next;
  log.start_offset_ = log.segments_.front().base;
  if (has_start) {
    const auto start_path = fmt::format("{}/{}", path, start_offset_name);
    const auto text = read_value(disk, start_path, "start_offset");
    if (!text) return std::unexpected(text.error());
    Offset start = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), start);
    if (error != std::errc{} || end != text->data() + text->size() || start < 0) {
      return fail(Errc::corrupt,
                  fmt::format("{}: \"{}\" is not an offset", start_path, printable(*text)));
    }
    log.start_noted_ = start;
    log.start_offset_ = std::max(log.start_offset_, start);
  }
  return Opened{std::move(log), std::move(damage)};
}

void Log::set_config(const LogConfig& config) {
  config_ = config;
}

Offset Log::tail_start() const {
  return tail().empty() ? end_offset_ : tail().front().first;
}

void Log::append(SharedBytes batches, Offset first, Offset last, std::int64_t max_timestamp,
                 WallTime appended) {
  TARRY_ASSERT(first == end_offset_, "an append may not skip offsets");
  std::size_t at = 0;
  while (at < batches.size()) {
    const auto header = header_at(batches.view().subspan(at));
    TARRY_ASSERT(header && header->first >= end_offset_ && header->last >= header->first,
                 "only whole batches are appended, in the order of their offsets");
    const bool alone = header->bytes == batches.size();
    TARRY_ASSERT(at > 0 || header->first == first, "base offsets are filled in before the append");
    // Trimmed entries are removed only when the vector would grow: erasing the front at every trim
    // would move all the others each time.
    if (tail_.size() == tail_.capacity() && tail_head_ > tail_.size() / 2) {
      tail_.erase(tail_.begin(), tail_.begin() + static_cast<std::ptrdiff_t>(tail_head_));
      tail_head_ = 0;
    }
    tail_.push_back({batches.part(at, header->bytes), header->first, header->last,
                     alone ? max_timestamp : header->max_timestamp, appended});
    at += header->bytes;
    tail_bytes_ += header->bytes;
    unflushed_bytes_ += header->bytes;
    end_offset_ = header->last + 1;
  }
  TARRY_ASSERT(end_offset_ == last + 1, "an append ends with the offset that its caller says");
}

// --- To the disk

bool Log::dirty() const {
  return unflushed_bytes_ > 0 || !unsynced_.empty() || names_unsynced_ ||
         start_offset_ > std::max(start_noted_, segments_.front().base);
}

// Fills one SegmentWrite after the other with batches of the tail; a batch that a segment has no
// room for closes it and begins the next one.
std::optional<Flush> Log::plan_flush(Offset durable_below, std::size_t max_bytes) {
  // One flush at a time: the next one begins where this one ends, which is known when it is done.
  if (flush_in_flight_ || flush_impossible_ || !dirty()) return std::nullopt;
  Flush flush;
  flush.disk_ = disk_;
  flush.directory_ = directory_;
  flush.topic_ = topic_;
  flush.names_unsynced_ = flush.names_were_unsynced_ = names_unsynced_;

  SegmentWrite write;
  write.before = write.after = active();
  write.is_new = !active_exists_;
  const auto batches = tail();
  // Batches below flushed_end() stay in the tail for their readers alone.
  auto batch = std::ranges::lower_bound(batches, flushed_end(), {}, &TailBatch::first);
  for (; batch != batches.end() && batch->last < durable_below; ++batch) {
    if (flush.bytes_ >= max_bytes) break;
    const auto bytes = batch->bytes.size();
    if (must_roll(write.after, config_, bytes, batch->last, batch->appended)) {
      close_segment(write.after, write.time_index);
      flush.writes_.push_back(std::exchange(write, {}));
      write.before.base = write.before.next = batch->first;
      write.after = write.before;
      write.is_new = true;
    }
    if (write.after.empty()) write.after.first_append = batch->appended;
    write.after.last_append = std::max(write.after.last_append, batch->appended);
    add_batch(write.after,
              {write.after.bytes, static_cast<std::uint32_t>(bytes), batch->first, batch->last,
               batch->max_timestamp},
              config_.index_interval_bytes, write.index, write.time_index);
    write.batches.push_back(batch->bytes);
    flush.bytes_ += bytes;
  }
  if (!write.batches.empty()) flush.writes_.push_back(std::move(write));

  for (const Offset base : unsynced_) {
    // A segment that is written now is synced with the write; only the others need a sync of their
    // own.
    const auto same =
        std::ranges::find(flush.writes_, base, [](const auto& each) { return each.before.base; });
    if (same == flush.writes_.end()) {
      flush.unsynced_.push_back(base);
    } else {
      same->indexes_unsynced = true;
    }
  }
  for (const auto& each : flush.writes_) {
    flush.names_unsynced_ = flush.names_unsynced_ || each.is_new;
    flush.done_.segments_.push_back(each.after);
  }
  if (start_offset_ > std::max(start_noted_, segments_.front().base)) flush.start_ = start_offset_;

  if (flush.writes_.empty() && flush.unsynced_.empty() && !flush.names_unsynced_ && !flush.start_)
    return std::nullopt;  // All that is dirty is not durable yet.
  flush.done_.end = flush.writes_.empty() ? flushed_end() : flush.writes_.back().after.next;
  flush.done_.bytes_ = flush.bytes_;
  flush.done_.closed_segment = flush.writes_.size() > 1;
  flush.done_.new_names_ = flush.names_unsynced_;
  flush.done_.start_written_ = flush.start_;
  flush_in_flight_ = true;
  return flush;
}

void Log::flushed(FlushDone done) {
  TARRY_ASSERT(flush_in_flight_, "a flush is planned before it is done");
  flush_in_flight_ = false;
  if (done.synced) {
    unsynced_.clear();
  } else {
    for (const auto& segment : done.segments_) {
      if (std::ranges::find(unsynced_, segment.base) == unsynced_.end())
        unsynced_.push_back(segment.base);
    }
  }
  names_unsynced_ = done.new_names_ && !done.synced;
  if (!done.segments_.empty()) {
    segments_.pop_back();
    segments_.insert(segments_.end(), done.segments_.begin(), done.segments_.end());
    active_exists_ = true;
  }
  unflushed_bytes_ -= done.bytes_;
  if (done.start_written_) start_noted_ = *done.start_written_;
}

void Log::flush_failed(const Error& error) {
  TARRY_ASSERT(flush_in_flight_, "a flush is planned before it fails");
  flush_in_flight_ = false;
  // After no_space the write was taken back, so a new flush may be planned.  Any other failure
  // leaves the files in a state that is not known.
  flush_impossible_ = error.code != Errc::no_space;
}

void Log::trim_tail(std::size_t bytes) {
  // Only flushed batches: the others exist nowhere else but in the journal, which is not read while
  // the broker runs.
  while (tail_bytes_ > bytes && tail_head_ < tail_.size() &&
         tail_[tail_head_].last < flushed_end()) {
    tail_bytes_ -= tail_[tail_head_].bytes.size();
    tail_[tail_head_++].bytes = {};
  }
  if (tail_head_ == tail_.size()) {
    tail_ = {};
    tail_head_ = 0;
  }
}

// --- Recovery

Result<> Log::truncate_to(Offset offset) {
  TARRY_ASSERT(tail().empty() && !flush_in_flight_, "only recovery cuts a log");
  offset = std::max(offset, segments_.front().base);
  if (!active_exists_) {
    if (offset == end_offset_) return {};
    return fail(Errc::corrupt,
                fmt::format("{}: has no segment, but the journal continues at offset {}",
                            directory_, offset));
  }
  // A segment that begins at the offset goes too, and the one before it is the active one again:
  // what closed it may not be synced.
  auto behind = std::ranges::lower_bound(segments_, offset, {}, &SegmentState::base);
  // The first segment stays, even without a batch: its name says where the log begins.
  if (behind == segments_.begin()) ++behind;
  const auto cut = cut_segment(*disk_, directory_, (behind - 1)->base, offset, config_);
  if (!cut) return std::unexpected(cut.error());
  if (behind != segments_.end()) {
    for (auto segment = segments_.end(); segment != behind;) {
      --segment;
      for (const char* suffix : {".timeindex", ".index", ".log"}) {
        const auto removed = disk_->remove(segment_path(directory_, segment->base, suffix));
        if (!removed && removed.error().code != Errc::not_found) return removed;
      }
    }
    segments_.erase(behind, segments_.end());
  }
  segments_.back() = *cut;
  // A process that was killed may have left bytes and names that no sync has seen.
  unsynced_ = {cut->base};
  names_unsynced_ = true;
  end_offset_ = offset;
  flush_impossible_ = false;
  // The places that earlier reads remember may lie in what was cut.
  hints_.reset();
  return {};
}

Result<> Log::replay(SharedBytes batches, WallTime appended) {
  std::size_t at = 0;
  while (at < batches.size()) {
    const auto header = header_at(batches.view().subspan(at));
    if (!header) return std::unexpected(header.error());
    // Retention was faster than the checkpoint: what lies before the first segment is gone for
    // good.
    if (header->last >= segments_.front().base) {
      if (header->first != end_offset_ || header->last < header->first) {
        return fail(
            Errc::corrupt,
            fmt::format(
                "{}: ends at offset {}, but the journal's next batch has the offsets {} to {}",
                directory_, end_offset_, header->first, header->last));
      }
      append(batches.part(at, header->bytes), header->first, header->last, header->max_timestamp,
             appended);
    }
    at += header->bytes;
  }
  return {};
}

// --- Retention

RetentionPlan Log::plan_retention(WallTime now, Offset high_watermark) {
  const auto decision =
      decide_retention(segments_, config_, now, start_offset_, high_watermark, unflushed_bytes_);
  RetentionPlan plan{.removal = {}, .next = decision.next};

  std::size_t count = decision.segments;
  std::optional<Offset> create;
  // A flush in flight was planned for the segment that is active now.
  if (decision.close_active && !flush_in_flight_ && !flush_impossible_) {
    // Nothing is written to the one that is closed, as it goes at once.
    SegmentState next;
    next.base = next.next = *(create = active().next);
    segments_.push_back(next);
    names_unsynced_ = true;
    ++count;
  }
  if (count == 0) return plan;

  std::vector<Offset> bases;
  for (std::size_t i = 0; i < count; ++i) {
    bases.push_back(segments_[i].base);
    // Files that are about to go need no sync.
    std::erase(unsynced_, segments_[i].base);
  }
  segments_.erase(segments_.begin(), segments_.begin() + static_cast<std::ptrdiff_t>(count));
  start_offset_ = std::max(start_offset_, segments_.front().base);
  plan.removal.emplace(*disk_, directory_, topic_, std::move(bases), create);
  return plan;
}

void Log::move_start(Offset offset) {
  TARRY_ASSERT(offset <= end_offset_, "a log does not start after its end");
  start_offset_ = std::max(start_offset_, offset);
}

std::uint64_t Log::size_bytes() const {
  std::uint64_t bytes = unflushed_bytes_;
  for (const auto& segment : segments_) bytes += segment.bytes;
  return bytes;
}

LogRemoval Log::delete_all() const {
  TARRY_ASSERT(!flush_in_flight_, "a log is deleted between two flushes");
  return LogRemoval(*disk_, directory_, topic_);
}

}  // namespace tarry::storage
