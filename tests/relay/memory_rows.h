#pragma once

// MemoryRows: SortedRows in memory, which a crash takes back to an earlier write.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "storage/sorted_rows.h"

namespace tarry::relay {

class MemoryRows : public storage::SortedRows {
 public:
  std::optional<std::string> get(const std::string& key) const override {
    const auto found = rows_.find(key);
    if (found == rows_.end()) return std::nullopt;
    return found->second;
  }
  std::unique_ptr<Cursor> walk(const std::string& from, const std::string& until) const override {
    ++walks;
    return std::make_unique<MapCursor>(rows_.lower_bound(from), rows_.lower_bound(until));
  }
  void write(const Changes& changes) override {
    apply(changes, rows_);
    unflushed_.push_back(changes);
    if (unflushed_.size() <= max_unflushed) return;
    apply(unflushed_.front(), flushed_);
    unflushed_.pop_front();
  }
  void flush(bool /*waits*/) override {
    flushed_ = rows_;
    unflushed_.clear();
  }
  bool has_room() const override { return !is_full; }

  // Keeps `below(n + 1)` of the writes that are not flushed.
  void crash(const std::function<std::size_t(std::size_t)>& below) {
    unflushed_.resize(below(unflushed_.size() + 1));
    rows_ = flushed_;
    for (const auto& each : unflushed_) apply(each, rows_);
  }
  void empty() {
    rows_.clear();
    flushed_.clear();
    unflushed_.clear();
  }
  std::size_t size() const { return rows_.size(); }

  mutable std::size_t walks = 0;
  bool is_full = false;
  std::size_t max_unflushed = 20;  // As few fill a memtable.

 private:
  using Map = std::map<std::string, std::string>;
  class MapCursor final : public Cursor {
   public:
    MapCursor(Map::const_iterator at, Map::const_iterator end) : at_(at), end_(end) {}
    bool valid() const override { return at_ != end_; }
    std::string_view key() const override { return at_->first; }
    std::string_view value() const override { return at_->second; }
    void next() override { ++at_; }

   private:
    Map::const_iterator at_, end_;
  };

  static void apply(const Changes& changes, Map& rows) {
    for (const auto& [from, until] : changes.removed_ranges)
      rows.erase(rows.lower_bound(from), rows.lower_bound(until));
    for (const auto& [key, value] : changes.rows) {
      if (value) {
        rows[key] = *value;
      } else {
        rows.erase(key);
      }
    }
  }

  Map rows_, flushed_;
  std::deque<Changes> unflushed_;
};

}  // namespace tarry::relay
