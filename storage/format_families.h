#pragma once

// A database's column families and its format, which the name of one of them says: the manifest,
// which is read before anything is opened, then recognizes a directory of another version.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tarry::storage {

struct FormatFamilies {
  // The beginning of the names of all formats of this database.
  std::string_view prefix;
  // In the order of Rocks::families after "default"; the first is the format's.
  std::vector<std::string> names;
  // The format before, if this version carries it over; of `names`, those that it lacks.
  std::string former = {};
  std::vector<std::string> new_since_former = {};

  const std::string& format() const { return names.front(); }
};

// Reads the manifest alone and changes nothing.  Returns the column families that are there:
// "default", and all of `ours` or, in the former format, those that it has.  Errors: unsupported
// (another format), corrupt, io; each names the directory.
Result<std::vector<std::string>> check_format(const std::string& directory,
                                              const FormatFamilies& ours);

}  // namespace tarry::storage
