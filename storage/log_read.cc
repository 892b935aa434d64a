#include "storage/log.h"

// How a log is read: the pieces of work that do it, and how the Log makes them.

#include <algorithm>
#include <array>
#include <exception>
#include <mutex>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"
#include "records/record_batch.h"
#include "storage/index.h"

namespace tarry::storage {
namespace {

// A read from disk brings at most so much (or one batch, if that is larger): memory for a fetch
// is bounded by it, whatever the client asks for.
constexpr std::size_t max_read_bytes = 4 << 20;
// Read on top of what was asked for when the place is known by the sparse index alone.
constexpr std::size_t read_slack = 16 << 10;

}  // namespace

// --- DiskRead

// The ends of recent reads, so that one that goes on there need not search.  Shared by the reads of
// one log on whatever threads they run, hence the lock.
class DiskRead::Hints {
 public:
  ~Hints() { ReadAhead::instance().forget(log); }

  void add(Offset next, Offset segment, std::uint64_t position) {
    const std::lock_guard lock(mutex_);
    hints_[oldest_++ % hints_.size()] = {next, segment, position};
  }
  std::optional<std::uint64_t> find(Offset next, Offset segment) const {
    const std::lock_guard lock(mutex_);
    for (const auto& hint : hints_)
      if (hint.next == next && hint.segment == segment) return hint.position;
    return std::nullopt;
  }

  const std::uint64_t log = ReadAhead::instance().new_log();

 private:
  struct Hint {
    Offset next = -1, segment = -1;
    std::uint64_t position = 0;
  };
  mutable std::mutex mutex_;
  std::array<Hint, 8> hints_;  // As many consumers of old data may go on side by side.
  std::size_t oldest_ = 0;
};

namespace {

// Takes batches of `piece` from the one that contains `from` on, under the rules of Log::read(), as
// one view more in `taken`; `next` and `bytes` go on by what was taken.
void take_from(const std::shared_ptr<const SegmentPiece>& piece, Offset below,
               std::size_t max_bytes, bool at_least_one, Offset& next, std::size_t& bytes,
               std::vector<SharedBytes>& taken) {
  const auto first = std::ranges::lower_bound(piece->batches, next, {}, &SegmentPiece::Batch::last);
  auto batch = first;
  std::size_t size = 0;
  for (; batch != piece->batches.end() && batch->last < below; ++batch) {
    const bool fits = bytes + batch->size <= max_bytes || (at_least_one && bytes == 0);
    if (!fits) break;
    bytes += batch->size;
    size += batch->size;
    next = batch->last + 1;
  }
  if (size > 0) taken.emplace_back(piece->buffer, piece->buffer->view().subspan(first->at, size));
}

}  // namespace

std::shared_ptr<const SegmentPiece> ReadAheadTask::read() const {
  const auto log = disk_->open(segment_path(directory_, segment_.base, ".log"), {.direct = true});
  if (!log) return nullptr;
  const std::uint64_t begin = position_ / block_bytes * block_bytes;
  const std::uint64_t end =
      std::min<std::uint64_t>(position_ + ReadAhead::piece_bytes, segment_.bytes);
  auto buffer = std::make_shared<AlignedBuffer>();
  buffer->resize_for_overwrite(static_cast<std::size_t>(round_up_to_block(end - begin)));
  const auto got = (*log)->pread(begin, buffer->span());
  if (!got || begin + *got < end) return nullptr;
  buffer->resize(static_cast<std::size_t>(end - begin));

  auto piece = std::make_shared<SegmentPiece>();
  piece->segment = segment_.base;
  auto at = static_cast<std::size_t>(position_ - begin);
  Offset previous = from_ - 1;
  while (buffer->size() - at >= records::batch_header_size) {
    const Bytes rest = buffer->view().subspan(at);
    const auto size = records::batch_size(rest);
    if (!size) return nullptr;
    // A batch that the piece ends in is left to the next piece.
    if (*size > rest.size()) break;
    const Offset first = load_be<std::int64_t>(rest.data());
    const Offset last =
        first + load_be<std::int32_t>(rest.data() + records::field::last_offset_delta);
    // The first one is where the batch before it ended; its own place is looked at by its reader.
    if (first <= previous || last < first) return nullptr;
    piece->batches.push_back({first, last, at, *size});
    previous = last;
    at += *size;
  }
  if (piece->batches.empty()) return nullptr;
  piece->end_position = begin + at;
  piece->buffer = std::move(buffer);
  return piece;
}

void ReadAheadTask::run() {
  auto& pieces = ReadAhead::instance();
  if (!pieces.begin(log_, from_)) return;
  std::shared_ptr<const SegmentPiece> piece;
  try {
    piece = read();
  } catch (const std::exception&) {
    // Want of memory costs the read-ahead alone: its reader then reads for itself.
  }
  pieces.done(log_, from_, std::move(piece));
}

namespace {

// A read of whole batches of one segment, from the one that contains an offset on.
//
//    [ skipped ][ taken, from begin_ on ][ position_: the batch to look at next
//
// It has one buffer, so what is taken is what one read brought: a batch that is not whole in it
// ends the read, unless it is the first.
class SegmentRead {
 public:
  struct Wanted {
    Offset from, below;
    std::size_t bytes;
    bool at_least_one;
  };
  // The place to begin: at a batch, or as far before it as the sparse index says.
  struct Place {
    std::uint64_t position = 0;
    bool by_index = false;
  };

