#include "cli/offset_word.h"

#include <charconv>

#include <fmt/core.h>

#include "base/log.h"
#include "cli/time_word.h"

namespace tarry::cli {

Result<OffsetWord> parse_offset_word(std::string_view word) {
  // The words of Kafka's own tools and of kcat are taken as well: people have them in their
  // fingers.
  if (word == "start" || word == "beginning" || word == "earliest") return OffsetWord{};
  if (word == "end" || word == "latest") return OffsetWord{log_end, std::nullopt};
  if (word.starts_with('@')) {
    const auto time = parse_time_word(word.substr(1));
    if (!time) return std::unexpected(time.error());
    // Only the broker knows the offset of a time, and each partition has another one.
    return OffsetWord{0, *time};
  }
  Offset offset = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), offset);
  if (error == std::errc{} && end == word.data() + word.size() && offset >= 0)
    return OffsetWord{offset, std::nullopt};
  return fail(Errc::invalid, fmt::format("{}: give start, end, an offset, or @ and a time, as in "
                                         "@2026-11-21T10:00:00Z or @-1h",
                                         printable(word)));
}

}  // namespace tarry::cli
