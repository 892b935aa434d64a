#include "base/read_small_file.h"

#include <cerrno>
#include <fstream>
#include <system_error>

#include <fmt/core.h>

namespace tarry {

Result<std::string> read_small_file(const std::string& path, std::size_t max_bytes) {
  const auto unreadable = [] {
    return fail(Errc::io,
                fmt::format("the file cannot be read: {}", std::generic_category().message(errno)));
  };
  std::ifstream file(path, std::ios::binary);
  if (!file) return unreadable();
  // One byte more than is allowed, by which a longer file is noticed: its size may change
  // meanwhile, and a pipe has none.
  std::string text(max_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  // A directory can be opened, but not read.
  if (file.bad() || (file.fail() && !file.eof())) return unreadable();
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > max_bytes) {
    return fail(Errc::too_large,
                fmt::format("the file is longer than {} bytes, which is the limit", max_bytes));
  }
  return text;
}

}  // namespace tarry
