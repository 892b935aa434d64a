#include "delay/schedule.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <fmt/format.h>

#include "base/log.h"
#include "base/time_text.h"
#include "base/utf8.h"

namespace tarry::delay {
namespace {

using std::chrono::milliseconds;

// Headers that ask for something.  All begin with "x-", which is what the search looks for.
constexpr std::array<std::string_view, 10> scheduling = {
    header::deliver_at, header::delay, header::schedule_id, header::schedule_action,
    header::expire_at,  header::every, header::cron,        header::cron_tz,
    header::until,      header::count};
constexpr std::array<std::string_view, 5> recurring = {header::every, header::cron, header::cron_tz,
                                                       header::until, header::count};

// Whether a header's length and name stand at the "x-" at `at`.
bool is_name_at(Bytes bytes, std::size_t at) {
  for (const std::string_view name : scheduling) {
    // Zigzag: names are shorter than 64 bytes, so their length is one byte, doubled.
    if (at == 0 || bytes[at - 1] != name.size() * 2) continue;
    if (bytes.size() - at < name.size()) continue;
    if (std::memcmp(bytes.data() + at, name.data(), name.size()) == 0) return true;
  }
  return false;
}

bool is_recurring(std::string_view name) {
  for (const std::string_view each : recurring) {
    if (name == each) return true;
  }
  return false;
}

// A value as it was given, for the message.
std::string shown(const std::optional<Bytes>& value) {
  if (!value) return "null";
  return fmt::format("\"{}\"", printable(as_text(*value), 64));
}

std::string wrong(std::string_view name, const std::optional<Bytes>& value, std::string_view why) {
  return fmt::format("{}: {} {}", name, shown(value), why);
}

bool is_binary(Bytes value) {
  return value.size() == 8 && value[0] == 0;
}

std::expected<WallTime, std::string> time_in(std::string_view name,
                                             const std::optional<Bytes>& value) {
  if (!value) return std::unexpected(wrong(name, value, "is not a time"));
  if (is_binary(*value)) return from_ms(load_be<std::int64_t>(value->data()));
  const auto time = parse_time(as_text(*value));
  if (!time) return std::unexpected(fmt::format("{}: {}", name, time.error().message));
  return *time;
}

std::expected<milliseconds, std::string> duration_in(std::string_view name,
                                                     const std::optional<Bytes>& value) {
  if (!value) return std::unexpected(wrong(name, value, "is not a duration"));
  if (is_binary(*value)) return milliseconds{load_be<std::int64_t>(value->data())};
  const auto duration = parse_duration(as_text(*value));
  if (!duration) return std::unexpected(fmt::format("{}: {}", name, duration.error().message));
  return *duration;
}

std::expected<std::string_view, std::string> id_in(const std::optional<Bytes>& value) {
  const std::string_view id = value ? as_text(*value) : std::string_view{};
  if (!value || id.empty() || id.size() > max_schedule_id_bytes) {
    return std::unexpected(
        wrong(header::schedule_id, value,
              fmt::format("is not an id: an id has 1 to {} bytes", max_schedule_id_bytes)));
  }
  if (id.front() == '@') {
    return std::unexpected(wrong(
        header::schedule_id, value,
        "is not an id: a value that begins with @ is a handle, which only the broker gives out"));
  }
  if (!is_utf8(id)) {
    return std::unexpected(wrong(header::schedule_id, value, "is not an id: it is not UTF-8"));
  }
  return id;
}

// A header of which there may be one.
struct Given {
  bool present = false;
  bool twice = false;
  std::optional<Bytes> value;
  std::optional<Bytes> second;

  void take(const std::optional<Bytes>& given) {
    if (std::exchange(present, true)) {
      twice = true;
      second = given;
    } else {
      value = given;
    }
  }
};

struct GivenHeaders {
  Given deliver_at, delay, id, action, expire_at;

