#pragma once

// DumpFindings: what is wrong in a file that was dumped, and how much was printed of it.

#include <cstdint>
#include <string>
#include <utility>

namespace tarry::cli {

struct DumpFindings {
  std::uint64_t entries = 0;  // Printed.
  std::uint64_t wrong = 0;
  std::string first;  // The first of them, with its place.

  void add(std::string what) {
    if (wrong++ == 0) first = std::move(what);
  }
};

}  // namespace tarry::cli