  SegmentRead(File& log, const SegmentState& segment, const Wanted& wanted, const Place& place)
      : log_(log),
        segment_(segment),
        wanted_(wanted),
        slack_(place.by_index ? read_slack : 0),
        by_index_(place.by_index && place.position > 0),
        position_(place.position),
        next_(wanted.from),
        previous_(segment.base - 1) {}

  Result<> run();

  bool took_any() const { return taken_ > 0; }
  bool reached_limit() const { return reached_limit_; }  // The next batch may not be returned.
  Offset next() const { return next_; }                  // After the last batch that was taken.
  std::uint64_t end_position() const { return begin_ + taken_; }
  SharedBytes batches() && {
    const Bytes whole = rest(begin_).first(taken_);
    return {std::shared_ptr<const void>(std::move(buffer_)), whole};
  }

 private:
  struct Batch {
    Offset first, last;
    std::size_t size;
  };

  Result<> read_at(std::uint64_t at, std::uint64_t count);
  Result<Batch> batch_at(Bytes bytes) const;
  Result<> scan_from_front(const Error& why);
  // The bytes in the buffer from `at` on; empty when it has none.
  Bytes rest(std::uint64_t at) const {
    return at < buffer_at_ || at > buffer_at_ + buffer_->size()
               ? Bytes{}
               : buffer_->view().subspan(static_cast<std::size_t>(at - buffer_at_));
  }
  void skip(const Batch& batch) {
    previous_ = batch.last;
    position_ += batch.size;
  }
  void take(const Batch& batch) {
    if (taken_ == 0) begin_ = position_;
    taken_ += batch.size;
    next_ = batch.last + 1;
    skip(batch);
  }

