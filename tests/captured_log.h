#pragma once

// Captures the log while it lives.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "base/log_thread.h"

namespace tarry {

class CapturedLog {
 public:
  std::string text() {
    REQUIRE(flush_log(std::chrono::seconds{20}));
    std::string text(static_cast<std::size_t>(::lseek(::fileno(file_.get()), 0, SEEK_END)), '\0');
    REQUIRE(::pread(::fileno(file_.get()), text.data(), text.size(), 0) ==
            static_cast<ssize_t>(text.size()));
    return text;
  }
  // How many lines hold these words.
  std::size_t count(std::string_view words) {
    std::size_t lines = 0;
    const std::string all = text();
    for (std::string_view rest = all; !rest.empty();) {
      const auto line = rest.substr(0, rest.find('\n'));
      lines += line.find(words) != line.npos;
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    }
    return lines;
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> file_{std::tmpfile()};
  LogThread thread_{::fileno(file_.get())};
};

}  // namespace tarry
