#pragma once

// Patterns of names, byte by byte, as a shell has them:
//
//   *        any bytes, also none
//   ?        any one byte
//   [ab-d]   one of these bytes; [!ab-d] or [^ab-d] any other.  A ] that stands first, and a - that
//            stands first or last, is one of them.  A [ that no ] follows is itself.
//
// Pure; any thread.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tarry {

// Whether the whole `text` matches.  Linear, but for what one star has to try again.
bool matches_glob(std::string_view pattern, std::string_view text);

// The only text that matches, where the pattern has neither a star nor a question mark and each of
// its classes is one byte, as [*] is; empty: there may be several.
std::optional<std::string> only_match(std::string_view pattern);

// The bytes with which every match begins, as far as the pattern spells them out: order-4
// of order-4*7.
std::string common_beginning(std::string_view pattern);

// The place behind the class that begins with the [ at `at`; 0: none begins there.
std::size_t glob_class_end(std::string_view pattern, std::size_t at);

}  // namespace tarry
