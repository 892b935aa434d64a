#include "server/blocking_pool.h"

#include <utility>

#include <fmt/core.h>
#include <boost/asio/post.hpp>

#include "base/assert.h"
#include "server/thread_name.h"

namespace tarry::server {

class BlockingPool::Door final : public Background {
 public:
  Door(BlockingPool& pool, boost::asio::io_context& context) : pool_(pool), context_(context) {}

  void run_and_then(Work work, Work then) override {
    pool_.hand_in({context_, std::move(work), std::move(then)});
  }

 private:
  BlockingPool& pool_;
  boost::asio::io_context& context_;
};

BlockingPool::BlockingPool(std::size_t threads) {
  TARRY_ASSERT(threads > 0, "a pool without threads never does anything");
  for (std::size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this, i] {
      name_this_thread(fmt::format("tarry-io-{}", i));
      run();
    });
  }
}

BlockingPool::~BlockingPool() {
  stop();
}

std::unique_ptr<Background> BlockingPool::background_for(boost::asio::io_context& context) {
  return std::make_unique<Door>(*this, context);
}

void BlockingPool::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  handed_in_.notify_all();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

void BlockingPool::hand_in(Job job) {
  {
    const std::scoped_lock lock(mutex_);
    if (stopping_) return;
    jobs_.push_back(std::move(job));
  }
  handed_in_.notify_one();
}

void BlockingPool::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    handed_in_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    [&]() noexcept { job.work(); }();
    job.work = nullptr;  // What it holds goes before `then` may look at what is left of it.
    boost::asio::post(job.context, [then = std::move(job.then)]() mutable { then(); });
    lock.lock();
  }
}

}  // namespace tarry::server
