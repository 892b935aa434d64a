#include "cli/kafka/settings.h"

#include <cstddef>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"
#include "base/read_small_file.h"

namespace tarry::cli {
namespace {

// A file of properties has a few lines; a larger one was given by mistake.
constexpr std::size_t max_properties_file = std::size_t{1} << 20;

constexpr std::string_view blanks = " \t\r";

std::string_view without_blanks(std::string_view text) {
  const auto first = text.find_first_not_of(blanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

// Errors name the line and never show its value, which may be a password.
Result<> add_properties_of(const std::string& file, std::vector<std::string>& to) {
  const auto text = read_small_file(file, max_properties_file);
  if (!text)
    return fail(text.error().code, fmt::format("{}: {}", printable(file), text.error().message));
  std::string_view rest = *text;
  for (int number = 1; !rest.empty(); ++number) {
    const auto end = rest.find('\n');
    const auto line = without_blanks(rest.substr(0, end));
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    if (line.empty() || line.starts_with('#')) continue;
    const auto equals = line.find('=');
    if (equals == line.npos || equals == 0)
      return fail(Errc::invalid,
                  fmt::format("{}: line {}: give it as key=value", printable(file), number));
    to.push_back(fmt::format("{}={}", without_blanks(line.substr(0, equals)),
                             without_blanks(line.substr(equals + 1))));
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> expand_properties(const std::vector<std::string>& words) {
  std::vector<std::string> properties;
  for (const auto& word : words) {
    if (!is_properties_file(word)) {
      properties.push_back(word);
    } else if (auto added = add_properties_of(word.substr(1), properties); !added) {
      return std::unexpected(added.error());
    }
  }
  return properties;
}

Result<KafkaSettings> expanded(const KafkaSettings& settings) {
  auto properties = expand_properties(settings.properties);
  if (!properties) return std::unexpected(properties.error());
  KafkaSettings complete = settings;
  complete.properties = std::move(*properties);
  return complete;
}

}  // namespace tarry::cli
