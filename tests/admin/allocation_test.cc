// Each allocation of a request to the admin that changes something is made to fail once, in turn:
// its client may get an error or no answer, the next one is answered, and what was answered is in
// the journal.
//
// Every 29th allocation fails, for each change others, because a child costs half a second with
// sanitizers; TARRY_ALLOCATIONS=all: each.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <boost/asio/execution/context.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/query.hpp>

#include "tests/admin/client.h"
#include "tests/admin/send_delayed.h"
#include "tests/broker/failing_allocations.h"

namespace tarry::admin::test {
namespace {

using broker::test::After;
using broker::test::allocations_left;
using broker::test::batch_of;
using broker::test::complaint_about;
using broker::test::create_topic;
using broker::test::in_a_child;
using broker::test::is_in_journal;
using broker::test::produce;
using broker::test::read_all;
using broker::test::values;

// One request on a connection of its own, in the thread in which the broker runs: the kernel keeps
// what the broker has not read yet.
class Asking {
 public:
  Asking(std::uint16_t port, const std::string& request)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
    REQUIRE(::send(socket_, request.data(), request.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(request.size()));
  }
  ~Asking() { ::close(socket_); }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;

  // The broker sends nothing more.  Waits a millisecond, and allocates nothing.
  bool has_ended() const {
    pollfd what{socket_, POLLRDHUP, 0};
    return ::poll(&what, 1, 1) > 0;
  }
  // All that has come; empty: nothing, and the connection has ended.
  std::string answer() const {
    std::string all;
    char bytes[4096];
    for (ssize_t got = 0; (got = ::recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT)) > 0;)
      all.append(bytes, static_cast<std::size_t>(got));
    return all;
  }

 private:
  const int socket_;
};

// False: it gets no answer, and its connection goes on.
bool run_until_ended(World& world, const Asking& asking) {
  for (int i = 0; i < 500; ++i) {
    world.run();
    if (asking.has_ended()) return true;
    if (i % 10 == 9) world.pass(std::chrono::milliseconds{1});
  }
  return false;
}

struct Change {
  std::string name;
  std::string request;
  std::string told;  // A part of the answer when it is done.
  std::string evidence;
  std::function<bool(World&)> holds;  // After a restart.
};

// In the child: the request with its nth allocation failing, and what its client sees.
After outcome_of(Admin& admin, const Change& change, long nth) {
  World& world = admin.world;
  // The parent waits for events by the same descriptor.
  boost::asio::query(world.shard().executor(), boost::asio::execution::context)
      .notify_fork(boost::asio::execution_context::fork_child);
  const Asking first(admin.port, change.request);
  bool has_thrown = false;
  bool is_over = false;
  allocations_left = nth;
  try {
    is_over = run_until_ended(world, first);
  } catch (const std::exception&) {
    has_thrown = true;  // Out of a turn of the shard, which ends the broker.
  }
  const bool failed = std::exchange(allocations_left, 0) == 0;
  if (has_thrown || world.failure) return After::ended;
  if (!is_over) return After::lost;
  const std::string answer = first.answer();
  const bool is_done = answer.starts_with("HTTP/1.1 200") && answer.contains(change.told);
  if (!failed) return is_done ? After::no_such_allocation : After::wrong;
  if (is_done) return After::answered;
  const auto topics = world.broker().topics().image();
  for (const auto& topic : topics->by_name())
    if (world.shard().refuses(topic->id)) return After::fenced;
  const Asking next(admin.port, change.request);
  if (!run_until_ended(world, next)) return world.failure ? After::ended : After::stuck;
  if (world.failure) return After::ended;
  return next.answer().starts_with("HTTP/1.1 ") ? After::refused : After::stuck;
}

std::string request_of(const Admin& admin, const std::string& method, const std::string& target,
                       const std::string& body = "") {
  std::string text =
      fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n",
                  method, target, admin.server->address(), admin.token());
  if (!body.empty()) text += fmt::format("Content-Length: {}\r\n", body.size());
  return text + "\r\n" + body;
}

std::string id_of(World& world, std::string_view topic) {
  const auto id = world.broker().topics().image()->find(topic)->id;
  return std::string(as_text(Bytes(id.bytes)));
}

