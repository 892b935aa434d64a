#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <memory>
#include <utility>

#include "base/log.h"
#include "relay/closer.h"

namespace tarry::relay {

using namespace std::chrono_literals;

TEST_CASE("work that ends at once has ended when its closer is destroyed") {
  std::atomic<int> ended = 0;
  {
    Closer closer(60s);
    for (int i = 0; i < 20; ++i) closer.close([&] { ++ended; });
  }
  CHECK(ended == 20);
}

TEST_CASE("work that does not end in time is abandoned, and work that ends is not") {
  // They outlive the closer, as what is left behind does.
  auto may_end = std::make_shared<std::promise<void>>();
  auto has_ended = std::make_shared<std::promise<void>>();
  set_log_level(LogLevel::off);
  {
    Closer closer(1ms);
    closer.close([may_end, has_ended, wait = may_end->get_future()]() mutable {
      wait.get();
      has_ended->set_value();
    });
    std::promise<void> other;
    closer.close([&] { other.set_value(); });
    other.get_future().get();
    CHECK(closer.wait(1ms) >= 1);
  }
  set_log_level(LogLevel::info);
  may_end->set_value();
  has_ended->get_future().get();
}

TEST_CASE("work that ends later is waited for") {
  std::promise<void> may_end;
  Closer closer(60s);
  closer.close([wait = may_end.get_future()]() mutable { wait.get(); });
  CHECK(closer.wait(0ms) == 1);
  may_end.set_value();
  CHECK(closer.wait(60s) == 0);
}

}  // namespace tarry::relay
