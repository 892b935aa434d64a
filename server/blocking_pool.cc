#include "server/blocking_pool.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/post.hpp>

#include "base/assert.h"
#include "server/thread_name.h"

namespace tarry::server {

namespace {

// If there is no memory to post a finished job, posting is retried, because a request waits for the
// result.
constexpr std::chrono::milliseconds wait_for_memory{1};

}  // namespace

// The jobs that wait for the same threads.
class BlockingPool::Queue {
 public:
  struct Job {
    boost::asio::io_context& context;
    Background::Work work;
    Background::Work then;
  };

  ~Queue() {
    begin_stop();
    join();
  }

  void add_thread(std::string name, const StartThread& start) {
    threads_.reserve(threads_.size() + 1);  // A thread that has begun has its place.
    threads_.push_back(start([this, name = std::move(name)] {
      name_this_thread(name);
      run();
    }));
  }

  void hand_in(std::shared_ptr<Job> job) {
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
      // Woken for nothing but stop(): what was handed in before is done by now.
      if (jobs_.empty()) return;
      auto job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      // No one here could tell its shard that it failed, so an exception ends the process.
      [&]() noexcept { job->work(); }();
      job->work = nullptr;  // Frees what it holds before `then` runs: `then` may depend on that.
      hand_on(std::move(job));
      lock.lock();
    }
  }

  static void hand_on(std::shared_ptr<Job> job) {
    while (job) {
      try {
        // The exchange destroys `then` on its shard's thread, although this thread may hold the
        // last reference to the job.
        boost::asio::post(job->context, [job] { std::exchange(job->then, nullptr)(); });
        job = nullptr;
      } catch (const std::bad_alloc&) {
        std::this_thread::sleep_for(wait_for_memory);
      }
    }
  }

  std::mutex mutex_;  // Protects all below except threads_.
  std::condition_variable handed_in_;
  std::deque<std::shared_ptr<Job>> jobs_;  // Bounded by what the shards have in flight.
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

class BlockingPool::Door final : public Background {
 public:
  Door(Queue& queue, boost::asio::io_context& context) : queue_(queue), context_(context) {}

  void run_and_then(Work work, Work then) override {
    queue_.hand_in(std::make_shared<Queue::Job>(context_, std::move(work), std::move(then)));
  }

 private:
  Queue& queue_;
  boost::asio::io_context& context_;
};

BlockingPool::BlockingPool(std::size_t threads, StartThread start) : start_(std::move(start)) {
  TARRY_ASSERT(threads > 0, "a pool needs at least one thread");
  auto& everybody = *queues_.emplace_back(std::make_unique<Queue>());
  for (std::size_t i = 0; i < threads; ++i)
    everybody.add_thread(fmt::format("tarry-io-{}", i), start_);
}

BlockingPool::~BlockingPool() {
  stop();
}

std::unique_ptr<Background> BlockingPool::background_for(boost::asio::io_context& context) {
  return std::make_unique<Door>(*queues_.front(), context);
}

std::unique_ptr<Background> BlockingPool::dedicated_lane(boost::asio::io_context& context,
                                                         std::string name) {
  auto own = std::make_unique<Queue>();
  // Before the queue is listed: where the system refuses the thread, nothing is left of it.
  own->add_thread(std::move(name), start_);
  queues_.push_back(std::move(own));
  return std::make_unique<Door>(*queues_.back(), context);
}

void BlockingPool::stop() {
  // All are told before one is waited for, so that they finish their work side by side.
  for (auto& queue : queues_) queue->begin_stop();
  for (auto& queue : queues_) queue->join();
}

}  // namespace tarry::server
