#pragma once

// RefusalSearch: finds the record of a batch that Kafka refuses.
//
//   plain --a batch is refused--> careful: each record in a batch of its own --> record known
//     ^                                                                               |
//     '-------------------------------------------------------------------------------'
//
// With --delivery at-least-once, attempts of two kinds alternate, and what one of them finds says
// nothing about the other: each kind is searched by itself.
//
// One thread.

#include <array>
#include <cstddef>

namespace tarry::relay {

class RefusalSearch {
 public:
  enum class Kind { transaction, sending };

  bool is_careful(Kind kind) const { return is_careful_[static_cast<std::size_t>(kind)]; }
  // An attempt has ended.  True: which records are refused is not known yet, and the next attempt
  // of its kind finds out.
  bool ended(Kind kind, bool has_refused) {
    bool& is_careful = is_careful_[static_cast<std::size_t>(kind)];
    return is_careful = has_refused && !is_careful;
  }
  // The next attempt of its kind is plain, whatever was refused before.
  void give_up(Kind kind) { is_careful_[static_cast<std::size_t>(kind)] = false; }

 private:
  std::array<bool, 2> is_careful_{};
};

}  // namespace tarry::relay