std::uint64_t pending_of(World& world) {
  return world.broker().pending_counts().pending_of(world.broker().topics().image()->find("t")->id);
}

bool is_gone(World& later) {
  return pending_of(later) == 0;
}
bool is_pending(World& later) {
  return pending_of(later) == 1;
}
bool is_delivered(World& later) {
  return values(read_all(later, "t")) == std::vector<std::string>{"v"};
}

// Each of a broker of its own, in which one record is pending in the topic `t`.
using Prepare = std::function<Change(Admin&, const std::string& handle)>;
std::vector<Prepare> changes() {
  const auto one = [](std::string name, std::string method, bool by_handle, std::string behind,
                      std::string body, std::string told, bool (*holds)(World&)) {
    return [=](Admin& admin, const std::string& handle) {
      const std::string target = "/delayed/t/" + (by_handle ? handle : "id") + behind;
      return Change{name, request_of(admin, method, target, body), told, id_of(admin.world, "t"),
                    holds};
    };
  };
  const std::string later = R"({"by": "2h"})";
  return {
      one("a cancel by id", "DELETE", false, "", "", R"("cancelled")", is_gone),
      one("a cancel by handle", "DELETE", true, "", "", R"("cancelled")", is_gone),
      one("a move by id", "PATCH", false, "", later, R"("moved")", is_pending),
      one("a move by handle", "PATCH", true, "", later, R"("moved")", is_pending),
      one("a delivery by handle", "POST", true, "/deliver", "", R"("delivered")", is_delivered),
  };
}

// The allocations after which something was not as it should be, a line for each.  The admin ends
// with it.
std::string fail_each(Admin& admin, const Change& change, long first, long step) {
  std::string wrong;
  World& world = admin.world;
  long answered_or_refused = 0;
  const Buffer filler = batch_of(world.clock.wall(), {{std::string(32 << 10, 'x')}});
  for (long nth = first;; nth += step) {
    REQUIRE_MESSAGE(nth < 20'000, change.name);
    // So much is behind the end of the journal at the most, of the child before: its rounds are
    // not to be taken for the next one's.
    REQUIRE(produce(world, "filler", 0, filler).error_code == protocol::ErrorCode::none);
    const Lsn from = world.shard().journal().end_lsn();
    const After after = in_a_child([&] { return outcome_of(admin, change, nth); });
    const bool is_last = after == After::no_such_allocation;
    if (after == After::answered || after == After::refused) ++answered_or_refused;
    const char* what = complaint_about(after);
    if (what == nullptr && (is_last || after == After::answered) &&
        !is_in_journal(world, from, change.evidence))
      what = "it is answered, and not in the journal";
    if (what != nullptr) wrong += fmt::format("{}, allocation {}: {}\n", change.name, nth, what);
    // An error without a failed allocation is the test's own mistake, and the next are as wrong.
    if (is_last || after == After::wrong) break;
  }
  CHECK_MESSAGE(answered_or_refused > 1, change.name);
  admin.server->stop();
  world.run();
  admin.server.reset();
  world.restart();
  if (!change.holds(world)) wrong += fmt::format("{}: not there after a restart\n", change.name);
  return wrong;
}

TEST_SUITE("admin allocations") {
  TEST_CASE(
      "whichever allocation of a change over HTTP fails, it is answered or its connection ends, "
      "the next one is answered, or the broker ends; what was answered is in the journal") {
    const char* const how_many = std::getenv("TARRY_ALLOCATIONS");
    const long step = how_many != nullptr && how_many == std::string_view("all") ? 1 : 29;
    std::string wrong;
    long row = 0;
    for (const auto& prepare : changes()) {
      Admin admin({}, {.shards = 1});
      for (const auto* name : {"t", "filler"}) create_topic(admin.world, name);
      send_delayed(admin, "t", 0, "v", "1h", "id");
      const auto listed = admin.get_json("/delayed?topic=t")["records"];
      REQUIRE(listed.size() == 1);
      const Change change = prepare(admin, listed[0]["handle"].get<std::string>());
      wrong += fail_each(admin, change, 1 + 5 * row++ % step, step);
    }
    CHECK_MESSAGE(wrong.empty(), wrong);
  }
}

}  // namespace
}  // namespace tarry::admin::test
