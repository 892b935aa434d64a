#pragma once

// Session: one client's connection, frames in and answers out in order.
//
//   socket --> whole frames --> waiting --> running handlers --> answers --> socket
//                                  |            (pipelined)         |
//                                  '-- bounds: requests, bytes -----'   in order of arrival
//
// A session waits for its socket without a buffer: available bytes are read into one buffer that
// all sessions of the shard share, and only the rest of an unfinished frame is kept.  So an idle
// connection costs no more than this object.  A frame has memory of its own, which lives until its
// answer is given, because requests are views of it; the memory grows with the bytes that have
// come.
//
// The rest of a large frame, and what is left of long answers, is moved in turn with those of the
// shard's other sessions (BulkQueue), so that small requests do not wait for all of them.
//
// Produce and Fetch are pipelined: they are started while earlier ones wait.  Every other request,
// and a Produce of very many batches, waits for those before it, and those behind wait for it.
// Answers leave in the order of the requests, as many as are ready in one gather write.
//
// Bounds, each with a key in the configuration: the size of a frame, the requests and the bytes
// of requests and answers in flight, how long a connection may be idle (a deadline in the wheel
// that every request moves later), and how long a client may not read what it asked for.
//
// An answer counts from the moment it is made.  A request whose answer may be large (Fetch) counts
// from its start, with the largest size that the answer may have.  If there is no room for it, it
// waits, and so do the requests behind it; and a connection at its limit is not read.  So a
// connection exceeds its bound by one request and its answer at most.
//
// The memory of all connections is bounded together, with everything else that clients make the
// broker hold (tarry.memory.bytes, broker/context/ledger.h): the connection itself, frames,
// finished or not, and unread answers are charged here, and what a request needs before it begins.
// A request that finds no memory waits, then its connection is closed; so is the connection that
// holds the most.  While all clients together hold too much, a session with a request at work
// pauses, and looks again ever more seldom.
//
// A client that exceeds a quota is muted, as in Kafka: its answer, which says for how long, is sent
// at once; then nothing is read from its connection, and no request that was read is begun, until
// that time is over.  A producer that has a quota is not pipelined.
//
// A client of a SASL listener has ten seconds to log in; until then it may send ApiVersions,
// SaslHandshake and SaslAuthenticate, in small frames.
//
// A frame that is not a request, or a request that is not supported, ends the connection with one
// line in the log (a bounded number for each kind of mistake and 10 s).
//
// A client may end its stream and still wait for its answers; TCP does not tell that from one that
// has gone.  So, as in Kafka, it gets them, and the connection is closed after the last one.  If
// none comes for ten seconds, or as soon as the connection is broken, its parked requests are
// cancelled, also while the connection is at its limit and is not read.  The handlers then end by
// themselves, and the last of them releases the session.
//
// As in Kafka, a connection is idle while no bytes are sent over it, even if a request waits.
//
// A connection moves to the shard of its partitions: when the last requests of a client were all
// for one other shard, its socket and the bytes that were read ahead are handed to that shard,
// between two requests and with nothing in flight.  From then on a plain call replaces the hop
// there and back.
//
// On a TLS connection the bytes go through a TlsSession, whose handshake is done before the session
// begins.  Nothing else differs, except that with kernel TLS the socket has to be writable before
// it is closed after the last answer.
//
// An error in one session, even a lack of memory, ends that session alone.
//
// A session belongs to its shard's thread.  It lives as long as the socket is open or a handler
// runs, also while it is muted.

#include <array>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/container/devector.hpp>

#include "broker/context/connection.h"
#include "broker/context/ledger.h"
#include "broker/handlers/table.h"
#include "broker/shard.h"
#include "server/connection_handoff.h"
#include "server/frame.h"
#include "server/peer_watch.h"
#include "server/session_context.h"
#include "server/tls_session.h"
#include "timing/timing_wheel.h"

namespace tarry::server {

class Session final : public std::enable_shared_from_this<Session>, private broker::Debtor {
 public:
  Session(SessionContext& owner, boost::asio::ip::tcp::socket socket, ConnectionHandoff handoff);
  ~Session() override;

  void start();
  void close(std::string_view reason, Ending kind);
  Session* next() const { return next_; }
  std::size_t bytes_in_flight() const { return requests_bytes_ + answers_bytes_; }

 private:
  void foreclose(std::string_view reason) override { close(reason, Ending::too_much_held); }

  // Costs nothing while it is empty, unlike a std::deque: thousands of connections are idle.
  template <typename T>
  using Queue = boost::container::devector<T>;

  // A request's place in the order of answers.
  struct Slot {
    std::size_t request_bytes = 0;
    std::size_t reserved = 0;  // While it runs: what its answer may become.
    bool answered = false;
    broker::Answer answer;
    broker::SharedViews views = {};  // The views of the answer.
    std::size_t viewed = 0;          // Bytes.
  };
  // The views of an answer are charged until it is sent.
  struct Viewing {
    std::uint64_t ends;  // When so many bytes have been sent.
    std::size_t bytes;
    broker::SharedViews views;
  };
  struct Request {
    std::shared_ptr<Frame> frame;
    broker::RequestContext context;
    const broker::Handler* handler;
    std::uint64_t number;  // Its slot's.
    std::size_t max_answered;
    bool pipelined;
  };
  // Closes the session when its deadline passes.
  class Deadline final : public timing::Timer {
   public:
    Deadline(Session& session, const char* reason, bool is_fault)
        : session_(session), reason_(reason), is_fault_(is_fault) {}

   private:
    void on_expired() override;
    Session& session_;
    const char* const reason_;
    const bool is_fault_;
  };

