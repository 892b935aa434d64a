#pragma once

// GroupHost: the services that a consumer group needs.  Groups implements it, or a test.
//
//   Group --store(record)--> GroupHost --> journal
//     ^                          |
//     '------- then(error) ------'  later, never inside store()
//
// A group decides and its host provides: time, chance, the journal and the memory that all groups
// share.  So a simulation can run thousands of groups with a clock and failures of its own.
//
// It outlives its groups.  All calls are on the shard's thread, and none of them waits.

#include <chrono>
#include <cstddef>
#include <functional>

#include "base/clock.h"
#include "base/log_throttle.h"
#include "base/random.h"
#include "broker/groups/group_record.h"
#include "broker/groups/group_share.h"
#include "broker/settings/broker_config.h"
#include "protocol/error_code.h"
#include "purgatory/purgatory.h"
#include "timing/timing_wheel.h"

namespace tarry::broker {

class Group;

// Clients can cause these lines over and over, with as many groups and members as they like: so
// all groups together have this many of each kind.
struct GroupLines {
  static constexpr unsigned lines_per_kind = 20;
  LogThrottle departures{lines_per_kind};
  LogThrottle takeovers{lines_per_kind};
  LogThrottle assignments{lines_per_kind};
  LogThrottle names{lines_per_kind};
  LogThrottle limits{lines_per_kind};
};

class GroupHost {
 public:
  virtual const BrokerConfig& config() const = 0;
  virtual purgatory::Purgatory& purgatory() = 0;
  virtual timing::TimingWheel& wheel() = 0;
  virtual timing::Tick tick() const = 0;
  virtual timing::Tick tick_after(std::chrono::milliseconds wait) const = 0;
  virtual WallTime wall() const = 0;
  virtual Random& random() = 0;
  virtual bool stopping() const = 0;
  virtual GroupLines& lines() = 0;

  // Writes `record`; `then` is called when it is durable, or with the error to answer.  Never
  // inside this call.
  using Stored = std::move_only_function<void(protocol::ErrorCode)>;
  virtual void store(Group& group, const GroupRecordView& record, Stored then) = 0;

  // Whether the members of a group that counts in `share` may take `more` beside what others have;
  // logs the bound that is hit.
  virtual bool has_member_room(const Group& group, const GroupShare& share, std::size_t more) = 0;
  // Says that the memory of a group's members has changed.
  virtual void member_bytes_changed(std::size_t before, std::size_t now) = 0;

  // The group's state(), or the members' subscriptions, have changed.
  virtual void state_changed(Group& group) = 0;

  // The group has no members any more, and expects none.
  virtual void on_unused(Group& group) = 0;

 protected:
  ~GroupHost() = default;
};

}  // namespace tarry::broker
