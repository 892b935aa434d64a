#include "server/config_help.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <fmt/core.h>

#include "server/config_keys.h"

namespace tarry::server {
namespace {

// Breaks lines between words; a word that is longer than a line stays whole.
void append_comment(std::string& out, std::string_view text) {
  constexpr std::size_t width = 96;
  while (!text.empty()) {
    std::size_t end = text.size();
    if (end > width) {
      end = text.rfind(' ', width);
      if (end == std::string_view::npos || end == 0) end = text.find(' ');
      if (end == std::string_view::npos) end = text.size();
    }
    out += fmt::format("# {}\n", text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
  }
}

}  // namespace

std::string config_help() {
  std::string out =
      "# Every key that `tarry serve --config FILE` and `--set key=value` accept, with its "
      "default.\n"
      "# Written by `tarry serve --help-config`.\n"
      "# Times in ms are plain numbers or 250ms, 30m, 1h30m, 7d; sizes are bytes or 64KiB, 1GiB.\n";
  for (const auto& key : config_keys()) {
    out += '\n';
    append_comment(out, key.reason);
    std::string range = key.allowed();
    if (!key.unit.empty()) range = fmt::format("{}, in {}", range, key.unit);
    if (key.fallback.empty()) range += ", or nothing";
    append_comment(out,
                   fmt::format("Allowed: {}.{}", range,
                               key.is_dynamic ? " Can be changed while the broker runs." : ""));
    out += fmt::format("{}={}\n", key.name, key.fallback);
  }
  return out;
}

}  // namespace tarry::server
