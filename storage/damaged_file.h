#pragma once

// The copies of damaged files that a repair makes beside them before it changes them, under names
// that nothing else has.  A repair that is run again finds the copies of the one before.
//
// Blocks; one thread; no broker has the directory.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "storage/file.h"

namespace tarry::storage {

// The first of "PATH.ENDING", "PATH.ENDING-2" ... that is not there, or that `is_the_same`.
Result<std::string> free_name(Disk& disk, const std::string& path, std::string_view ending,
                              const std::function<Result<bool>(const File&)>& is_the_same);

// "PATH.damaged", or with a number where that is taken by other bytes; `bytes` of `from` from
// `position` on are copied there, durably.  Returns the path.  When it fails nothing is left of it.
Result<std::string> keep_damaged(Disk& disk, const File& from, std::uint64_t position,
                                 std::uint64_t bytes, const std::string& path);

// Copies a file, if it is there, before something else takes its place.
Result<> keep_whole_file(Disk& disk, const std::string& path);

// The name for a log directory that is set aside, because it holds the log of `owner`:
// "NAME.ID.damaged" beside it, or with a number where that is there.
Result<std::string> name_of_damaged_directory(Disk& disk, const std::string& directory,
                                              const TopicId& owner);

}  // namespace tarry::storage
