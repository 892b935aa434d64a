#pragma once

// explain(): what a broker would make of a record with these headers, said without a broker.
//
// The headers are put into a record and read by the function that brokers read them with
// (delay/schedule.h), so the answer, and the reason of a refusal, are the broker's own.
//
// Pure.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "delay/sink.h"

namespace tarry::cli {

struct Explanation {
  // delayed, immediate, expired, cancel, nothing (no header schedules it), or refused.
  std::string result;
  std::optional<WallTime> due;      // Set for delayed, immediate and expired.
  std::optional<WallTime> expires;  // If it has an x-expire-at.
  std::string id;                   // Empty: none.
  std::string recurrence;           // For people; empty: it is delivered once.
  std::vector<WallTime> upcoming;   // The first runs of a recurring record, `due` among them.
  std::string error;                // The reason if it is refused.
  // Names that schedule nothing but are one letter off from one that does, and that one.
  std::vector<std::pair<std::string, std::string>> slips;
};

// Names and values; an empty optional is a null value.
using RecordHeaders = std::vector<std::pair<std::string, std::optional<std::string>>>;

// The record has these headers and arrives `at`.
Explanation explain(const RecordHeaders& headers, const delay::TopicDelay& topic, WallTime at);

// The header NAME=VALUE that was meant by a word such as "x-delay:1h", with ':' for the '='; empty:
// what is before the colon is no name of a header that schedules.
std::string meant_header(std::string_view word);

// The configs of a topic that decide when a record is due, from words KEY=VALUE.  Errors: invalid,
// a word that has another key or a value that a broker would refuse.
Result<delay::TopicDelay> topic_delay_of(const std::vector<std::string>& words);

}  // namespace tarry::cli
