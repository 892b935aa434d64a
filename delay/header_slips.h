#pragma once

// HeaderSlips: headers whose names are one letter off from one that schedules (x-dealy for
// x-delay), counted.
//
// Such a header may be somebody's own, so it is no error: its record is taken as it is.  But most
// of the time it is a slip, and the record was delivered at once instead of later; so the operator
// is told.
//
// Bounded: so many different names are remembered, and the rest is only counted.
//
// A value without a thread: that of a batch is made where the batch is checked, on the pool or the
// shard, and is added to its topic's on the shard's thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tarry::delay {

struct HeaderSlip {
  std::string name;        // As it was given, printable.
  std::string_view meant;  // One of ours (delay/schedule.h).
  std::uint64_t count = 0;
};

class HeaderSlips {
 public:
  static constexpr std::size_t max_names = 8;

  void add(std::string_view name, std::string_view meant);
  void add(const HeaderSlips& others);

  bool empty() const { return total_ == 0; }
  std::uint64_t total() const { return total_; }
  // In the order in which they came first.
  const std::vector<HeaderSlip>& names() const { return names_; }

 private:
  void count(std::string_view printable_name, std::string_view meant, std::uint64_t times);

  std::uint64_t total_ = 0;  // Headers, those of names that are not remembered too.
  std::vector<HeaderSlip> names_;
};

}  // namespace tarry::delay
