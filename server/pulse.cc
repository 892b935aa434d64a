#include "server/pulse.h"

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

#include "server/thread_name.h"

namespace tarry::server {

Pulse::Pulse(std::chrono::milliseconds interval, std::function<void()> turn,
             std::string thread_name)
    : thread_([interval, turn = std::move(turn),
               thread_name = std::move(thread_name)](const std::stop_token& stop) {
        name_this_thread(thread_name);
        std::mutex mutex;
        std::condition_variable_any wake;
        std::unique_lock lock(mutex);
        while (!wake.wait_for(lock, stop, interval, [&] { return stop.stop_requested(); })) turn();
      }) {}

}  // namespace tarry::server
