#pragma once

// TimeZones: the machine's time zones by their IANA names.
//
//   zones.find("Europe/Berlin")   from /usr/share/zoneinfo, the package tzdata; no network
//   zones.find("UTC")             always there, without any file
//   zones.find("Europe/Berln")    an error: did you mean Europe/Berlin?
//
// The names are those that the directory has at prepare(), or when one is first asked for; if it
// has none, that is logged once, when one is asked for.  A zone is read when it is first asked for
// and then kept, so what is kept is bounded by the directory.  A new tzdata counts after a restart.
// No other name leads to a file.
//
// Any thread: a lock guards what was read.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "delay/time_zone.h"

namespace tarry::delay {

class TimeZones {
 public:
  explicit TimeZones(std::string directory);

  // The time zones of the machine.
  static const TimeZones& of_system();

  const std::string& directory() const { return directory_; }

  // Reads the names now, which takes some milliseconds, or longer from a slow disk: on a thread
  // that may wait, so that no shard does later.
  void prepare() const;

  // The machine has no time zones but UTC: tzdata is not installed, or cannot be read.
  bool empty() const;

  // Errc::not_found if there is no such zone, Errc::corrupt if its file is damaged.  The message
  // says it with the name that was given.
  Result<std::shared_ptr<const TimeZone>> find(std::string_view name) const;

  // How many names were compared character by character with unknown ones, which takes most of the
  // time of an error.
  std::uint64_t compared() const;

 private:
  // How often each letter occurs in a name; other characters share what is left.
  using LetterCounts = std::array<std::uint8_t, 32>;
  // A name as unknown names are compared with it.
  struct Folded {
    std::string text;  // In small letters.
    LetterCounts counts{};
    const std::string* name = nullptr;  // In known_.
  };

  static LetterCounts count_letters(std::string_view text);
  static std::size_t min_slips(const LetterCounts& a, const LetterCounts& b);

  void read_names() const;
  Result<std::shared_ptr<const TimeZone>> load(const std::string& name) const;
  std::optional<std::string> nearest(std::string_view name) const;

  const std::string directory_;
  mutable std::mutex mutex_;
  mutable bool names_read_ = false;
  mutable bool absence_told_ = false;  // That there are none is in the log.
  // Null until it is asked for.
  mutable std::map<std::string, std::shared_ptr<const TimeZone>, std::less<>> known_;
  mutable std::vector<Folded> folded_;  // In the order of the names.
  mutable std::uint64_t compared_ = 0;
};

}  // namespace tarry::delay
