#pragma once

// GroupReply: a JoinGroup or SyncGroup request whose answer its group does not know yet.
//
//   group.join(request, terms, reply);        // Answers, or keeps `reply` with its member.
//   co_return co_await reply.wait(shard.purgatory(), shard.tick());
//
// The group gives the answer later; DelayedJoin and DelayedSync say when.  If the deadline passes
// first, the group learns that the time of its phase is over, and gives the answer then; if it has
// none, as when the journal is late, the client gets COORDINATOR_NOT_AVAILABLE and tries again.
// The group forgets a reply that is cancelled or destroyed.
//
// Lives in the coroutine that waits, on the group's shard.

#include <array>
#include <optional>
#include <utility>

#include <boost/asio/awaitable.hpp>

#include "base/assert.h"
#include "broker/context/one_shot_event.h"
#include "protocol/error_code.h"
#include "purgatory/delayed_operation.h"
#include "purgatory/watch_list.h"

namespace tarry::broker {

class GroupWaits;
struct GroupMember;

template <typename Response>
class GroupReply : public purgatory::DelayedOperation {
 public:
  using DelayedOperation::DelayedOperation;

  // --- For the group

  // `member` waits until give(); not past `until`.
  void park(GroupWaits& group, GroupMember& member, purgatory::Tick until) {
    group_ = &group;
    member_ = &member;
    until_ = until;
  }
  void give(Response answer) {
    TARRY_ASSERT(!answer_, "a request is answered once");
    forget();
    answer_ = std::move(answer);
    given_.check_all();
  }
  void refuse(protocol::ErrorCode code) {
    Response answer;
    answer.error_code = code;
    give(std::move(answer));
  }
  void forget() {
    group_ = nullptr;
    member_ = nullptr;
  }

  // --- For who asked

  // Until has_answer().
  void begin(purgatory::Purgatory& purgatory, purgatory::Tick now) {
    const std::array watching{purgatory::Watching{given_, purgatory::never_reached}};
    start(purgatory, now, until_, watching);
  }
  boost::asio::awaitable<Response> wait(purgatory::Purgatory& purgatory, purgatory::Tick now) {
    begin(purgatory, now);
    if (!answered_.fired()) co_await answered_.wait();
    co_return std::move(*answer_);
  }
  bool has_answer() const { return answer_.has_value(); }
  const std::optional<Response>& answer() const { return answer_; }

 protected:
  GroupWaits* group() { return group_; }  // Null when nothing is waited for any more.
  GroupMember* member() { return member_; }

 private:
  // The deadline has passed before the group had an answer; it may give one in here.
  virtual void on_timeout() = 0;
  // The client that asked has gone.
  virtual void given_up() = 0;

  bool is_satisfied() final { return answer_.has_value(); }
  void on_complete(purgatory::Outcome outcome) final {
    if (!answer_ && outcome == purgatory::Outcome::expired) on_timeout();
    if (!answer_) {
      given_up();
      refuse(protocol::ErrorCode::coordinator_not_available);
    }
    answered_.fire();
  }

  GroupWaits* group_ = nullptr;
  GroupMember* member_ = nullptr;
  purgatory::Tick until_ = 0;
  std::optional<Response> answer_;
  purgatory::WatchList given_;  // Ourselves alone: how give() reaches us.
  OneShotEvent answered_;
};

}  // namespace tarry::broker
