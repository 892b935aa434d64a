#include "cli/schedule_summary.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "base/time_text.h"
#include "cli/io/number_text.h"
#include "cli/io/text.h"
#include "cli/local_time.h"

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;

// The clocks of two machines that are set by NTP differ by less.
constexpr auto clock_difference = 1s;

delay::TopicDelay delay_configs_in(const std::vector<ConfigEntry>& configs) {
  constexpr std::array<std::string_view, 3> ours{"tarry.delay.enable", "tarry.delay.ms",
                                                 "tarry.delay.max.ms"};
  std::vector<std::string> words;
  for (const auto& config : configs)
    if (config.value && std::ranges::find(ours, config.name) != ours.end())
      words.push_back(fmt::format("{}={}", config.name, *config.value));
  // A value that this program does not understand comes from a newer broker; then the summary says
  // less.
  return topic_delay_of(words).value_or(delay::TopicDelay{});
}

// `id` as one word of a command that finds it; nullopt if a terminal could not show that.
std::optional<std::string> id_word(const std::string& id) {
  auto word = shell_word(id);
  // An argument that begins with a dash is an option, unless "--" stands before it.
  if (word && id.starts_with('-')) word->insert(0, "-- ");
  return word;
}

}  // namespace

ScheduleSummary::ScheduleSummary(std::string topic, RecordHeaders headers,
                                 const std::vector<ConfigEntry>& configs, WallTime sent,
                                 std::string flags)
    : topic_(std::move(topic)),
      flags_(std::move(flags)),
      headers_(std::move(headers)),
      delay_(delay_configs_in(configs)),
      has_dead_letters_(std::ranges::any_of(configs,
                                            [](const ConfigEntry& config) {
                                              return config.name == "tarry.delay.invalid" &&
                                                     config.value == "dead-letter";
                                            })),
      earliest_(explain(headers_, delay_, sent).due) {
  // If an arrival one millisecond later gives another due time, that counts from the arrival.
  counts_from_arrival_ = explain(headers_, delay_, sent + 1ms).due != earliest_;
}

// A cron expression is costly to explain, and many records are answered in one millisecond.
void ScheduleSummary::explain_at(WallTime answered) {
  if (at_ == answered) return;
  at_ = answered;
  explanation_ = explain(headers_, delay_, answered);
  const auto& result = explanation_.result;
  // A record that seems refused here but was accepted counts as delayed: the topic's configs may
  // not be known.
  fate_ = result == "cancel"                         ? Fate::cancellation
          : result == "expired"                      ? Fate::expired
          : result == "refused" && has_dead_letters_ ? Fate::dead_letter
                                                     : Fate::delayed;
}

void ScheduleSummary::add(WallTime answered) {
  explain_at(answered);
  switch (fate_) {
    case Fate::delayed:
      ++delayed_;
      if (!explanation_.due) break;
      // The clock may have been set back meanwhile.
      if (earliest_) earliest_ = std::min(*earliest_, *explanation_.due);
      latest_ = std::max(latest_.value_or(*explanation_.due), *explanation_.due);
      break;
    case Fate::cancellation:
      ++cancellations_;
      break;
    case Fate::expired:
      ++expired_;
      break;
    case Fate::dead_letter:
      ++dead_letters_;
      refusal_ = explanation_.error;
      break;
  }
}

std::string ScheduleSummary::accepted(std::uint64_t accepted) const {
  if (cancellations_ == accepted)
    return counted(cancellations_, "cancellation", "cancellations") + " accepted";
  std::string text = counted(accepted, "record", "records") + " accepted";
  // The number stands only where it is not that of all.
  const auto part = [accepted](std::uint64_t count) {
    return count == accepted ? ", " : fmt::format(", {} of them ", count);
  };
  if (delayed_ != 0) text += part(delayed_) + "to be delivered later";
  if (cancellations_ != 0) text += fmt::format(", {} of them cancellations", cancellations_);
  if (expired_ != 0) {
    text +=
        part(expired_) + "never to be delivered: " +
        (expired_ == 1 ? "it expires before its due time" : "they expire before their due time");
  }
  if (dead_letters_ != 0) {
    text += fmt::format("{}{} to {}.invalid: {}", part(dead_letters_),
                        dead_letters_ == 1 ? "as a dead letter" : "as dead letters", topic_,
                        cell(refusal_));
  }
  return text;
}

std::vector<std::string> ScheduleSummary::lines(bool is_terminal) const {
  if (delayed_ == 0) return {};
  std::vector<std::string> lines;
  if (earliest_ && latest_) lines.push_back(due_line(is_terminal));
  lines.push_back(find_line());
  return lines;
}

std::string ScheduleSummary::due_line(bool is_terminal) const {
  const auto& recurrence = explanation_.recurrence;
  std::string line = recurrence.empty() ? "due " : "first due ";
  if (!counts_from_arrival_ && earliest_ == latest_) {
    line += shown_time(*latest_, is_terminal);
  } else if (delayed_ == 1) {
    line += "about " + shown_time(*latest_, is_terminal);
  } else {
    line += fmt::format("between {} and {}", shown_time(*earliest_, is_terminal),
                        shown_time(*latest_, is_terminal));
  }
  return recurrence.empty() ? line : fmt::format("{}; recurring: {}", line, cell(recurrence));
}

std::string ScheduleSummary::find_line() const {
  if (const auto id = id_word(explanation_.id))
    return fmt::format("to find it: tarry delayed get {}{} {}", topic_, flags_, *id);
  std::string line = fmt::format("to find {}: tarry delayed list {}{}",
                                 delayed_ == 1 ? "it" : "them", topic_, flags_);
  if (!earliest_ || !latest_) return line;
  // The broker's clock decided the due time, and this one computed it: the range allows for both.
  const auto slack = counts_from_arrival_ ? clock_difference : 0s;
  const auto from = std::chrono::floor<std::chrono::seconds>(*earliest_) - slack;
  const auto to = std::chrono::floor<std::chrono::seconds>(*latest_) + 1s + slack;
  return fmt::format("{} --from {} --to {}", line, format_time(from), format_time(to));
}

}  // namespace tarry::cli