  bool has_time() const { return deliver_at.present || delay.present; }
  std::array<std::pair<const Given*, std::string_view>, 5> named() const {
    return {{{&deliver_at, header::deliver_at},
             {&delay, header::delay},
             {&id, header::schedule_id},
             {&action, header::schedule_action},
             {&expire_at, header::expire_at}}};
  }
};

std::expected<GivenHeaders, std::string> take_headers(const records::RecordView& record) {
  std::expected<GivenHeaders, std::string> given;
  for (const auto& each : record.headers) {
    if (!each.name.starts_with("x-")) continue;
    if (each.name == header::deliver_at) given->deliver_at.take(each.value);
    if (each.name == header::delay) given->delay.take(each.value);
    if (each.name == header::schedule_id) given->id.take(each.value);
    if (each.name == header::schedule_action) given->action.take(each.value);
    if (each.name == header::expire_at) given->expire_at.take(each.value);
    if (is_recurring(each.name)) {
      return std::unexpected(
          wrong(each.name, each.value, "asks for recurring delivery, which is not supported yet"));
    }
  }
  return given;
}

// The error of headers that do not go together, whatever their values say.
std::optional<std::string> conflict_in(const GivenHeaders& given) {
  for (const auto& [header, name] : given.named()) {
    if (header->twice) {
      return fmt::format("{}: given twice, as {} and as {}", name, shown(header->value),
                         shown(header->second));
    }
  }
  if (given.deliver_at.present && given.delay.present) {
    return fmt::format("{}: {} cannot be combined with {}: {}; give one of them",
                       header::deliver_at, shown(given.deliver_at.value), header::delay,
                       shown(given.delay.value));
  }
  return std::nullopt;
}

// The error of a wish to cancel.
std::optional<std::string> cancel_error(const GivenHeaders& given) {
  if (!given.action.value || as_text(*given.action.value) != "cancel")
    return wrong(header::schedule_action, given.action.value,
                 "is not an action: the only action is cancel");
  for (const auto& [header, name] : given.named()) {
    if (header->present && header != &given.id && header != &given.action) {
      return fmt::format("{}: \"cancel\" cannot be combined with {}: {}", header::schedule_action,
                         name, shown(header->value));
    }
  }
  if (!given.id.present)
    return wrong(header::schedule_action, given.action.value, "needs an x-schedule-id");
  return std::nullopt;
}

// The sum, or an error that names the header.
std::expected<WallTime, std::string> later(WallTime from, milliseconds by, std::string_view name,
                                           std::string_view value) {
  std::int64_t sum = 0;
  // A year less than the end of time, so that nobody who adds a window to it overflows.
  constexpr std::int64_t latest = std::numeric_limits<std::int64_t>::max() - 31'622'400'000;
  if (__builtin_add_overflow(to_ms(from), by.count(), &sum) || sum > latest) {
    return std::unexpected(
        fmt::format("{}: {} is too far in the future to be stored", name, value));
  }
  return from_ms(sum);
}

// Sets when the record is due and whether that is now; or returns the error.
std::optional<std::string> set_due(Schedule& schedule, const GivenHeaders& given,
                                   const TopicDelay& topic, WallTime arrived, WallTime believed) {
  WallTime from = arrived;
  milliseconds delay =
      given.has_time() ? milliseconds{0} : std::max(topic.default_delay, milliseconds{0});
  // For the errors: the last header that counts.
  std::string_view name = "tarry.delay.ms";
  std::string value = std::to_string(topic.default_delay.count());
  if (given.delay.present) {
    name = header::delay;
    value = shown(given.delay.value);
    const auto duration = duration_in(name, given.delay.value);
    if (!duration) return duration.error();
    delay = *duration;
  }
  if (given.deliver_at.present) {
    name = header::deliver_at;
    value = shown(given.deliver_at.value);
    const auto time = time_in(name, given.deliver_at.value);
    if (!time) return time.error();
    from = *time;
  }
  const auto due = later(from, delay, name, value);
  if (!due) return due.error();
  schedule.due = *due;
  schedule.kind = *due <= believed || (!given.deliver_at.present && delay.count() == 0)
                      ? Schedule::Kind::immediate
                      : Schedule::Kind::delayed;
  // `due` may lie far below zero; what is compared lies above.
  if (given.has_time() && topic.max_delay && *due > arrived && *due - arrived > *topic.max_delay) {
    return fmt::format(
        "{}: {} is further in the future than this topic's tarry.delay.max.ms={} allows", name,
        value, topic.max_delay->count());
  }
  return std::nullopt;
}

}  // namespace

bool is_taken_out(std::string_view name) {
  if (!name.starts_with("x-")) return false;
  return name == header::deliver_at || name == header::delay || name == header::schedule_action ||
         name == header::expire_at || name == header::scheduled_for ||
         name == header::schedule_handle || is_recurring(name);
}

bool may_schedule(Bytes records) {
  std::size_t at = 0;
#if defined(__SSE2__)
  // Sixteen places at a time: an 'x' with a '-' behind it.
  const __m128i x = _mm_set1_epi8('x');
  const __m128i dash = _mm_set1_epi8('-');
  for (; at + 17 <= records.size(); at += 16) {
    const auto* here = records.data() + at;
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(here));
    const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(here + 1));
    auto hits = static_cast<unsigned>(
        _mm_movemask_epi8(_mm_and_si128(_mm_cmpeq_epi8(first, x), _mm_cmpeq_epi8(second, dash))));
    for (; hits != 0; hits &= hits - 1) {
      if (is_name_at(records, at + static_cast<std::size_t>(__builtin_ctz(hits)))) return true;
    }
  }
#endif
  for (; at + 2 <= records.size(); ++at) {
    if (records[at] == 'x' && records[at + 1] == '-' && is_name_at(records, at)) return true;
  }
  return false;
}

std::expected<Schedule, std::string> read_schedule(const records::RecordView& record,
                                                   const TopicDelay& topic, WallTime arrived,
                                                   WallTime believed) {
  const auto given = take_headers(record);
  if (!given) return std::unexpected(given.error());
  const bool by_default = !given->has_time() && topic.default_delay > milliseconds{0};
  const bool asks =
      given->has_time() || given->action.present || given->expire_at.present || by_default;
  if (!asks) return Schedule{};  // An id alone schedules nothing.
  if (auto conflict = conflict_in(*given)) return std::unexpected(std::move(*conflict));

  Schedule schedule;
  if (given->id.present) {
    const auto id = id_in(given->id.value);
    if (!id) return std::unexpected(id.error());
    schedule.id = *id;
  }
  if (given->action.present) {
    if (auto error = cancel_error(*given)) return std::unexpected(std::move(*error));
    schedule.kind = Schedule::Kind::cancel;
    return schedule;
  }
  if (auto error = set_due(schedule, *given, topic, arrived, believed))
    return std::unexpected(std::move(*error));
  if (given->expire_at.present) {
    const auto expires = time_in(header::expire_at, given->expire_at.value);
    if (!expires) return std::unexpected(expires.error());
    // It can never be delivered before that, or not any more.
    if (*expires <= schedule.due || *expires <= believed) schedule.kind = Schedule::Kind::expired;
    schedule.expires = *expires;
  }
  return schedule;
}

}  // namespace tarry::delay
