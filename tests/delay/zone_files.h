#pragma once

// Times as text, and files of time zones that a test makes up.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/time_text.h"
#include "delay/time_zone.h"

namespace tarry::delay {

inline WallTime moment(std::string_view text) {
  return parse_time(text).value();
}

struct ZoneChange {
  std::int64_t at;      // Seconds since 1970.
  std::int32_t offset;  // From then on.
};

// One block of a TZif file: a type for `first` and one for each change.
inline void append_zone_block(Buffer& to, std::uint8_t version, std::size_t time_bytes,
                              std::int32_t first, const std::vector<ZoneChange>& changes) {
  append_bytes(to, as_bytes("TZif"));
  to.push_back(version);
  to.resize(to.size() + 15);
  const auto count = static_cast<std::uint32_t>(changes.size());
  for (const std::uint32_t n : {0u, 0u, 0u, count, count + 1, 4u}) append_be(to, n);
  for (const ZoneChange& change : changes) {
    if (time_bytes == 8)
      append_be(to, change.at);
    else
      append_be(to, static_cast<std::int32_t>(change.at));
  }
  for (std::uint32_t i = 1; i <= count; ++i) to.push_back(static_cast<std::uint8_t>(i));
  const auto append_type = [&](std::int32_t offset) {
    append_be(to, offset);
    to.push_back(0);
    to.push_back(0);
  };
  append_type(first);
  for (const ZoneChange& change : changes) append_type(change.offset);
  append_bytes(to, as_bytes(std::string_view("LMT\0", 4)));
}

inline Buffer zone_file(std::int32_t first, const std::vector<ZoneChange>& changes,
                        std::string_view rule) {
  Buffer file;
  append_zone_block(file, '2', 4, 0, {});
  append_zone_block(file, '2', 8, first, changes);
  append_bytes(file, as_bytes("\n"));
  append_bytes(file, as_bytes(rule));
  append_bytes(file, as_bytes("\n"));
  return file;
}

inline TimeZone made_zone(std::int32_t first, const std::vector<ZoneChange>& changes,
                          std::string_view rule) {
  return TimeZone::parse("Made/Up", zone_file(first, changes, rule)).value();
}

}  // namespace tarry::delay
