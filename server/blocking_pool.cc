#include "server/blocking_pool.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/post.hpp>

#include "base/assert.h"
#include "server/thread_name.h"

namespace tarry::server {

// What waits for the same threads.
class BlockingPool::Queue {
 public:
  struct Job {
    boost::asio::io_context& context;
    Background::Work work;
    Background::Work then;
  };

  void add_thread(std::string name) {
    threads_.emplace_back([this, name = std::move(name)] {
      name_this_thread(name);
      run();
    });
  }

  void hand_in(Job job) {
    {
      const std::scoped_lock lock(mutex_);
      if (stopping_) return;
      jobs_.push_back(std::move(job));
    }
    handed_in_.notify_one();
  }

  void begin_stop() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    handed_in_.notify_all();
  }

  void join() {
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void run() {
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

  std::mutex mutex_;  // Of all below but threads_.
  std::condition_variable handed_in_;
  std::deque<Job> jobs_;  // Bounded by what the shards have in flight.
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

class BlockingPool::Door final : public Background {
 public:
  Door(Queue& queue, boost::asio::io_context& context) : queue_(queue), context_(context) {}

  void run_and_then(Work work, Work then) override {
    queue_.hand_in({context_, std::move(work), std::move(then)});
  }

 private:
  Queue& queue_;
  boost::asio::io_context& context_;
};

BlockingPool::BlockingPool(std::size_t threads) {
  TARRY_ASSERT(threads > 0, "a pool without threads never does anything");
  auto& everybody = *queues_.emplace_back(std::make_unique<Queue>());
  for (std::size_t i = 0; i < threads; ++i) everybody.add_thread(fmt::format("tarry-io-{}", i));
}

BlockingPool::~BlockingPool() {
  stop();
}

std::unique_ptr<Background> BlockingPool::background_for(boost::asio::io_context& context) {
  return std::make_unique<Door>(*queues_.front(), context);
}

std::unique_ptr<Background> BlockingPool::own_lane_for(boost::asio::io_context& context,
                                                       std::string name) {
  auto& own = *queues_.emplace_back(std::make_unique<Queue>());
  own.add_thread(std::move(name));
  return std::make_unique<Door>(own, context);
}

void BlockingPool::stop() {
  for (auto& queue : queues_) queue->begin_stop();
  for (auto& queue : queues_) queue->join();
}

}  // namespace tarry::server
