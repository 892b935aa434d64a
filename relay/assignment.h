#pragma once

// Assignment: the source partitions that the group has assigned to this member, each with the stage
// of its take-over.
//
//   assigned --> finding --> loading --> reading --> owned
//
// member.h says what each stage waits for.  The stage is kept apart from the Partition because a
// Partition knows no Kafka: it cannot tell whether a log has been read to its end.
//
// Belongs to the Member, whose thread alone changes it, under the Member's lock; a PendingView
// reads it under the same lock.

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "relay/cluster.h"
#include "relay/partition.h"
#include "relay/retry.h"

namespace tarry::relay {

enum class Stage { finding, loading, reading, owned };
std::string_view name_of(Stage stage);

struct AssignedPartition {
  explicit AssignedPartition(Partition with) : partition(std::move(with)) {}

  Partition partition;
  Stage stage = Stage::finding;
  MonoTime since{};                          // The take-over began.
  std::optional<std::int64_t> take_over_ms;  // How long it took.
  MonoTime stage_since{};                    // The last attempt or progress in this stage.
  Offset target = -1;       // loading, reading: the offset to which the log has to be read.
  MonoTime target_asked{};  // reading: when that end was asked for, and
  WallTime target_at{};     // the wall time of that moment.
  // reading: all that was acknowledged by then is taken in, so what was due by then may leave.
  // Zero: this is not known of any time.
  WallTime read_until{};
  Offset committed = 0;    // loading: the source offset.
  WallTime complete_at{};  // loading: when the rows in the store were complete.
  std::string last_owner;
  // The source and the state partition were read to these offsets, as Kafka said.
  Offset read_end = -1, rows_end = -1;
  // All that was fetched from the source by then has arrived; zero: nothing was read yet.
  WallTime fetched_at{};
  // A record of the source, or its end, has come since the assignment.
  bool was_fetched = false;
  bool is_paused = false;  // Nothing is read from the source (intake.h).
  MonoTime resumed_at{};   // The last pause ended, or the queue of all partitions was full.
  // owned: for want of room.  Its source was not read to its end, which is done when there is room.
  bool is_unread = false;
  // It was read to an end that was asked for since the last stall.  A pause, a full queue, or the
  // wait for a first fetch takes nothing from that, for what is shown: it is no new take-over.
  bool is_taken_over = false;
  // This member kept a warm copy before the assignment, and goes on reading its rows.
  bool is_warm = false;
  std::string waits;    // Why the take-over waits; empty: nothing is wrong.
  std::string held_by;  // owned: the target that what is due waits for; empty: none.
  std::string bad_row;  // A row of a newer version; the partition is not taken over.
  // Its source is not the one that was read; it is not taken over until it is assigned again.
  std::string bad_source;
  // Nothing is committed of it before this, because a topic of its source may not be used, or takes
  // nothing; the reason is in `rests`, and if that is empty, it does not rest.
  Retry rest;
  std::string rests;
  MonoTime rests_since{};
  // Its rows were not confirmed in time, and none was since.
  bool was_silent = false;
  // The work that is planned and not committed; between two steps only at-least-once has one.  It
  // is dropped with the stage in which it was planned: after another take-over it is planned again.
  std::optional<Work> open;
  Retry find;
  Retry ends;  // Retries the question for its end, for orders.
  std::string ends_error;

  // Its pending records are those that they should be, up to `read_until` or altogether.
  bool may_deliver() const {
    return stage == Stage::owned || (stage == Stage::reading && read_until != WallTime{});
  }
  bool may_be_found(MonoTime mono) const {
    return stage == Stage::finding && find.may(mono) && rest.may(mono) && bad_source.empty();
  }
  void end_rest() {
    rest.reset();
    rests.clear();
  }
  // Its arrived records may be taken in.
  bool takes_in() const { return stage == Stage::reading || stage == Stage::owned; }
  bool reads_rows() const {
    return stage == Stage::loading || (stage == Stage::finding && is_warm);
  }
  // All records before `end` were read and taken in.
  bool has_taken(Offset end) const {
    return std::max(partition.arrived_end(), read_end) >= end && !partition.has_arrived_before(end);
  }
};

using Assignment = std::map<Source, AssignedPartition>;

}  // namespace tarry::relay