  File& log_;
  const SegmentState& segment_;
  const Wanted wanted_;
  const std::size_t slack_;  // Read on top, because the place is not exact.
  bool by_index_;            // No batch has been found yet where the index said.
  std::uint64_t position_;
  std::uint64_t begin_ = 0;
  std::size_t taken_ = 0;
  Offset next_;
  Offset previous_;  // The last offset of the batch before position_.
  bool reached_limit_ = false;
  std::shared_ptr<AlignedBuffer> buffer_ = std::make_shared<AlignedBuffer>();
  std::uint64_t buffer_at_ = 0;
};

Result<> SegmentRead::read_at(std::uint64_t at, std::uint64_t count) {
  buffer_at_ = at / block_bytes * block_bytes;
  const std::uint64_t end = std::min<std::uint64_t>(at + count, segment_.bytes);
  buffer_->clear();
  buffer_->resize_for_overwrite(static_cast<std::size_t>(round_up_to_block(end - buffer_at_)));
  const auto got = log_.pread(buffer_at_, buffer_->span());
  if (!got) return std::unexpected(got.error());
  if (buffer_at_ + *got < end) {
    return fail(Errc::corrupt, fmt::format("{}: the file has {} bytes, but {} were written",
                                           log_.path(), buffer_at_ + *got, segment_.bytes));
  }
  buffer_->resize(static_cast<std::size_t>(end - buffer_at_));
  return {};
}

// The batch that stands at position_, as the header in `bytes` says; the error says why none does.
Result<SegmentRead::Batch> SegmentRead::batch_at(Bytes bytes) const {
  const std::uint64_t left = segment_.bytes - position_;
  if (bytes.size() < records::batch_header_size)
    return fail(Errc::corrupt, fmt::format("only {} bytes are left", left));
  const auto size = records::batch_size(bytes);
  if (!size) return std::unexpected(size.error());
  const Offset first = load_be<std::int64_t>(bytes.data());
  const Offset last =
      first + load_be<std::int32_t>(bytes.data() + records::field::last_offset_delta);
  if (*size > left || first <= previous_ || last < first) {
    return fail(Errc::corrupt,
                fmt::format("its header says {} bytes and offsets {} to {}, after offset {}", *size,
                            first, last, previous_));
  }
  return Batch{first, last, *size};
}

// No batch is where the index said: a damaged index costs time, no data.  Without an index there is
// no other place to look.
Result<> SegmentRead::scan_from_front(const Error& why) {
  if (!by_index_) {
    return fail(Errc::corrupt, fmt::format("{}: no batch at position {}: {}", log_.path(),
                                           position_, why.message));
  }
  log_warn("storage",
           "{}: the index names position {}, but no batch begins there; reading the segment from "
           "its start",
           log_.path(), position_);
  by_index_ = false;
  position_ = 0;
  previous_ = segment_.base - 1;
  return {};
}

// One loop over batches: those before `from` are passed over, those after are taken until a limit
// or the end of what one read has brought.
Result<> SegmentRead::run() {
  while (position_ < segment_.bytes) {
    Bytes bytes = rest(position_);
    if (bytes.size() < records::batch_header_size && bytes.size() < segment_.bytes - position_) {
      if (taken_ > 0) return {};
      if (auto read = read_at(position_, wanted_.bytes + slack_ + records::batch_header_size);
          !read)
        return read;
      bytes = rest(position_);
    }
    const auto batch = batch_at(bytes);
    if (!batch) {
      if (auto scanning = scan_from_front(batch.error()); !scanning) return scanning;
      continue;
    }
    if (std::exchange(by_index_, false) && batch->first > wanted_.from) {
      position_ = 0;  // The index names a batch too far on: as if it were damaged.
      continue;
    }
    if (batch->last < wanted_.from) {
      skip(*batch);
      continue;
    }
    // The answer begins here or goes on.
    const bool fits =
        taken_ + batch->size <= wanted_.bytes || (taken_ == 0 && wanted_.at_least_one);
    if (batch->last >= wanted_.below || !fits) {
      reached_limit_ = true;
      return {};
    }
    if (bytes.size() >= batch->size) {
      take(*batch);
      continue;
    }
    if (taken_ > 0) return {};
    if (auto read = read_at(position_, std::max(wanted_.bytes, batch->size)); !read) return read;
  }
  return {};
}

}  // namespace

// A piece that has from_.  When a read goes on where one has ended before, the piece is read here:
// the next read has the rest of it.  Not when it is a small rest of a segment, nor for a reader
// that wants a batch which no piece has.
std::shared_ptr<const SegmentPiece> DiskRead::find_piece() const {
  auto& pieces = ReadAhead::instance();
  if (auto piece = pieces.find_or_wait(hints_->log, from_)) return piece;
  if (segments_.empty()) return nullptr;
  const auto position = hints_->find(from_, segments_.front().base);
  if (!position || *position >= segments_.front().bytes || !pieces.plan(hints_->log, from_) ||
      !pieces.begin(hints_->log, from_))
    return nullptr;
  ReadAheadTask read;
  std::shared_ptr<const SegmentPiece> piece;
  // Success and failure are both published: others may wait for it.
  try {
    read.disk_ = disk_;
    read.directory_ = directory_;
    read.segment_ = segments_.front();
    read.from_ = from_;
    read.position_ = *position;
    piece = read.read();
  } catch (...) {
    pieces.done(hints_->log, from_, nullptr);
    throw;
  }
  pieces.done(hints_->log, from_, piece);
  return piece;
}

// The part of the answer that a piece in memory has.
std::vector<SharedBytes> DiskRead::take_from_piece(std::size_t wanted) const {
  std::vector<SharedBytes> batches;
  const auto piece = find_piece();
  if (piece == nullptr) return batches;
  std::size_t bytes = 0;
  Offset next = from_;
  take_from(piece, below_, wanted, at_least_one_, next, bytes, batches);
  if (next == piece->end()) {
    ReadAhead::instance().used_up(hints_->log, piece->begin());
    if (bytes > 0) hints_->add(next, piece->segment, piece->end_position);
  }
  return batches;
}

Result<std::vector<SharedBytes>> DiskRead::run() {
  const std::size_t wanted = std::min(max_bytes_, max_read_bytes);
  auto batches = take_from_piece(wanted);
  if (!batches.empty()) return batches;

  for (const auto& segment : segments_) {
    auto log = disk_->open(segment_path(directory_, segment.base, ".log"), {.direct = true});
    if (!log) return std::unexpected(log.error());
    SegmentRead::Place place;
    if (const auto hint = hints_->find(from_, segment.base)) {
      place.position = *hint;
    } else {
      const auto found = position_before(*disk_, directory_, segment, from_);
      if (!found) return std::unexpected(found.error());
      place = {*found, true};
    }
    SegmentRead read(**log, segment, {from_, below_, wanted, at_least_one_}, place);
    if (auto done = read.run(); !done) return std::unexpected(done.error());
    if (read.took_any()) {
      hints_->add(read.next(), segment.base, read.end_position());
      batches.push_back(std::move(read).batches());
      return batches;
    }
    if (read.reached_limit()) break;
  }
  return batches;
}

// --- Log

void Log::plan_read_ahead(Offset from, Offset segment, std::uint64_t position) {
  auto found = std::ranges::find(segments_, segment, &SegmentState::base);
  if (found == segments_.end()) return;
  if (position >= found->bytes) {  // The next one begins where this one ends.
    if (++found == segments_.end() || found->base != from) return;
    position = 0;
  }
  if (position >= found->bytes || !ReadAhead::instance().plan(hints_->log, from)) return;
  ahead_ = std::make_unique<ReadAheadTask>();
  ahead_->disk_ = disk_;
  ahead_->directory_ = directory_;
  ahead_->segment_ = *found;
  ahead_->log_ = hints_->log;
  ahead_->from_ = from;
  ahead_->position_ = position;
}

// From what was read ahead, as much of it as is there; and what comes next is to be read.
std::vector<SharedBytes> Log::read_pieces(Offset from, Offset below, std::size_t max_bytes,
                                          bool at_least_one) {
  auto& pieces = ReadAhead::instance();
  std::vector<SharedBytes> batches;
  std::size_t bytes = 0;
  std::shared_ptr<const SegmentPiece> last;
  while (const auto piece = pieces.find(hints_->log, from)) {
    const std::size_t before = bytes;
    take_from(piece, below, std::min(max_bytes, max_read_bytes), at_least_one, from, bytes,
              batches);
    if (bytes == before) break;
    last = piece;
    if (from < piece->end()) break;
    pieces.used_up(hints_->log, piece->begin());
    // A reader that goes on after it, when no piece is there by then, need not search.
    hints_->add(from, piece->segment, piece->end_position);
  }
  if (last != nullptr) plan_read_ahead(last->end(), last->segment, last->end_position);
  return batches;
}

LogRead Log::read(Offset from, Offset below, std::size_t max_bytes, bool at_least_one) {
  if (from < start_offset_ || from > end_offset_) return OffsetOutOfRange{};
  below = std::min(below, end_offset_);
  std::vector<SharedBytes> batches;
  if (from >= below) return batches;

  ahead_.reset();
  if (from < tail_start()) {
    if (hints_) {
      if (auto pieces = read_pieces(from, below, max_bytes, at_least_one); !pieces.empty())
        return pieces;
    }
    // The work looks for a piece once more: on the pool it may wait for one that is being read.
    DiskRead read;
    read.disk_ = disk_;
    read.directory_ = directory_;
    const auto behind = std::ranges::upper_bound(segments_, from, {}, &SegmentState::base);
    for (auto segment = behind - 1; segment != segments_.end() && read.segments_.size() < 2;
         ++segment) {
      if (!segment->empty()) read.segments_.push_back(*segment);
    }
    if (!hints_) hints_ = std::make_shared<DiskRead::Hints>();
    read.hints_ = hints_;
    read.from_ = from;
    read.below_ = below;
    read.max_bytes_ = max_bytes;
    read.at_least_one_ = at_least_one;
    return read;
  }

  std::size_t bytes = 0;
  // The first batch that ends at `from` or after it is the one that contains it.
  auto batch = std::ranges::lower_bound(tail(), from, {}, &TailBatch::last);
  for (; batch != tail().end() && batch->last < below; ++batch) {
    bytes += batch->bytes.size();
    if (bytes > max_bytes && !(at_least_one && batches.empty())) break;
    batches.push_back(batch->bytes);
  }
  return batches;
}

}  // namespace tarry::storage
