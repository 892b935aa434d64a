#pragma once

// Reads the arguments in the query and the body of a request about pending records, in one
// way for broker and relay.
//
// A mistake is thrown as Refused, with status 400, the name of the argument and its value.
//
// For .cc files alone: it brings nlohmann/json with it.

#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/clock.h"
#include "base/json.h"

namespace tarry::web {

std::size_t number_given(const char* name, const std::string& text, std::size_t min,
                         std::size_t max);

// The records of a page: as many as `limit` says, but `max` at most.  A page may be shorter than
// its limit, so a larger one is no mistake.
std::size_t page_size_given(const std::string& limit, std::size_t max);

// Takes now, +1h and -10m too, from `now`.
WallTime time_given(const char* name, const std::string& text, WallTime now);

// An empty pattern is refused: a script with a variable that is not set would mean everything.  So
// is one of more bytes than these: to compare it with a long key takes the product of both.
inline constexpr std::size_t max_pattern_bytes = 1000;
std::string pattern_given(const char* name, const std::string& text);

// true or false.
bool flag_given(const char* name, const std::string& text);

// The unit that `by` names: minute, hour or day.
std::chrono::minutes unit_given(const std::string& by);

// --- A body.

// An object with no other keys than `allowed`; a refusal shows `example`.
Json object_in(const std::string& body, std::initializer_list<std::string_view> allowed,
               std::string_view example);

// Null: the key is not there, or is null.
const Json* value_in(const Json& body, const char* key);
// A text, or a whole number as text.
std::optional<std::string> word_in(const Json& body, const char* key);
// True or false; false: it is not there.
bool flag_in(const Json& body, const char* key);

// When a move makes it due: at a time (`due`), or so much later or earlier (`by`).
std::variant<WallTime, std::chrono::milliseconds> new_due_in(const Json& body, WallTime now);

}  // namespace tarry::web
