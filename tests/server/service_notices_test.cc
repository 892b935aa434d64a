#include "server/service_notices.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/captured_log.h"

namespace tarry::server {
namespace {

using namespace std::chrono_literals;

// The manager's end of the socket.
class Manager {
 public:
  explicit Manager(std::string path = "@tarry-test-" + std::to_string(::getpid()))
      : path_(std::move(path)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    if (path_.front() == '@') address.sun_path[0] = '\0';
    descriptor_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    REQUIRE(::bind(descriptor_, reinterpret_cast<const sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path_.size())) == 0);
  }
  ~Manager() {
    ::close(descriptor_);
    if (path_.front() != '@') ::unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }

  // The next message; empty: none came.
  std::string told(int flags = MSG_DONTWAIT) {
    std::array<char, 512> bytes{};
    const auto size = ::recv(descriptor_, bytes.data(), bytes.size(), flags);
    return size < 0 ? "" : std::string(bytes.data(), static_cast<std::size_t>(size));
  }

 private:
  std::string path_;
  int descriptor_ = -1;
};

TEST_SUITE("service_notices") {
  TEST_CASE("a message arrives whole, at a path and at an abstract name") {
    for (const char* begin : {"/tmp/tarry-notify-test-", "@tarry-notify-test-"}) {
      Manager manager(begin + std::to_string(::getpid()));
      CAPTURE(manager.path());
      ServiceManager(manager.path()).tell("READY=1\nSTATUS=serving");
      CHECK(manager.told() == "READY=1\nSTATUS=serving");
      CHECK(manager.told().empty());
    }
  }
  TEST_CASE("without a manager nothing is said and nothing logged") {
    CapturedLog log;
    CHECK_FALSE(ServiceManager().listens());
    ServiceManager().tell("READY=1");
    CHECK(log.text().empty());
  }
  TEST_CASE("a manager that cannot be reached is one line in the log that names its socket") {
    const std::string nowhere = "/tmp/tarry-notify-test-nobody";
    for (const auto& path : {nowhere, std::string(200, 'x')}) {
      CapturedLog log;
      ServiceManager(path).tell("READY=1");
      CAPTURE(log.text());
      CHECK(log.text().find("NOTIFY_SOCKET=" + path.substr(0, 100)) != std::string::npos);
    }
  }
  TEST_CASE("the watchdog is only for this process, and its period is a positive number") {
    CHECK(watchdog_period("30000000", "", 7) == 30s);
    CHECK(watchdog_period("30000000", "7", 7) == 30s);
    CHECK_FALSE(watchdog_period("30000000", "8", 7));
    for (const char* none : {"", "0", "-1", "30s", "99999999999999999999"})
      CHECK_FALSE(watchdog_period(none, "", 7));
  }
  TEST_CASE(
      "a sign of life follows an answer, and a question that is not answered stops the signs") {
    Manager manager;
    std::vector<std::function<void()>> asked;
    Watchdog dog(ServiceManager(manager.path()),
                 [&](std::function<void()> answer) { asked.push_back(std::move(answer)); });
    dog.beat();
    CHECK(asked.size() == 1);
    CHECK(manager.told().empty());
    dog.beat();
    CHECK(manager.told().empty());
    CHECK(asked.size() == 1);

    asked.back()();
    CHECK(manager.told().empty());
    dog.beat();
    CHECK(manager.told() == "WATCHDOG=1");
    CHECK(manager.told().empty());
    REQUIRE(asked.size() == 2);
    // The first question's second answer is none to the second question.
    asked.front()();
    dog.beat();
    CHECK(manager.told().empty());
  }
  TEST_CASE("the manager hears that the broker is ready, then of its life, then of its stop") {
    Manager manager;
    ServiceNotices notices(ServiceManager(manager.path()), 4ms);
    notices.starting();
    CHECK(manager.told().empty());  // A quick start needs no time.
    notices.ready("serving", [](const auto& answer) { answer(); });
    CHECK(manager.told() == "READY=1\nSTATUS=serving");
    CHECK(manager.told(0) == "WATCHDOG=1");
    notices.stopping("SIGTERM");
    std::string last;
    while ((last = manager.told()) == "WATCHDOG=1") {
    }
    CHECK(last == "STOPPING=1\nSTATUS=stopping (SIGTERM)");
    CHECK(manager.told().empty());
  }
  TEST_CASE("a recovery or a stop that takes long asks for more time, again and again") {
    Manager manager;
    ServiceNotices notices(ServiceManager(manager.path()), std::nullopt, 2ms);
    notices.starting();
    const std::string plea = "EXTEND_TIMEOUT_USEC=8000\nWATCHDOG=1\nSTATUS=";
    CHECK(manager.told(0) == plea + "recovering for 0 s");
    CHECK(manager.told(0) == plea + "recovering for 0 s");
    notices.stopping("SIGTERM");
    std::string next;
    while ((next = manager.told(0)) == plea + "recovering for 0 s") {
    }
    CHECK(next == "STOPPING=1\nSTATUS=stopping (SIGTERM)");
    CHECK(manager.told(0) == plea + "stopping for 0 s");
  }
  TEST_CASE("a manager that does not watch gets no signs of life") {
    Manager manager;
    ServiceNotices notices(ServiceManager(manager.path()), std::nullopt);
    bool asked = false;
    notices.ready("serving", [&](const auto&) { asked = true; });
    notices.stopping("SIGINT");
    CHECK(manager.told() == "READY=1\nSTATUS=serving");
    CHECK(manager.told() == "STOPPING=1\nSTATUS=stopping (SIGINT)");
    CHECK_FALSE(asked);
  }
  TEST_CASE("a pulse that was ended takes no further turn") {
    std::promise<void> first;
    std::atomic<int> turns{0};
    {
      const Pulse pulse(1ms, [&] {
        if (turns++ == 0) first.set_value();
      });
      first.get_future().wait();
    }
    const int then = turns;
    std::this_thread::yield();
    CHECK(turns == then);
  }
}

}  // namespace
}  // namespace tarry::server
