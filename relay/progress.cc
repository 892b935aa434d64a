#include "relay/progress.h"

#include <utility>

#include "base/log.h"

namespace tarry::relay {

void Progress::transact_failed(std::string why, MonoTime mono) {
  if (stalled_ != why) log_warn("relay", "no progress: {}", why);
  stall(std::move(why), mono);
  transact_.failed(mono, first_, longest_);
}

void Progress::find_failed(std::string why, MonoTime mono) {
  if (find_why_ != why) log_warn("relay", "no partition can be taken over: {}", why);
  find_why_ = why;
  stall(std::move(why), mono);
  find_.failed(mono, first_, longest_);
}

void Progress::stall(std::string why, MonoTime mono) {
  // An outage has many faces: operators ask how long it lasts, not since when it has this one.
  if (!stalled_since_) stalled_since_ = mono;
  stalled_ = std::move(why);
}

}  // namespace tarry::relay
