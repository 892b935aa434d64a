#include "delay/time_zones.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/edit_distance.h"
#include "base/log.h"

namespace tarry::delay {
namespace {

// How much a name that is one slip away may differ, and the shortest name that is compared: among
// abbreviations such as PST every one is near to another.
constexpr std::size_t max_slips = 2;
constexpr std::size_t min_guessed_bytes = 5;

std::string folded(std::string_view name) {
  std::string small(name);
  for (char& c : small) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == ' ') c = '_';
  }
  return small;
}

// Zones and their folders begin with a capital letter; posix/, right/ and the tables beside them do
// not, or have an ending.
bool is_zone_name(std::string_view name) {
  return name.size() <= TimeZone::max_name_bytes && name.front() >= 'A' && name.front() <= 'Z' &&
         name != "Factory" && !name.contains('.');
}

}  // namespace

TimeZones::TimeZones(std::string directory) : directory_(std::move(directory)) {}

const TimeZones& TimeZones::of_system() {
  static const TimeZones zones("/usr/share/zoneinfo");
  return zones;
}

void TimeZones::read_names() const {
  if (std::exchange(names_read_, true)) return;
  namespace fs = std::filesystem;
  std::error_code error;
  fs::recursive_directory_iterator entry(directory_, fs::directory_options::skip_permission_denied,
                                         error);
  // A directory that is missing or cannot be read is one without zones, which find() says.
  for (const fs::recursive_directory_iterator end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().lexically_relative(directory_).generic_string();
    const bool fits = is_zone_name(name);
    std::error_code ignored;
    if (entry->is_directory(ignored)) {
      if (!fits) entry.disable_recursion_pending();
      continue;
    }
    if (!fits) continue;
    known_.emplace(name, nullptr);
  }
  folded_.reserve(known_.size());
  for (const auto& [name, zone] : known_) {
    std::string text = folded(name);
    const LetterCounts counts = count_letters(text);
    folded_.push_back({std::move(text), counts, &name});
  }
}

void TimeZones::prepare() const {
  const std::lock_guard lock(mutex_);
  read_names();
}

bool TimeZones::empty() const {
  const std::lock_guard lock(mutex_);
  read_names();
  return known_.empty();
}

Result<std::shared_ptr<const TimeZone>> TimeZones::find(std::string_view name) const {
  if (name == "UTC") return TimeZone::utc();
  const std::lock_guard lock(mutex_);
  read_names();
  const auto at = known_.find(name);
  if (at == known_.end()) {
    const std::string given = printable(name, TimeZone::max_name_bytes);
    if (known_.empty()) {
      // Producers have the error, but only the log reaches the operator, who can do that.
      if (!std::exchange(absence_told_, true)) {
        log_warn("delay",
                 "{} has no time zones, so x-cron-tz takes only UTC; install tzdata and restart",
                 directory_);
      }
      return fail(Errc::not_found,
                  fmt::format("\"{}\" is not known: {} has no time zones; install tzdata and "
                              "restart, or use UTC",
                              given, directory_));
    }
    const auto near = nearest(name);
    return fail(Errc::not_found,
                fmt::format("\"{}\" is not a time zone; {}", given,
                            near ? fmt::format("did you mean {}?", *near)
                                 : "write an IANA name such as Europe/Berlin or UTC"));
  }
  if (!at->second) {
    auto zone = load(at->first);
    if (!zone) return std::unexpected(std::move(zone.error()));
    at->second = std::move(*zone);
  }
  return at->second;
}

Result<std::shared_ptr<const TimeZone>> TimeZones::load(const std::string& name) const {
  const std::string path = directory_ + "/" + name;
  std::ifstream file(path, std::ios::binary);
  // One byte more than allowed is enough for parse() to refuse.
  std::string bytes(TimeZone::max_file_bytes + 1, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file && !file.eof()) {
    return fail(Errc::io, fmt::format("time zone {} cannot be read from {}", name, path));
  }
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  auto zone = TimeZone::parse(name, as_bytes(bytes));
  if (!zone) return std::unexpected(std::move(zone.error()));
  return std::make_shared<const TimeZone>(std::move(*zone));
}

std::uint64_t TimeZones::compared() const {
  const std::lock_guard lock(mutex_);
  return compared_;
}

TimeZones::LetterCounts TimeZones::count_letters(std::string_view text) {
  constexpr std::size_t letters = 26;
  LetterCounts counts{};
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_letter = c >= 'a' && c <= 'z';
    ++counts[is_letter ? byte - std::size_t{'a'} : letters + byte % (counts.size() - letters)];
  }
  return counts;
}

// Each slip changes two of the counts at most, each by one.
std::size_t TimeZones::min_slips(const LetterCounts& a, const LetterCounts& b) {
  unsigned apart = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    apart += static_cast<unsigned>(std::max(a[i], b[i]) - std::min(a[i], b[i]));
  return (apart + 1) / 2;
}

// A producer may send a thousand records with a wrong name each, so that all of them together have
// to cost little: nearly all names are passed over for what is cheaply known of them.
std::optional<std::string> TimeZones::nearest(std::string_view name) const {
  if (name.empty() || name.size() > TimeZone::max_name_bytes) return std::nullopt;
  const std::string wanted = folded(name);
  const std::string last_part = "/" + wanted;
  const LetterCounts counts = count_letters(wanted);
  std::optional<std::string> best;
  std::size_t best_slips = max_slips + 1;
  for (const auto& known : folded_) {
    if (known.text == wanted) return *known.name;
    if (best_slips > 0 && known.text.ends_with(last_part)) {
      best_slips = 0;
      best = *known.name;
    }
    if (wanted.size() < min_guessed_bytes) continue;
    const std::size_t longer = std::max(known.text.size(), wanted.size());
    const std::size_t shorter = std::min(known.text.size(), wanted.size());
    if (longer - shorter >= best_slips || min_slips(known.counts, counts) >= best_slips) continue;
    ++compared_;
    const std::size_t slips = edit_distance(known.text, wanted);
    if (slips < best_slips) {
      best_slips = slips;
      best = *known.name;
    }
  }
  return best;
}

}  // namespace tarry::delay
