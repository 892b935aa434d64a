#include "storage/read_ahead.h"

#include <algorithm>

namespace tarry::storage {
namespace {

constexpr std::size_t max_pieces = ReadAhead::max_bytes / ReadAhead::piece_bytes;

// If no reader came for a piece while so many others were planned, its reader has gone.
constexpr std::uint64_t patience = 8 * max_pieces;

}  // namespace

ReadAhead& ReadAhead::instance() {
  static auto* const the = new ReadAhead;  // Logs may end later than what is static.
  return *the;
}

std::uint64_t ReadAhead::new_log() {
  const std::lock_guard lock(mutex_);
  return ++logs_;
}

void ReadAhead::forget(std::uint64_t log) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [log](const Entry& entry) { return entry.log == log; });
  // A reader that waits for one of them has to see that it is gone.
  read_.notify_all();
}

ReadAhead::Entry* ReadAhead::entry_of(std::uint64_t log, Offset from) {
  // At most 32 entries: a scan is cheaper than an index.
  for (auto& entry : entries_)
    if (entry.log == log && entry.from == from) return &entry;
  return nullptr;
}

ReadAhead::Entry* ReadAhead::entry_with(std::uint64_t log, Offset offset) {
  for (auto& entry : entries_) {
    if (entry.log != log) continue;
    if (entry.piece == nullptr ? entry.from == offset
                               : entry.piece->begin() <= offset && offset < entry.piece->end())
      return &entry;
  }
  return nullptr;
}

std::shared_ptr<const SegmentPiece> ReadAhead::find(std::uint64_t log, Offset from) {
  const std::lock_guard lock(mutex_);
  Entry* const entry = entry_with(log, from);
  if (entry == nullptr) return nullptr;
  entry->asked_at = plans_;
  return entry->piece;
}

std::shared_ptr<const SegmentPiece> ReadAhead::find_or_wait(std::uint64_t log, Offset from) {
  std::unique_lock lock(mutex_);
  for (;;) {
    Entry* const entry = entry_with(log, from);
    if (entry == nullptr) return nullptr;
    entry->asked_at = plans_;
    if (entry->state == Entry::State::there) return entry->piece;
    // The caller is on the pool already.  Waiting for a plan that is still queued behind it could
    // wait for ever.
    if (entry->state == Entry::State::planned) {
      erase(entry);
      return nullptr;
    }
    read_.wait(lock);
  }
}

void ReadAhead::used_up(std::uint64_t log, Offset begin) {
  const std::lock_guard lock(mutex_);
  if (Entry* const entry = entry_with(log, begin)) entry->used_up = true;
}

bool ReadAhead::make_room() {
  if (entries_.size() < max_pieces) return true;
  const auto free = std::ranges::find_if(entries_, [this](const Entry& entry) {
    return entry.state == Entry::State::there &&
           (entry.used_up || plans_ - entry.asked_at > patience);
  });
  if (free == entries_.end()) return false;
  entries_.erase(free);
  return true;
}

bool ReadAhead::plan(std::uint64_t log, Offset from) {
  const std::lock_guard lock(mutex_);
  ++plans_;
  if (entry_with(log, from) != nullptr || !make_room()) return false;
  entries_.push_back({log, from, Entry::State::planned, false, plans_});
  return true;
}

bool ReadAhead::begin(std::uint64_t log, Offset from) {
  const std::lock_guard lock(mutex_);
  Entry* const entry = entry_of(log, from);
  if (entry == nullptr || entry->state != Entry::State::planned) return false;
  entry->state = Entry::State::reading;
  return true;
}

void ReadAhead::done(std::uint64_t log, Offset from, std::shared_ptr<const SegmentPiece> piece) {
  const std::lock_guard lock(mutex_);
  if (Entry* const entry = entry_of(log, from)) {
    // A failed read leaves no entry, so that the reader meets the error itself and can report it.
    if (piece == nullptr) {
      erase(entry);
    } else {
      entry->piece = std::move(piece);
      entry->state = Entry::State::there;
    }
  }
  read_.notify_all();
}

void ReadAhead::erase(const Entry* entry) {
  std::erase_if(entries_, [entry](const Entry& each) { return &each == entry; });
}

}  // namespace tarry::storage
