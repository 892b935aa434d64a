#include "cli/explanation.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include <fmt/core.h>

#include "base/ascii_case.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/log.h"
#include "base/time_text.h"
#include "delay/header_names.h"
#include "delay/schedule.h"
#include "records/batch_builder.h"
#include "records/record_batch.h"

namespace tarry::cli {
namespace {

using std::chrono::milliseconds;

// This many show whether a cron expression means what was intended.
constexpr std::size_t runs_shown = 5;

const char* word_of(delay::Schedule::Kind kind) {
  using Kind = delay::Schedule::Kind;
  switch (kind) {
    case Kind::none:
      break;
    case Kind::immediate:
      return "immediate";
    case Kind::delayed:
      return "delayed";
    case Kind::expired:
      return "expired";
    case Kind::cancel:
      return "cancel";
    case Kind::invalid:  // Only in a batch: a single record has an error instead.
      return "refused";
  }
  return "nothing";
}

// A number of milliseconds, or a duration as `tarry topic create --config` takes it.
Result<milliseconds> milliseconds_of(std::string_view key, std::string_view value) {
  const auto duration = parse_duration(value);
  if (duration) return *duration;
  return fail(Errc::invalid, fmt::format("{}: {}", key, duration.error().message));
}

// Knows only the configs that decide a due time: the broker's own table is in broker/, which
// commands do not include.
Result<> set_config(delay::TopicDelay& topic, std::string_view key, std::string_view value) {
  if (key == "tarry.delay.enable") {
    // Without regard to case, as brokers read it.
    std::string lower(value);
    for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (lower != "true" && lower != "false")
      return fail(Errc::invalid, fmt::format("{}: {}: give true or false", key, printable(value)));
    topic.enable = lower == "true";
    return {};
  }
  if (key == "tarry.delay.ms" || key == "tarry.delay.max.ms") {
    const bool is_max = key == "tarry.delay.max.ms";
    // A topic's config says "no limit" so.
    if (is_max && value == "-1") {
      topic.max_delay.reset();
      return {};
    }
    const auto time = milliseconds_of(key, value);
    if (!time) return std::unexpected(time.error());
    if (is_max) {
      topic.max_delay = *time;
    } else {
      topic.default_delay = *time;
    }
    return {};
  }
  return fail(Errc::invalid,
              fmt::format("{}: the configs that decide when a record is due are "
                          "tarry.delay.enable, tarry.delay.ms and tarry.delay.max.ms",
                          printable(key)));
}

}  // namespace

Explanation explain(const RecordHeaders& headers, const delay::TopicDelay& topic, WallTime at) {
  Explanation explanation;
  explanation.result = word_of(delay::Schedule::Kind::none);
  if (!topic.enable) return explanation;  // As delay/batch_schedules does.
  std::vector<records::HeaderView> views;
  for (const auto& [name, value] : headers) {
    views.push_back({name, value ? std::optional(as_bytes(*value)) : std::nullopt});
    if (const auto meant = delay::nearly_named(name); !meant.empty())
      explanation.slips.emplace_back(name, meant);
  }
  // A record is built and parsed, so that the function that brokers use decides and no copy of it.
  Buffer body;
  records::append_record_body(body, std::nullopt, Bytes{}, views);
  const auto record = records::parse_record_body(body);
  TARRY_ASSERT(record.has_value(), "a record that was just built can be read");

  // No clock was set forward here, so the time of the arrival is believed.
  const auto schedule = delay::read_schedule(*record, topic, at, at);
  if (!schedule) {
    explanation.result = "refused";
    explanation.error = schedule.error().message;
    return explanation;
  }
  using Kind = delay::Schedule::Kind;
  explanation.result = word_of(schedule->kind);
  if (schedule->kind == Kind::none) return explanation;
  explanation.id = schedule->id;
  if (schedule->kind == Kind::cancel) return explanation;
  explanation.due = schedule->due;
  if (schedule->recurrence) {
    explanation.recurrence = schedule->recurrence->text();
    // The first run is the due time itself.
    explanation.upcoming = schedule->recurrence->upcoming(runs_shown - 1);
    explanation.upcoming.insert(explanation.upcoming.begin(), schedule->due);
  }
  if (schedule->expires != storage::never_expires) explanation.expires = schedule->expires;
  return explanation;
}

std::string meant_header(std::string_view word) {
  const auto colon = word.find(':');
  if (colon == word.npos || word.substr(0, colon).contains('=')) return {};
  const std::string_view name = word.substr(0, colon);
  if (!delay::is_taken_out(name) && !equals_ignoring_case(name, delay::header::schedule_id))
    return {};
  std::string_view value = word.substr(colon + 1);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return fmt::format("{}={}", name, value);
}

Result<delay::TopicDelay> topic_delay_of(const std::vector<std::string>& words) {
  delay::TopicDelay topic;
  for (const auto& word : words) {
    const auto equals = word.find('=');
    const std::string_view value =
        equals == word.npos ? std::string_view{} : std::string_view(word).substr(equals + 1);
    if (auto set = set_config(topic, std::string_view(word).substr(0, equals), value); !set)
      return std::unexpected(set.error());
  }
  return topic;
}

}  // namespace tarry::cli
