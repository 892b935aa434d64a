#include "delay/dropped_topics.h"

#include <algorithm>

namespace tarry::delay {

void DroppedTopics::drop(const TopicId& topic) {
  // One that was begun before may have something of it, the next one has not.
  constexpr int checkpoints = 2;
  if (!topics_.try_emplace(topic, checkpoints).second) return;
  const auto& homes = homes_.all();
  if (!homes.empty()) next_home_ = homes.begin()->first;
}

void DroppedTopics::look_at(std::shared_ptr<const Resident> loaded) {
  if (!topics_.empty()) chunks_.emplace_back(std::move(loaded), 0);
}

// Notes what may have something of dropped topics.
void DroppedTopics::look_at_homes(std::size_t budget) {
  if (!next_home_) return;
  const auto& homes = homes_.all();
  auto at = homes.lower_bound(*next_home_);
  for (; budget > 0 && at != homes.end(); --budget, ++at) {
    const auto& [id, home] = *at;
    if (home.on_disk || home.foreign) homes_.sweep_all_of(id);
    for (const auto& [bucket, shelf] : home.shelves)
      for (const auto& resident : shelf.residents) chunks_.emplace_back(resident, 0);
    budget -= std::min(budget - 1, home.shelves.size());
  }
  next_home_ = at == homes.end() ? std::nullopt : std::optional(at->first);
}

void DroppedTopics::search(std::size_t budget) {
  look_at_homes(budget);
  for (; budget > 0 && !chunks_.empty(); --budget) {
    auto& [resident, next] = chunks_.front();
    if (!resident->on_shelf || next >= resident->live.size()) {
      chunks_.pop_front();
      continue;
    }
    const std::size_t index = next++;
    if (resident->live[index] && contains(resident->chunk->at(index).partition.topic))
      homes_.drop(*resident, index);
  }
}

void DroppedTopics::noted(bool is_handing) {
  for (auto& [topic, checkpoints] : topics_) checkpoints = std::max(0, checkpoints - 1);
  if (is_searching() || is_handing) return;
  std::erase_if(topics_, [](const auto& topic) { return topic.second == 0; });
}

}  // namespace tarry::delay
