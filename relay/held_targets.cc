#include "relay/held_targets.h"

#include <utility>

#include "base/log.h"

namespace tarry::relay {

void HeldTargets::hold(const std::string& topic, std::string why, MonoTime mono,
                       std::chrono::milliseconds first, std::chrono::milliseconds longest) {
  if (held_.size() >= max_idle && !held_.contains(topic))
    std::erase_if(held_, [&](const auto& each) { return each.second.retry.may(mono); });
  const auto [held, is_new] = held_.try_emplace(topic);
  // The first time counts, also when the reason changes: operators ask how long it has lasted.
  if (is_new) held->second.since = mono;
  // Once for each reason: it is tried again every few seconds, perhaps for days.
  if (held->second.why != why) log_error("relay", "records for {} wait: {}", topic, why);
  held->second.why = std::move(why);
  held->second.retry.failed(mono, first, longest);
}

std::set<std::string> HeldTargets::waiting(MonoTime mono) const {
  std::set<std::string> waiting;
  for (const auto& [topic, each] : held_)
    if (!each.retry.may(mono)) waiting.insert(topic);
  return waiting;
}

const HeldTargets::HeldTarget* HeldTargets::find(const std::string& topic) const {
  const auto found = held_.find(topic);
  return found == held_.end() ? nullptr : &found->second;
}

}  // namespace tarry::relay
