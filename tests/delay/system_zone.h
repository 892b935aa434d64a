#pragma once

// A zone of the system by its name, kept until the tests end.

#include <memory>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "delay/time_zones.h"

namespace tarry::delay {

inline const TimeZone& zone(std::string_view name) {
  static std::vector<std::shared_ptr<const TimeZone>> kept;
  auto found = TimeZones::of_system().find(name);
  REQUIRE_MESSAGE(found.has_value(), (found ? "" : found.error().message));
  return *kept.emplace_back(*found);
}

}  // namespace tarry::delay
