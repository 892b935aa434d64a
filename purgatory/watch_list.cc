#include "purgatory/watch_list.h"

#include "base/assert.h"

namespace tarry::purgatory {

WatchList::~WatchList() {
  TARRY_ASSERT(!visiting_, "is_satisfied() may not destroy what is watched");
  watches_.clear_and_dispose([](Watch* watch) { watch->list_ = nullptr; });
}

std::size_t WatchList::advance_to(Threshold value) {
  if (lowest() > value || watches_.empty()) return 0;
  return visit(value);
}

std::size_t WatchList::check_all() {
  return visit(never_reached);
}

std::size_t WatchList::visit(Threshold up_to) {
  TARRY_ASSERT(!visiting_, "is_satisfied() may not change what is watched");
  visiting_ = true;
  ++pass_;
  std::size_t satisfied = 0;
  for (next_ = watches_.begin(); next_ != watches_.end() && next_->threshold_ <= up_to;) {
    // Moved on before the operation is asked, because it may leave the list.
    Watch& watch = *next_++;
    // A watch that rewatch() moved forward in this pass was asked already; asking it again could
    // not give another answer, because nothing changes while we visit.
    if (watch.last_pass_ == pass_) continue;
    watch.last_pass_ = pass_;
    if (watch.watcher_->reached(watch)) ++satisfied;
  }
  visiting_ = false;
  return satisfied;
}

void WatchList::add(Watch& watch, Watcher& watcher, Threshold threshold) {
  watch.list_ = this;
  watch.watcher_ = &watcher;
  watch.threshold_ = threshold;
  if (watches_.empty() || watches_.rbegin()->threshold_ <= threshold) {
    watches_.push_back(watch);
  } else if (threshold < watches_.begin()->threshold_) {
    watches_.push_front(watch);
  } else {
    watches_.insert(watch);  // Behind its equals.
  }
}

void WatchList::remove(Watch& watch) {
  const auto place = watches_.iterator_to(watch);
  // A visit goes on from next_, so that must not be the watch that goes.
  if (visiting_ && next_ == place) ++next_;
  watches_.erase(place);
  watch.list_ = nullptr;
}

}  // namespace tarry::purgatory
