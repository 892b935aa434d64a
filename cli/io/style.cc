#include "cli/io/style.h"

#include <cstdlib>

#include <fmt/core.h>

namespace tarry::cli {

bool colours_allowed() {
  const char* no_colour = std::getenv("NO_COLOR");
  if (no_colour != nullptr && *no_colour != '\0') return false;
  const char* terminal = std::getenv("TERM");
  return terminal == nullptr || std::string_view(terminal) != "dumb";
}

std::string styled(Style style, std::string_view text) {
  const auto code = [&] {
    switch (style) {
      case Style::plain:
        break;
      case Style::bold:
        return "1";
      case Style::dim:
        return "2";
      case Style::red:
        return "31";
      case Style::green:
        return "32";
      case Style::yellow:
        return "33";
    }
    return "";
  }();
  if (*code == '\0' || text.empty()) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

}  // namespace tarry::cli
