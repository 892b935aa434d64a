#pragma once

// Kind: names an operation that waits, for the metrics.  Outcome: how its waiting ended.
//
// A kind is a constant beside its operation, and is there from the start of the program:
//
//   inline const purgatory::Kind fetch_kind{"fetch"};      // broker/handlers/delayed_fetch.h
//
// Every purgatory counts every kind, and every page of figures lists all of them, by name.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tarry::purgatory {

class Kind {
 public:
  // Registers it.  `name` is a literal, in snake_case, and no other kind's.  At namespace scope
  // only: a purgatory knows the kinds that were registered before it was made.
  explicit Kind(std::string_view name);

  std::string_view name() const;
  std::size_t index() const { return index_; }  // Below kind_count().

  friend bool operator==(Kind, Kind) = default;

 private:
  friend std::vector<Kind> kinds();
  explicit Kind(std::uint8_t index) : index_(index) {}

  std::uint8_t index_;
};

std::size_t kind_count();
std::vector<Kind> kinds();  // In the order of their names.

enum class Outcome : std::uint8_t { satisfied, expired, cancelled };
std::string_view name_of(Outcome outcome);

}  // namespace tarry::purgatory
