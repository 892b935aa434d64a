#pragma once

// The errors for words of a command line that it does not have: which word is wrong, and which one
// was probably meant, by its letters or because kcat, rpk or Kafka's console tools call it so.
//
//   consume: -o: there is no such option; did you mean --from? (`tarry consume --help` shows all)
//   hlep: there is no such command; did you mean help? `tarry --help` shows all
//
// Pure.

#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"

namespace tarry::cli {

// One line for what CLI11 has thrown while it read the words of `program`.
std::string parse_error_text(const CLI::App& program, const CLI::ParseError& error);

// The error for a word that stands where a command of `above` should: it may be an option of
// theirs.
std::string unknown_command_text(const CLI::App& above, const std::string& word);

// The error for a word that is one more than `command` takes.
std::string no_place_text(const CLI::App& command, const std::string& word);

// "create, list, describe"
std::string choices_of(const CLI::App& group);

// The name that differs from `word` by a slip or two; empty: none is that near.
std::string nearest_name(std::string_view word, const std::vector<std::string>& names);

}  // namespace tarry::cli
