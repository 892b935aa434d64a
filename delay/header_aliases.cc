#include "delay/header_aliases.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ascii_case.h"
#include "base/log.h"
#include "delay/header_names.h"

namespace tarry::delay {
namespace {

constexpr std::array<std::string_view, 10> originals = {
    header::deliver_at, header::delay, header::schedule_id, header::schedule_action,
    header::expire_at,  header::every, header::cron,        header::cron_tz,
    header::until,      header::count};
constexpr std::array<std::string_view, 2> added = {header::scheduled_for, header::schedule_handle};

constexpr std::string_view form =
    "ORIGINAL=ALIAS,... as in x-deliver-at=delay-until,x-delay=postpone";

std::string_view find_name(std::span<const std::string_view> names, std::string_view name) {
  const auto found = std::ranges::find_if(
      names, [name](std::string_view each) { return equals_ignoring_case(each, name); });
  return found == names.end() ? std::string_view{} : *found;
}

std::string_view trim(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// Every name that is in use here, and stands in the properties file without quotes.
bool is_header_name(std::string_view name) {
  return !name.empty() && name.size() <= HeaderAliases::max_name_bytes &&
         std::ranges::all_of(name,
                             [](char c) { return c > ' ' && c < 0x7f && c != ',' && c != '='; });
}

// One for the process, because headers are read on many threads, far from any configuration.  It is
// set before the first of those threads begins and constant from then on.
HeaderAliases& the_aliases() {
  static HeaderAliases aliases;
  return aliases;
}

}  // namespace

Result<HeaderAliases> HeaderAliases::parse(std::string_view text) {
  HeaderAliases all;
  while (!text.empty()) {
    const auto pair = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), pair.size() + 1));
    const auto equals = std::min(pair.find('='), pair.size());
    const auto name = trim(pair.substr(std::min(pair.size(), equals + 1)));
    const auto refuse = [&](std::string_view why) {
      return fail(Errc::invalid, fmt::format("{}; {} {}", form, printable(pair), why));
    };
    if (equals == pair.size()) return fail(Errc::invalid, std::string(form));
    const auto original = find_name(originals, trim(pair.substr(0, equals)));
    if (original.empty())
      return refuse(fmt::format("does not begin with one of {}", fmt::join(originals, ", ")));
    if (!is_header_name(name))
      return refuse(fmt::format("needs an alias of 1 to {} visible ASCII characters after the =",
                                max_name_bytes));
    if (!find_name(originals, name).empty() || !find_name(added, name).empty())
      return refuse("gives one of Tarry's own names another meaning");
    if (const auto known = all.original_of(name); !known.empty())
      return refuse(fmt::format("gives {} a second time, first for {}", printable(name), known));
    if (all.aliases_.size() == max_aliases)
      return refuse(fmt::format("exceeds the limit of {} aliases", max_aliases));
    all.aliases_.push_back({std::string(name), original});
  }
  return all;
}

std::string_view HeaderAliases::original_of(std::string_view name) const {
  for (const auto& alias : aliases_) {
    if (equals_ignoring_case(alias.name, name)) return alias.original;
  }
  return {};
}

bool HeaderAliases::occur_in(Bytes records) const {
  for (const auto& alias : aliases_) {
    // In front of a name is its length, as a zigzag number of one byte: twice the length.
    const auto doubled = static_cast<unsigned char>(alias.name.size() * 2);
    for (Bytes rest = records; rest.size() > alias.name.size();) {
      // memchr() passes most bytes at once, while a comparison at each of them would be slow.
      const void* const found = std::memchr(rest.data(), doubled, rest.size() - alias.name.size());
      if (found == nullptr) break;
      rest = rest.subspan(
          static_cast<std::size_t>(static_cast<const std::uint8_t*>(found) - rest.data()) + 1);
      if (equals_ignoring_case(as_text(rest.first(alias.name.size())), alias.name)) return true;
    }
  }
  return false;
}

void set_header_aliases(HeaderAliases aliases) {
  the_aliases() = std::move(aliases);
}
const HeaderAliases& header_aliases() {
  return the_aliases();
}

}  // namespace tarry::delay
