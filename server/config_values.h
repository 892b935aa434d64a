#pragma once

// SetValue: the function of a key that checks a value and puts it into the Config.
//
// The functions here make one for each kind of value, or are one themselves.
//
// Invariant: a value that is not allowed changes nothing, and the error says what is
// allowed and nothing else; the key and the place are the caller's to add.

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "broker/settings/broker_config.h"
#include "server/config.h"
#include "server/session_limits.h"

namespace tarry::server {

using SetValue = std::function<Result<>(Config& config, std::string_view value)>;

inline constexpr std::int64_t max_long = std::numeric_limits<std::int64_t>::max();
inline constexpr std::int64_t max_int = std::numeric_limits<std::int32_t>::max();
// A century: a longer time is a typing error, and 64 bits of nanoseconds end at three centuries.
inline constexpr std::int64_t max_time_ms = 3'155'760'000'000;

// Nullopt when the text is anything else than a whole number.
std::optional<std::int64_t> parse_whole_number(std::string_view value);

// A whole number between two bounds, which `put` stores.
SetValue number(std::int64_t min, std::int64_t max,
                std::function<void(Config& config, std::int64_t value)> put);

template <typename T>
SetValue broker_number(T broker::BrokerConfig::*member, std::int64_t min, std::int64_t max) {
  return number(min, max, [member](Config& config, std::int64_t value) {
    config.broker.*member = static_cast<T>(value);
  });
}

template <typename T>
SetValue session_number(T SessionLimits::*member, std::int64_t min, std::int64_t max) {
  return number(min, max, [member](Config& config, std::int64_t value) {
    config.sessions.*member = T(value);
  });
}

SetValue broker_time(std::chrono::milliseconds broker::BrokerConfig::*member, std::int64_t min);
SetValue broker_flag(bool broker::BrokerConfig::*member);

// One of several keys for the same time, which need not be given; make_config() finds the key that
// counts when all are read.
SetValue optional_time(std::optional<std::int64_t> Config::Times::*member, std::int64_t min,
                       std::int64_t max);

// A SetValue each, for a single key.
Result<> set_data_directory(Config& config, std::string_view value);
Result<> set_log_directory(Config& config, std::string_view value);
Result<> set_admin_listener(Config& config, std::string_view value);
Result<> set_admin_allowed_hosts(Config& config, std::string_view value);
Result<> set_admin_open_reads(Config& config, std::string_view value);
Result<> set_admin_loopback_reads(Config& config, std::string_view value);
Result<> set_header_aliases_key(Config& config, std::string_view value);
Result<> set_log_format_key(Config& config, std::string_view value);
Result<> set_log_level_key(Config& config, std::string_view value);
Result<> set_journal_file_bytes(Config& config, std::string_view value);

}  // namespace tarry::server
