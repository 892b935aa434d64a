#pragma once

// HeaderAliases: other names for the headers that schedule a record, so that users of another
// scheduler need not change their producers (tarry.delay.header.aliases).
//
//   x-deliver-at=delay-until,x-delay=postpone     ORIGINAL=ALIAS; an original may have several
//
// A header with such a name is read, and taken out on delivery, like the original; its value has
// the original's form.  Names match without regard to ASCII case.
//
// Invariant: an alias is no name of ours, and stands for one original.
//
// Constant after parse(); the process has one, which is set before the first record is read.

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace tarry::delay {

class HeaderAliases {
 public:
  static constexpr std::size_t max_aliases = 64;
  // So the length of a name is one byte in a record.
  static constexpr std::size_t max_name_bytes = 63;

  // The error names the pair and says what is allowed.
  static Result<HeaderAliases> parse(std::string_view text);

  bool empty() const { return aliases_.empty(); }
  // The name of ours that `name` stands for; empty: none.
  std::string_view original_of(std::string_view name) const;
  // Whether uncompressed records have a header with one of these names.  It also finds them in a
  // body.
  bool occur_in(Bytes records) const;

 private:
  struct Alias {
    std::string name;
    std::string_view original;
  };
  std::vector<Alias> aliases_;
};

// The aliases of the process.  Set them before a thread reads records.
void set_header_aliases(HeaderAliases aliases);
const HeaderAliases& header_aliases();

}  // namespace tarry::delay
