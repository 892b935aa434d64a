#include "server/tls_handshakes.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <list>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/log.h"
#include "base/log_throttle.h"
#include "server/thread_name.h"
#include "server/tls_session.h"

namespace tarry::server {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr int handshake_nice = 5;

// A client can cause these over and over.
constexpr unsigned lines_per_period = 5;

// Others may end at any time, and looking again is cheap.
constexpr std::chrono::milliseconds look_again_for_memory{10};
// Others may end by themselves before a client's connection is closed.
constexpr std::chrono::milliseconds relief_after{300};

}  // namespace

// One thread, and the handshakes that it does.
class TlsHandshakes::Worker {
 public:
  // `share`: the bytes of `memory` that this thread's handshakes may hold.
  Worker(const Clock& clock, TlsHandshakeLimits limits, broker::PoolPart& memory, std::size_t share,
         const Done& done, const Failed& failed)
      : clock_(clock),
        limits_(limits),
        memory_(memory),
        share_(std::max(share, limits.bytes)),
        done_(done),
        failed_(failed),
        thread_([this] { run(); }) {}

  void post(ConnectionHandoff handoff, std::shared_ptr<const TlsContext> context) {
    asio::post(context_,
               [this, handoff = std::move(handoff), context = std::move(context)]() mutable {
                 begin(std::move(handoff), std::move(context));
               });
  }
  void stop() {
    if (!thread_.joinable()) return;
    asio::post(context_, [this] {
      stopped_ = true;
      // On the thread that owns them, and before it is joined: nobody else may touch a handshake.
      while (!all_.empty()) drop(all_.begin());
      again_.cancel();
      guard_.reset();
    });
    thread_.join();
  }
  std::size_t under_way() const { return under_way_.load(std::memory_order_relaxed); }
  std::size_t waiting() const { return waiting_count_.load(std::memory_order_relaxed); }

 private:
  struct Handshake {
    Handshake(asio::io_context& io, ConnectionHandoff its_handoff,
              std::shared_ptr<const TlsContext> its_context, MonoTime now)
        : handoff(std::move(its_handoff)),
          context(std::move(its_context)),
          socket(io),
          deadline(io),
          begun(now) {}
    ConnectionHandoff handoff;
    std::shared_ptr<const TlsContext> context;
    tcp::socket socket;
    asio::steady_timer deadline;
    MonoTime begun;
    broker::PoolPart::Held memory;  // From the client's first bytes on, if there is room,
    MonoTime held_since{};          //   and since when.
    bool gone = false;              // Callbacks that are still on their way do nothing.
    std::list<std::shared_ptr<Handshake>>::iterator place;
  };
  using Pointer = std::shared_ptr<Handshake>;

