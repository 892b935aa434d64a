#include "delay/header_slips.h"

#include <algorithm>

#include "base/log.h"

namespace tarry::delay {

void HeaderSlips::add(std::string_view name, std::string_view meant) {
  ++total_;
  count(printable(name), meant, 1);
}

void HeaderSlips::add(const HeaderSlips& others) {
  total_ += others.total_;
  for (const HeaderSlip& each : others.names_) count(each.name, each.meant, each.count);
}

void HeaderSlips::count(std::string_view printable_name, std::string_view meant,
                        std::uint64_t times) {
  const auto known = std::ranges::find(names_, printable_name, &HeaderSlip::name);
  if (known != names_.end()) {
    known->count += times;
  } else if (names_.size() < max_names) {
    // Anybody may send any name, so those that come later are counted in the total alone.
    names_.push_back({std::string(printable_name), meant, times});
  }
}

}  // namespace tarry::delay
