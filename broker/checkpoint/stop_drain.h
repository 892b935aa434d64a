#pragma once

// StopDrain: writes everything to the disk when a shard accepts no more work.
//
//    start(then) --> the journal's rounds, until it is idle --> a checkpoint of all --> then()
//                      |                                          |
//                      '-- the disk takes nothing: some seconds   '-- given up, or failed
//
// `then` is called once, whatever happens.  Records that the journal has gathered and not written
// were never acknowledged, so a stop may drop them, but not at once.
//
// Belongs to its shard and its thread.

#include <functional>

#include "timing/timing_wheel.h"

namespace tarry::broker {

class Checkpointer;
class ShardContext;
class ShortageRetry;

class StopDrain {
 public:
  StopDrain(ShardContext& shard, Checkpointer& checkpointer, ShortageRetry& shortage);

  // Nothing is appended any more.
  void start(std::move_only_function<void()> then);
  // A run of the checkpointer has ended, while the shard stops.
  void checkpoint_ended();

 private:
  void go_on();
  bool journal_may_wait();
  void finish();

  ShardContext& shard_;
  Checkpointer& checkpointer_;
  ShortageRetry& shortage_;
  std::move_only_function<void()> then_;  // Null before start() and once it was called.
  bool is_told_ = false;                  // The operator knows that the stop waits.
  timing::CallbackTimer timer_;
};

}  // namespace tarry::broker
