#pragma once

// Recurrence: the times at which a recurring record is delivered.
//
//   x-every: 15m                                       anchor, anchor + 15 min, ...: no drift
//   x-cron: 0 9 * * MON-FRI   x-cron-tz: Europe/Berlin (delay/cron.h)
//   x-until: 2027-01-01T00:00:00Z                      no run is due after it
//   x-count: 10                                        deliveries in all
//
// A pending recurring record stands for one run.  Its due time is the run's time, unless it was
// moved.  When the run is delivered, the record is due again: same sequence number, same handle,
// next due time.
//
//   pending, due 09:00 --plan_run()--> deliver 09:00; next 10:00 --take()--> pending, due 10:00
//                                      deliver 18:00; no next    ----------> gone
//
// Missed runs.  A run is missed if it was due before the engine began to run (`running_since`)
// and was not delivered.  tarry.delay.missed says what becomes of missed runs:
//   once   the latest of them is delivered, the others are left out
//   all    the latest tarry.delay.missed.max of them are delivered, one after the other in order of
//          time; older ones are left out
//   skip   none is delivered
// A run that becomes due while the engine runs is never left out, however late it is delivered.
// The engine takes `running_since` back when its clock is set back, so that what it accepts then is
// not taken for missed; a jump ahead that it believes counts as a new beginning.
// The x-count counts deliveries, so a run that is left out does not count.  A plan looks at one
// delivery, and needs no other state than the recurrence itself: a crash between two runs of `all`
// changes nothing.
//
// Invariant: every time that is given out is later than those before it, at most x-until
// and in the years up to 9999.  A plan takes a few steps, whatever the time that has passed; with
// `all` and x-cron at most `max` steps back, which it tells: some tenths of a microsecond each.
//
// Pure; any thread.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "delay/cron.h"
#include "delay/time_zone.h"
#include "delay/time_zones.h"

namespace tarry::delay {

inline constexpr std::string_view missed_key = "tarry.delay.missed";
inline constexpr std::string_view missed_max_key = "tarry.delay.missed.max";

enum class MissedRuns { once, all, skip };

// The value of tarry.delay.missed; Errc::invalid for any other text.
Result<MissedRuns> parse_missed_runs(std::string_view text);

struct MissedPolicy {
  static constexpr std::uint32_t max_limit = 1'000;  // The largest `max` that may be set.

  MissedRuns runs = MissedRuns::once;
  std::uint32_t max = 100;  // With `all`; at least 1.
};

// The last millisecond of the year 9999.
inline constexpr WallTime last_due =
    std::chrono::sys_days{std::chrono::year{10000} / std::chrono::January / 1} -
    std::chrono::milliseconds{1};

class Recurrence {
 public:
  // Shorter periods are refused: a producer that wants one writes records.
  static constexpr std::chrono::milliseconds min_period{100};
  static constexpr std::chrono::milliseconds max_period = std::chrono::days{36'525};  // 100 years.
  static constexpr std::size_t max_encoded_bytes =
      18 + 1 + Cron::max_text_bytes + 1 + TimeZone::max_name_bytes + 16;

  struct Every {
    std::chrono::milliseconds period{0};  // Between min_period and max_period.
    WallTime anchor{};                    // A time of the series; not after the first run.
  };
  struct InZone {
    Cron cron;
    std::shared_ptr<const TimeZone> zone;
  };
  using Rule = std::variant<Every, InZone>;

  struct End {
    std::optional<WallTime> until;       // x-until
    std::optional<std::uint64_t> count;  // x-count, at least 1.
  };

  // The first run is at `first`, which need not be one of the rule's own times.
  Recurrence(Rule rule, End end, WallTime first);

  struct NextRun {
    std::optional<WallTime> deliver;  // The due time of the delivery to make now; empty: none.
    std::optional<WallTime> next;     // When the record is due again; empty: it is gone.
    bool left_out = false;            // Missed runs that will not be delivered.
    std::uint32_t looked_at = 0;      // Missed runs that were looked at to decide this.
  };
  // The next step for the pending record now that it is due at `due`: the time of its run, or the
  // time to which it was moved.
  NextRun plan_run(WallTime due, WallTime running_since, const MissedPolicy& policy) const;

  // Makes this the recurrence of the record that is pending after `planned`, which has a `next`.
  void take(const NextRun& planned);

  // The next runs after the pending one as far as the end allows, at most `limit`: for people.
  std::vector<WallTime> upcoming(std::size_t limit) const;

  const Rule& rule() const { return rule_; }
  const End& end() const { return end_; }
  WallTime run() const { return run_; }  // The time of the pending run.
  std::uint64_t delivered() const { return delivered_; }

  // For people: "every 15m", "cron 0 9 * * MON-FRI Europe/Berlin, 3 of 10 left, until ...".
  std::string text() const;

  // The stored form; big-endian:
  //    0  version    u8   = 1
  //    1  flags      u8   1: cron, 2: until, 4: count; no others
  //    2  delivered  u64
  //   10  run        i64  ms
  //   18  every: period i64 ms, anchor i64 ms
  //       cron:  size u8, expression; size u8, name of the time zone
  //       until i64 ms, count u64, as the flags say
  void append_to(Buffer& to) const;

  // Errc::corrupt for bytes that append_to() has not written, Errc::unsupported for another
  // version, Errc::not_found if the machine does not know the time zone any more.
  static Result<Recurrence> parse(Bytes bytes, const TimeZones& zones);

 private:
  // By the rule and x-until alone.
  std::optional<WallTime> next_after(WallTime time) const;
  std::optional<WallTime> last_before(WallTime time) const;
  // The `n`th from the end of the runs after `after` and before `before`; empty if there are fewer.
  // `looked_at` becomes the number of those that it had to look at.
  std::optional<WallTime> nth_last(WallTime after, WallTime before, std::uint32_t n,
                                   std::uint32_t& looked_at) const;

  Rule rule_;
  End end_;
  WallTime run_;
  std::uint64_t delivered_ = 0;  // Below *end_.count.
};

}  // namespace tarry::delay
