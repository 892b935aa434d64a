#pragma once

// The names of the headers that schedule a record, and of those that delivery adds.  In a record
// they match without regard to ASCII case.

#include <string_view>

namespace tarry::delay {

namespace header {
inline constexpr std::string_view deliver_at = "x-deliver-at";
inline constexpr std::string_view delay = "x-delay";
inline constexpr std::string_view schedule_id = "x-schedule-id";
inline constexpr std::string_view schedule_action = "x-schedule-action";
inline constexpr std::string_view expire_at = "x-expire-at";
inline constexpr std::string_view every = "x-every";
inline constexpr std::string_view cron = "x-cron";
inline constexpr std::string_view cron_tz = "x-cron-tz";
inline constexpr std::string_view until = "x-until";
inline constexpr std::string_view count = "x-count";
// Added on delivery.
inline constexpr std::string_view scheduled_for = "x-scheduled-for";
inline constexpr std::string_view schedule_handle = "x-schedule-handle";
}  // namespace header

}  // namespace tarry::delay