  void run() {
    name_this_thread("tarry-tls");
    // It is the thread's own on Linux.  Without it the shards only have less of an advantage.
    (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), handshake_nice);
    context_.run();
  }

  void begin(ConnectionHandoff handoff, std::shared_ptr<const TlsContext> context) {
    const auto now = clock_.mono();
    // Only one that had its chance makes room, or a flood would end every handshake.
    if (all_.size() >= limits_.under_way && now - all_.front()->begun >= limits_.chance)
      end(all_.front(),
          fmt::format("{} handshakes are in progress, which is the limit; the oldest is ended",
                      all_.size()));
    const auto handshake =
        std::make_shared<Handshake>(context_, std::move(handoff), std::move(context), now);
    boost::system::error_code error;
    auto& descriptor = handshake->handoff.descriptor;
    handshake->socket.assign(handshake->handoff.protocol, descriptor.get(), error);
    if (!error) (void)descriptor.release();  // The socket has it.
    // In the list even if it fails at once, because end() takes it out.
    handshake->place = all_.insert(all_.end(), handshake);
    under_way_ = all_.size();
    if (error || stopped_)
      return end(handshake, error ? error.message() : "the broker is stopping");
    if (all_.size() > limits_.under_way)
      return end(handshake, fmt::format("{} handshakes are in progress, which is the limit",
                                        limits_.under_way));
    handshake->socket.non_blocking(true, error);
    handshake->deadline.expires_after(limits_.time);
    handshake->deadline.async_wait([this, handshake](const boost::system::error_code& why) {
      if (why || handshake->gone) return;
      const auto waited_for = std::ranges::find(waiting_, handshake) != waiting_.end();
      end(handshake,
          waited_for
              ? fmt::format("no memory became free for its TLS handshake within {} ms "
                            "(tarry.memory.bytes)",
                            limits_.time.count())
              : fmt::format("its TLS handshake did not end within {} ms", limits_.time.count()),
          true);
    });
    wait(handshake, tcp::socket::wait_read);
  }

  void wait(const Pointer& handshake, tcp::socket::wait_type what) {
    handshake->socket.async_wait(what, [this, handshake](const boost::system::error_code& error) {
      if (handshake->gone) return;
      if (error) return end(handshake, error.message());
      guarded(handshake, [&] {
        if (handshake->memory || take_memory(*handshake)) return step(handshake);
        wait_for_memory(handshake);
      });
    });
  }
  // What fails for want of memory ends this handshake alone.
  template <typename Work>
  void guarded(const Pointer& handshake, Work work) {
    try {
      work();
    } catch (const std::exception& failed) {
      if (!handshake->gone) end(handshake, failed.what());
    }
  }

  // With more than the share the other threads' handshakes would find none, and could end none.
  bool is_share_held() const { return held_bytes_ + limits_.bytes > share_; }
  bool try_take_memory(Handshake& handshake) {
    if (is_share_held()) return false;
    handshake.memory = memory_.try_take(limits_.bytes);
    if (!handshake.memory) return false;
    held_bytes_ += limits_.bytes;
    return true;
  }
  bool take_memory(Handshake& handshake) {
    const auto now = clock_.mono();
    if (!try_take_memory(handshake)) {
      const Pointer oldest = oldest_holder();
      if (!oldest || now - oldest->held_since < limits_.chance) return false;
      end(oldest,
          "there is no memory for more TLS handshakes (tarry.memory.bytes); the oldest is ended");
      if (!try_take_memory(handshake)) return false;
    }
    handshake.held_since = now;
    return true;
  }
  // Of those that hold memory, the one that has held it longest; null: none does.
  Pointer oldest_holder() const {
    Pointer oldest;
    for (const Pointer& each : all_) {
      if (each->memory && (!oldest || each->held_since < oldest->held_since)) oldest = each;
    }
    return oldest;
  }
  void wait_for_memory(const Pointer& handshake) {
    waiting_.push_back(handshake);
    waiting_count_ = waiting_.size();
    if (waiting_.size() > 1) return;  // Memory is looked for already.
    room_asked_ = clock_.mono();
    look_again();
  }
  void look_again() {
    again_.expires_after(look_again_for_memory);
    again_.async_wait([this](const boost::system::error_code& why) {
      if (!why && !stopped_) serve_waiting();
    });
  }
  // The newest first: very many that never go on would keep the others waiting until their time is
  // up, and nobody waits long for those that go on.
  void serve_waiting() {
    while (!waiting_.empty()) {
      const Pointer newest = waiting_.back();
      if (!take_memory(*newest)) break;
      waiting_.pop_back();
      waiting_count_ = waiting_.size();
      room_asked_ = clock_.mono();
      guarded(newest, [&] { step(newest); });
    }
    if (waiting_.empty()) return;
    if (const auto now = clock_.mono(); now - room_asked_ >= relief_after) {
      room_asked_ = now;
      if (!is_share_held()) memory_.ask_for_room(limits_.bytes);
    }
    look_again();
  }

  void step(const Pointer& handshake) {
    auto& tls = handshake->handoff.tls;
    // Made when the client has sent something: until then it costs its socket alone.
    if (!tls) {
      tls = std::make_unique<TlsSession>(handshake->context, handshake->socket.native_handle());
    }
    const auto stepped = tls->handshake();
    if (!stepped) {
      // A port that is only looked at is nothing to tell.
      if (stepped.error().code == Errc::stopped) {
        log_debug("server", "connection from {} ended in its TLS handshake",
                  handshake->handoff.peer);
        return drop(handshake->place);
      }
      if (tls->is_client_refused()) return refuse(handshake, stepped.error().message);
      return end(handshake, "the TLS handshake failed: " + stepped.error().message);
    }
    if (*stepped == TlsSession::Step::needs_read) return wait(handshake, tcp::socket::wait_read);
    if (*stepped == TlsSession::Step::needs_write) return wait(handshake, tcp::socket::wait_write);
    auto principal = tls->principal();
    if (!principal) return refuse(handshake, principal.error().message);
    const std::string peer = handshake->handoff.peer;
    ConnectionHandoff handoff = std::move(handshake->handoff);
    handoff.origin.tls_principal = std::move(*principal);
    boost::system::error_code error;
    // Released, not closed: a session takes the descriptor over.
    handoff.descriptor = LooseDescriptor(handshake->socket.release(error));
    remove(handshake);
    try {
      done_(std::move(handoff));
    } catch (const std::exception& failed) {
      // Without memory for it: the connection is closed by now, and in no list.
      failed_(peer);
      failed_log_.warn(clock_.mono(), "server",
                       fmt::format("connection from {} ended: {}", peer, failed.what()));
    }
  }

  // Clients that stop in the middle have lines of their own, beside all that speak no TLS.
  void end(const Pointer& handshake, const std::string& why, bool is_late = false) {
    (is_late ? late_ : failed_log_)
        .warn(clock_.mono(), "server",
              fmt::format(
                  "connection from {} to the listener {} ended: {}", handshake->handoff.peer,
                  handshake->handoff.origin.listener ? handshake->handoff.origin.listener->name
                                                     : std::string(),
                  why));
    drop(handshake->place);
  }
  // By its certificate.
  void refuse(const Pointer& handshake, const std::string& why) {
    const auto& handoff = handshake->handoff;
    refused_.warn(
        clock_.mono(), "audit",
        fmt::format("a connection from {} on listener {} is refused: {}", handoff.peer,
                    handoff.origin.listener ? handoff.origin.listener->name : std::string(), why));
    drop(handshake->place);
  }
  void drop(std::list<Pointer>::iterator place) {
    const Pointer handshake = std::move(*place);  // remove() takes the place away.
    const std::string peer = handshake->handoff.peer;
    // Before the socket is closed, whose descriptor another connection may get at once.
    handshake->handoff.tls.reset();
    boost::system::error_code ignored;
    handshake->socket.close(ignored);
    remove(handshake);
    failed_(peer);
  }
  void remove(const Pointer& handshake) {
    handshake->gone = true;
    if (handshake->memory) {
      handshake->memory = {};
      held_bytes_ -= limits_.bytes;
    }
    std::erase(waiting_, handshake);
    waiting_count_ = waiting_.size();
    handshake->deadline.cancel();
    all_.erase(handshake->place);
    under_way_ = all_.size();
  }

  const Clock& clock_;
  const TlsHandshakeLimits limits_;
  broker::PoolPart& memory_;  // That of all threads.
  const std::size_t share_;
  const Done& done_;
  const Failed& failed_;
  asio::io_context context_{1};
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> guard_{
      asio::make_work_guard(context_)};
  std::list<Pointer> all_;      // Oldest first.
  std::size_t held_bytes_ = 0;  // Of `memory_`, by these.
  // Those that have no memory yet though their clients have sent something, oldest first.
  std::vector<Pointer> waiting_;
  asio::steady_timer again_{context_};  // Set while any waits.
  MonoTime room_asked_{};               // When one was served last, or room was asked for.
  std::atomic<std::size_t> under_way_{0}, waiting_count_{0};
  LogThrottle failed_log_{lines_per_period};
  LogThrottle late_{lines_per_period};
  LogThrottle refused_{lines_per_period};
  bool stopped_ = false;
  std::thread thread_;  // Uses all of the above.
};

