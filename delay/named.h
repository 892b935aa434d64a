#pragma once

// Named: the record that an id or a handle stands for.

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "storage/bucket.h"
#include "storage/pending.h"

namespace tarry::delay {

struct Named {
  enum class State { unknown, pending, delivered };
  State state = State::unknown;
  storage::PendingKey key{};
  WallTime first{};  // Its handle's due time.
  std::string id{};  // The record's own, where there is one.
  storage::PendingShare share{};

  // The one that has the id of which the store knows this as the last event.  An event before
  // `remembered` is unknown.
  static Named of_id(std::string_view id, const std::optional<storage::ScheduleEvent>& last,
                     WallTime remembered) {
    using Kind = storage::ScheduleEvent::Kind;
    if (!last) return {};
    if (last->is_pending())
      return {State::pending, last->key, last->first, std::string(id), last->share()};
    if (last->kind != Kind::delivered || last->at <= remembered) return {};
    return {State::delivered, last->key, last->first, std::string(id)};
  }
};

}  // namespace tarry::delay
