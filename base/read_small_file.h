#pragma once

// read_small_file(): the whole of a file that an operator wrote and may have mixed up with another:
// a configuration, a certificate, keys.
//
//   const auto text = read_small_file("/etc/tarry/tarry.properties", 1 << 20);
//
// The limit is there because the path comes from outside: a disk image or a log given by mistake
// must end in a message, not in all memory.  Files of the data directory are read by
// storage::read_file(), through the disk that tests replace.
//
// Blocks until the file was read; any thread.

#include <cstddef>
#include <string>

#include "base/result.h"

namespace tarry {

// The error says what is wrong with the file, and leaves its name to the caller, who knows the
// setting that gave it.  Errc::too_large for one that is longer than `max_bytes`, else Errc::io.
Result<std::string> read_small_file(const std::string& path, std::size_t max_bytes);

}  // namespace tarry
