#include "broker/context/step_queue.h"

#include <new>
#include <utility>

#include <boost/asio/post.hpp>

namespace tarry::broker {

void StepQueue::post_run() {
  boost::asio::post(executor_, [this] { run(); });
  is_posted_ = true;
}

void StepQueue::add(Step step) {
  waiting_.push_back(std::move(step));
  if (is_posted_) return;
  try {
    post_run();
  } catch (const std::bad_alloc&) {
    waiting_.pop_back();
    throw;
  }
}

void StepQueue::run() {
  do {
    Step step = std::move(waiting_.front());
    waiting_.pop_front();
    is_posted_ = false;
    ++taken_;
    if (!waiting_.empty()) {
      try {
        post_run();
      } catch (const std::bad_alloc&) {
        // Nobody else would let those behind it in, so they run at once.
      }
    }
    step();  // It may add its next step.
  } while (!is_posted_ && !waiting_.empty());
}

}  // namespace tarry::broker