TlsHandshakes::TlsHandshakes(const Clock& clock, std::size_t threads, TlsHandshakeLimits limits,
                             std::shared_ptr<broker::MemoryPool> memory, Done done, Failed failed)
    : memory_(std::move(memory)), done_(std::move(done)), failed_(std::move(failed)) {
  for (std::size_t i = 0; i < threads; ++i)
    workers_.push_back(std::make_unique<Worker>(clock, limits, memory_, memory_.limit() / threads,
                                                done_, failed_));
}

TlsHandshakes::~TlsHandshakes() {
  stop();
}

void TlsHandshakes::begin(ConnectionHandoff handoff, std::shared_ptr<const TlsContext> context) {
  // In turn: a handshake costs about the same whoever the client is.
  const auto index = next_.fetch_add(1, std::memory_order_relaxed) % workers_.size();
  workers_[index]->post(std::move(handoff), std::move(context));
}

void TlsHandshakes::stop() {
  for (auto& worker : workers_) worker->stop();
}

std::size_t TlsHandshakes::under_way() const {
  std::size_t all = 0;
  for (const auto& worker : workers_) all += worker->under_way();
  return all;
}

std::size_t TlsHandshakes::waiting() const {
  std::size_t all = 0;
  for (const auto& worker : workers_) all += worker->waiting();
  return all;
}

}  // namespace tarry::server