  // Why nothing is read from the connection; the first that holds counts.
  enum class Pause : std::uint8_t {
    none,
    quota,    // The client exceeded one: until a time.
    memory,   // All clients hold too much: until a time, and then it looks again.
    refused,  // A request cannot be answered: the connection is closed after the answers before it.
    full,     // It has as much in flight as it may.  Requests that were read are still begun.
  };

  // For as long as the client has to wait for its quota, or for others to give memory back.
  class PauseTimer final : public timing::Timer {
   public:
    explicit PauseTimer(Session& session) : session_(session) {}

    std::shared_ptr<Session> held;  // While it is armed: nothing else waits for anything then.

   private:
    void on_expired() override;
    Session& session_;
  };

  // Since the client has ended its stream: for as long as no answer comes.
  class Linger final : public timing::Timer {
   public:
    explicit Linger(Session& session) : session_(session) {}

   private:
    void on_expired() override;
    Session& session_;
  };

  Pause pause() const;
  bool is_paused() const { return pause() != Pause::none; }
  void pause_for(Pause why, std::chrono::milliseconds wait);
  void end_timed_pause();
  void mute(std::chrono::milliseconds wait);
  bool waits_for_memory();
  void stop_waiting_for_memory();
  void wait_readable();
  std::size_t receive(std::span<std::uint8_t> into, boost::system::error_code& error);
  std::size_t send(std::span<const boost::asio::const_buffer> pieces,
                   boost::system::error_code& error);
  void watch_peer(bool watched);
  void peer_event(PeerWatch::Event event);
  void give_up_requests();
  void stream_ended();
  bool has_much_to_read() const;
  std::size_t read_in_turn();
  void read_some();
  // Takes whole frames from the stream until it is_paused(); returns how many bytes that were.  The
  // session may have ended meanwhile.
  std::size_t take(Bytes bytes);
  void count_held();
  void release_memory();
  void admit(std::shared_ptr<Frame> frame);
  void audit_unserved(protocol::ApiKey key);
  bool may_be_served(protocol::ApiKey key) const;
  void admit_raw_token(std::shared_ptr<Frame> frame);
  void enqueue(std::shared_ptr<Frame> frame, const protocol::RequestHeader& header,
               const broker::Handler& handler);
  bool has_room_for_answer_of(const Request& request) const;
  void pump();
  void run(Request request);
  void answered(std::uint64_t number, broker::Answer answer);
  // About so many bytes of them at once.
  void write_answers(std::size_t most);
  void end_when_sent();
  void wait_writable();
  void write_later();
  std::size_t write_in_turn();
  // How many requests have begun: those that have come, without those that wait.
  std::uint64_t begun() const { return first_slot_ + slots_.size() - waiting_.size(); }
  void go_on_writing(std::size_t most);
  // True: the connection has gone to the shard where its partitions are.
  bool moved();
  // Runs `work`; what it throws ends the session.
  template <typename F>
  void guarded(F work);
  void arm(timing::Timer& timer, std::chrono::milliseconds after);

  SessionContext& owner_;
  boost::asio::ip::tcp::socket socket_;
  std::unique_ptr<TlsSession> tls_;  // Null: plain text, or it has moved with the connection.
  const bool sends_by_kernel_;       // By kernel TLS; counted.
  bool has_room_for_end_ = false;    // The socket was writable after the last answer was sent.
  broker::Connection connection_;

  Unread unread_;
  bool reading_ = false;  // Waiting for the socket, or for its turn; false while is_paused().
  bool watched_ = false;  // By owner_.peers, while is_paused() or ended_.
  bool ended_ = false;    // All that the client sent is read; it may wait for answers.

  std::list<Request> waiting_;  // Admitted, not started.
  std::size_t running_ = 0;
  bool exclusive_running_ = false;  // One that is not pipelined runs: then running_ == 1.
  Queue<Slot> slots_;               // Oldest first; slots_[0] has number first_slot_.
  std::uint64_t first_slot_ = 0;
  std::size_t requests_bytes_ = 0;  // Frames that are not answered.
  std::size_t answers_bytes_ = 0;   // Answers that are not written.
  std::size_t reserved_bytes_ = 0;  // Answers that are not made yet.
  // Itself with its TLS, the frames, and the answers but for their views.
  broker::Charge held_;
  bool pumping_ = false;

  Queue<SharedBytes> out_;  // Pieces on their way; the first is sent from out_sent_ on.
  Queue<Viewing> viewing_;  // The views of answers on their way, in their order.
  std::size_t out_sent_ = 0;
  std::uint64_t queued_ = 0, sent_ = 0;  // Bytes that were put into out_, and left it.
  bool writing_ = false;                 // Waiting for the socket, or for its turn.
  // A request that cannot be answered was the next in order: why.  The connection is closed when
  // the answers before it are sent, and until then nothing is read or begun.
  std::string refused_;

  Deadline idle_{*this, "idle for connections.max.idle.ms", false};
  Deadline stalled_{
      *this, "the client did not read its responses for tarry.connection.write.stall.ms", true};

  Deadline login_{*this, "the client did not log in within 10 s", true};
  Linger linger_{*this};

  // none, quota or memory; pause() computes the other reasons.
  Pause timed_pause_ = Pause::none;
  std::unique_ptr<PauseTimer> pause_timer_;  // Null: it never had such a pause.
  timing::Tick pause_ends_ = 0;
  std::chrono::milliseconds memory_wait_;  // The next pause for memory.

  Session* next_ = nullptr;  // In the list that owner_.first begins.
  Session** previous_ = nullptr;
  bool closed_ = false;  // Its socket is closed, or another session's.
  bool moved_away_ = false;
};

}  // namespace tarry::server
