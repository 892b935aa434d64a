#include "server/session.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

#include "base/log.h"
#include "broker/broker.h"
#include "broker/handlers/client_quota.h"
#include "broker/handlers/pending_terms.h"

namespace tarry::server {
namespace {

namespace asio = boost::asio;

// From this size on, the rest of an unfinished frame is read straight into the frame; below it, one
// read into the shared buffer may take several frames at once.
constexpr std::size_t min_partial_bytes = 4096;

// Where more than this is missing of a frame, or left of the answers, it is moved in turn with
// others (BulkQueue).
constexpr std::size_t min_bulk_bytes = 64 * 1024;

// A request that needs less is begun without asking for it.
constexpr std::size_t min_working_bytes = 64 * 1024;

// A request of more bytes may take a millisecond until its first wait.
constexpr std::size_t min_stepped_bytes = 16 * 1024;

// The memory of a request beside its bytes: its place among the answers, its context, its frame.
constexpr std::size_t bytes_a_request = 1024;

constexpr std::size_t requests_between_counts = 32;

// Others may give memory back soon.  If they do not, looking costs more than it finds, for
// thousands of sessions may wait: each time it waits twice as long.
constexpr std::chrono::milliseconds first_memory_wait{20};
constexpr std::chrono::milliseconds max_memory_wait{500};

// The memory of a connection beside its session: the names that it has given, at most 255 bytes
// each, and what waits for its socket.
constexpr std::size_t bytes_beside_session = 1024;

// Until a client has logged in.
constexpr std::int32_t max_login_frame_bytes = 64 * 1024;
constexpr std::chrono::seconds max_login_time{10};

// A client that has ended its stream may have gone, and nobody can tell.
constexpr std::chrono::seconds max_linger_time{10};

bool is_part_of_login(protocol::ApiKey key) {
  return key == protocol::ApiKey::api_versions || key == protocol::ApiKey::sasl_handshake ||
         key == protocol::ApiKey::sasl_authenticate;
}

// One gather write.  IOV_MAX is 1024; a Fetch answer has two pieces a batch.
constexpr std::size_t max_pieces = 128;

// The most that a session reads into a large frame, or sends of its answers, in its turn.  The
// kernel copies it, and takes megabytes for a client that reads nothing.
constexpr std::size_t max_moved_bytes = 256 * 1024;

// The first bytes of a TLS record with a ClientHello: type and version.
bool looks_like_tls(std::span<const std::uint8_t> bytes) {
  return bytes[0] == 0x16 && bytes[1] == 0x03 && bytes[2] <= 0x04;
}

// As in Kafka, a producer with a quota has one request at work at a time, or it could exceed the
// quota by all that it sends before its first answer.
bool may_overtake(const broker::Handler& handler, const broker::RequestContext& context,
                  bool pipelined) {
  if (!pipelined) return false;
  if (handler.key != protocol::ApiKey::produce) return true;
  // Nothing overtakes the request that has to wait for its principal's number.
  return broker::knows_principal(context) &&
         !broker::client_quota(context, broker::QuotaKind::produce);
}

// Each step is a statement of its own: of `if (!co_await ...)` before a co_return of braces g++ 12
// makes a coroutine that ends the process when it is resumed.
asio::awaitable<broker::Answer> run_when_room(const broker::Handler& handler,
                                              broker::RequestContext context, std::size_t bytes) {
  const bool room = co_await context.charge.grow(bytes);
  // The first step of a long request is one of many, too.  One whose time is measured for a quota
  // begins at once: what it takes until its first wait would not be counted otherwise.
  const bool is_stepped = context.frame_bytes >= min_stepped_bytes && !context.time;
  if (room && is_stepped) co_await context.shard.steps().next();
  broker::Answer answer;
  // Its client may have gone while it waited: then nobody reads the answer.
  if (context.connection.closed()) co_return answer;
  if (room) {
    answer = co_await handler.run(std::move(context));
  } else {
    answer.close =
        fmt::format("no memory became free in time for a request of {} bytes (tarry.memory.bytes)",
                    context.frame_bytes);
  }
  co_return answer;
}

}  // namespace

Session::Session(SessionContext& owner, asio::ip::tcp::socket socket, ConnectionHandoff handoff)
    : broker::Debtor(owner.shard.ledger()),
      owner_(owner),
      socket_(std::move(socket)),
      tls_(std::move(handoff.tls)),
      sends_by_kernel_(tls_ && tls_->sends_by_kernel()),
      connection_(std::move(handoff.peer), std::move(handoff.origin)),
      unread_(std::move(handoff.unread)),
      held_(owner.shard.ledger(), this),
      memory_wait_(first_memory_wait) {
  connection_.client_software_name = std::move(handoff.software_name);
  connection_.client_software_version = std::move(handoff.software_version);
  if (!connection_.use().since) connection_.use().since = owner_.shard.clock().mono();
  owner_.shard.clients.push_front(connection_);
  next_ = owner_.first;
  previous_ = &owner_.first;
  if (next_ != nullptr) next_->previous_ = &next_;
  owner_.first = this;
  owner_.session_begun();
  if (sends_by_kernel_) ++owner_.shard.counters.kernel_tls_connections;
}

Session::~Session() {
  *previous_ = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
  if (sends_by_kernel_) --owner_.shard.counters.kernel_tls_connections;
  // A connection that moved to another shard has not ended: the listener counts it still.
  if (!moved_away_ && owner_.on_ended) owner_.on_ended(connection_.peer());
  owner_.session_ended();
}

template <typename F>
void Session::guarded(F work) {
  try {
    work();
  } catch (const std::exception& failed) {
    close(failed.what(), Ending::failed);
  }
}

void Session::Deadline::on_expired() {
  // A client that is silent between two requests does nothing wrong.
  const bool within = session_.unread_.size_come > 0;
  const bool unread = !is_fault_ && !session_.out_.empty();
  session_.close(fmt::format("{}{}{}", reason_, within ? ", in the middle of a request" : "",
                             unread ? ", with unread responses" : ""),
                 is_fault_ || within || unread ? Ending::stalled : Ending::usual);
}

void Session::PauseTimer::on_expired() {
  const auto alive = std::exchange(held, nullptr);
  session_.timed_pause_ = Pause::none;
  session_.guarded([this] {
    session_.wait_readable();
    if (!session_.closed_) session_.pump();
  });
}

void Session::Linger::on_expired() {
  const auto alive = session_.shared_from_this();
  session_.give_up_requests();
}

Session::Pause Session::pause() const {
  if (timed_pause_ != Pause::none) return timed_pause_;
  if (!refused_.empty()) return Pause::refused;
  const bool is_full = slots_.size() >= owner_.limits.requests_in_flight ||
                       requests_bytes_ + answers_bytes_ >= owner_.limits.bytes_in_flight;
  return is_full ? Pause::full : Pause::none;
}

void Session::pause_for(Pause why, std::chrono::milliseconds wait) {
  if (!pause_timer_) pause_timer_ = std::make_unique<PauseTimer>(*this);
  timed_pause_ = why;
  pause_ends_ = owner_.shard.tick_after(wait);
  pause_timer_->held = shared_from_this();
  owner_.shard.wheel().schedule(*pause_timer_, pause_ends_);
}

void Session::end_timed_pause() {
  timed_pause_ = Pause::none;
  if (!pause_timer_) return;
  pause_timer_->cancel();
  pause_timer_->held = nullptr;
}

void Session::mute(std::chrono::milliseconds wait) {
  // Several answers may mute the client; the longest time counts.  A pause for memory may be cut
  // short or be longer: at its end the session looks for memory again.
  if (timed_pause_ == Pause::quota && owner_.shard.tick_after(wait) <= pause_ends_) return;
  pause_for(Pause::quota, wait);
}

void Session::arm(timing::Timer& timer, std::chrono::milliseconds after) {
  owner_.shard.wheel().schedule(timer, owner_.shard.tick_after(after));
}

void Session::start() {
  boost::system::error_code ignored;  // A socket that is gone already says so when it is read.
  socket_.non_blocking(true, ignored);
  // Answers are written whole, so Nagle's algorithm would only delay them.
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  guarded([this] {
    // A connection from another shard brings unread bytes, which are charged here.
    count_held();
    arm(idle_, owner_.limits.idle);
    if (connection_.needs_login()) arm(login_, max_login_time);
    wait_readable();
  });
}

void Session::close(std::string_view reason, Ending kind) {
  if (std::exchange(closed_, true)) return;
  owner_.log_ending(kind, connection_.peer(), reason);
  // The steps below cancel what holds the last references to this session.
  const auto alive = shared_from_this();
  watch_peer(false);
  if (tls_) tls_->say_end();
  boost::system::error_code ignored;
  socket_.close(ignored);
  idle_.cancel();
  stalled_.cancel();
  login_.cancel();
  linger_.cancel();
  end_timed_pause();
  release_memory();
  connection_.close();
}

// Only requests that run keep their frames.
void Session::release_memory() {
  for (const Request& request : waiting_) slots_[request.number - first_slot_].request_bytes = 0;
  requests_bytes_ = 0;
  for (Slot& slot : slots_) {
    if (slot.answered) {
      slot.answer = {};
      slot.views = {};
      slot.request_bytes = 0;
    }
    requests_bytes_ += slot.request_bytes;
  }
  waiting_.clear();
  out_.clear();
  viewing_.clear();
  answers_bytes_ = viewed_bytes_ = 0;
  unread_ = {};
  count_held();
}

// A session that has a request at work takes and begins no more of them while clients hold too
// much. One is always served.
bool Session::waits_for_memory() {
  if (timed_pause_ != Pause::none) return false;
  if (running_ == 0 || !owner_.shard.ledger().is_full()) {
    memory_wait_ = first_memory_wait;
    return false;
  }
  pause_for(Pause::memory, memory_wait_);
  memory_wait_ = std::min(2 * memory_wait_, max_memory_wait);
  return true;
}

// Nothing of the session is at work any more, so its next request is begun, however much others
// hold.
void Session::stop_waiting_for_memory() {
  if (timed_pause_ != Pause::memory) return;
  end_timed_pause();
  memory_wait_ = first_memory_wait;
}

void Session::wait_readable() {
  // The bytes that were read before the session was full come first.
  while (!unread_.ahead.empty() && !closed_ && !waits_for_memory() && !is_paused()) {
    unread_.ahead_from += take(Bytes(unread_.ahead).subspan(unread_.ahead_from));
    if (unread_.ahead_from == unread_.ahead.size()) {
      unread_.ahead = {};
      unread_.ahead_from = 0;
    }
    count_held();
    pump();
  }
  if (closed_ || ended_) return;
  waits_for_memory();
  // A paused session does not read, so it would not see the client's end without the watch.
  watch_peer(is_paused());
  if (reading_ || is_paused()) return;
  reading_ = true;
  const auto readable = [self = shared_from_this()](const boost::system::error_code& error) {
    if (error || self->closed_) return;
    self->guarded([&] {
      if (self->has_much_to_read())
        self->owner_.bulk.add([self] { return self->read_in_turn(); });
      else
        self->read_some();
    });
  };
  // The rest of a TLS record that was read in part: the socket need not become readable again.
  if (tls_ && tls_->has_pending())
    return asio::post(socket_.get_executor(), [readable] { readable({}); });
  socket_.async_wait(asio::socket_base::wait_read, readable);
}

std::size_t Session::receive(std::span<std::uint8_t> into, boost::system::error_code& error) {
  const std::size_t got = tls_ ? tls_->read_some(into, error)
                               : socket_.read_some(asio::buffer(into.data(), into.size()), error);
  connection_.use().bytes_in += got;
  owner_.shard.counters.received_bytes_total += got;
  return got;
}

std::size_t Session::send(std::span<const asio::const_buffer> pieces,
                          boost::system::error_code& error) {
  const std::size_t sent =
      tls_ ? tls_->write_some(pieces, error) : socket_.write_some(pieces, error);
  connection_.use().bytes_out += sent;
  owner_.shard.counters.sent_bytes_total += sent;
  return sent;
}

void Session::watch_peer(bool watched) {
  if (std::exchange(watched_, watched) == watched) return;
  if (!watched) return owner_.peers.remove(socket_.native_handle());
  // Behind the end of its stream only a broken connection is news.
  const bool ends = !ended_ && !linger_.armed();
  owner_.peers.add(socket_.native_handle(),
                   ends ? PeerWatch::Event::ended : PeerWatch::Event::broken,
                   [self = weak_from_this()](PeerWatch::Event event) {
                     if (const auto alive = self.lock()) alive->peer_event(event);
                   });
}

void Session::peer_event(PeerWatch::Event event) {
  watched_ = false;
  if (event == PeerWatch::Event::broken) return give_up_requests();
  arm(linger_, max_linger_time);
  watch_peer(true);
}

// Only requests are cancelled here.  The socket stays open until its end is read, because the bytes
// that the client sent before are still handled.
void Session::give_up_requests() {
  linger_.cancel();
  connection_.close();
  if (ended_) close("the client has disconnected", Ending::usual);
}

// The client sends no more.  Requests that it has sent before are answered.
void Session::stream_ended() {
  if (slots_.empty() && out_.empty() && unread_.ahead.empty())
    return close(boost::system::error_code(asio::error::eof).message(), Ending::usual);
  ended_ = true;
  arm(linger_, max_linger_time);
  watch_peer(false);
  watch_peer(true);
  count_held();
  pump();
}

bool Session::has_much_to_read() const {
  const Frame* const frame = unread_.partial.get();
  return frame != nullptr && frame->come() >= min_partial_bytes &&
         frame->size() - frame->come() > min_bulk_bytes;
}

// Returns the bytes that it moved.
std::size_t Session::read_in_turn() {
  if (closed_) return 0;
  const std::size_t held = held_.bytes();
  const auto before = connection_.use().bytes_in;
  const auto begun_before = begun();
  guarded([this] { read_some(); });
  // Giving memory back takes as long as filling it.
  if (closed_) return held;
  // A request may take a turn of the shard by itself.
  return begun() != begun_before ? BulkQueue::bytes_a_round : connection_.use().bytes_in - before;
}

void Session::read_some() {
  reading_ = false;
  boost::system::error_code error;
  // The rest of a large frame is read to where it belongs, so that it is copied once only.
  if (unread_.partial && unread_.partial->come() >= min_partial_bytes) {
    const auto all_room = unread_.partial->room();
    const auto room = all_room.first(std::min(all_room.size(), max_moved_bytes));
    unread_.partial->came(receive(room, error));
    if (unread_.partial->whole()) admit(std::exchange(unread_.partial, nullptr));
  } else {
    const std::size_t got = receive({owner_.scratch.get(), scratch_bytes}, error);
    const std::size_t taken = take({owner_.scratch.get(), got});
    // Bytes that the session has no room for are kept here, because the next session reads into the
    // shared buffer.
    unread_.ahead.assign(owner_.scratch.get() + taken, owner_.scratch.get() + got);
  }
  if (closed_) return;
  if (error && error != asio::error::would_block && error != asio::error::interrupted) {
    if (tls_ && error == asio::error::operation_not_supported) {
      return close("the client asks for new TLS keys (KeyUpdate), and kernel TLS keeps the old",
                   Ending::refused);
    }
    const bool within = error == asio::error::eof && unread_.size_come > 0;
    if (error == asio::error::eof && !within) return stream_ended();
    return close(
        within ? "the client closed the connection in the middle of a request" : error.message(),
        within ? Ending::cut_off : Ending::usual);
  }
  count_held();
  pump();
  wait_readable();
}

void Session::count_held() {
  const std::size_t unfinished = unread_.partial ? unread_.partial->come() : 0;
  const std::size_t requests = closed_ ? running_ : slots_.size();
  const std::size_t of_tls = tls_ ? tls_->held_bytes() : 0;
  held_.set(sizeof(Session) + bytes_beside_session + of_tls + requests * bytes_a_request +
            unfinished + unread_.ahead.size() + requests_bytes_ + answers_bytes_ - viewed_bytes_);
}

std::size_t Session::take(Bytes bytes) {
  const std::size_t all = bytes.size();
  while (!bytes.empty() && !closed_ && !is_paused()) {
    // The size first, of which as little as one byte may have come.
    if (!unread_.partial) {
      const std::size_t more = std::min(unread_.size.size() - unread_.size_come, bytes.size());
      std::memcpy(unread_.size.data() + unread_.size_come, bytes.data(), more);
      unread_.size_come += more;
      bytes = bytes.subspan(more);
      if (unread_.size_come < unread_.size.size()) break;
      const auto claimed = load_be<std::int32_t>(unread_.size.data());
      if (connection_.needs_login() && claimed > max_login_frame_bytes) {
        close(fmt::format("the client sent a request of {} bytes before its login; the limit is {}",
                          claimed, max_login_frame_bytes),
              Ending::bad_frame);
        break;
      }
      if (claimed < 0 || static_cast<std::size_t>(claimed) > owner_.limits.frame_bytes) {
        // Read as a size, the beginning of a ClientHello is at least 369 million bytes.
        if (!tls_ && looks_like_tls(unread_.size)) {
          close(fmt::format("the client speaks TLS, and the listener {} expects plain text: give "
                            "the client another port, or security.protocol=PLAINTEXT",
                            connection_.listener().name),
                Ending::speaks_tls);
          break;
        }
        close(
            fmt::format(
                "the client sent a request of {} bytes; the limit is {} (socket.request.max.bytes)",
                claimed, owner_.limits.frame_bytes),
            Ending::bad_frame);
        break;
      }
      unread_.partial = std::make_shared<Frame>(static_cast<std::size_t>(claimed));
    }
    bytes = bytes.subspan(unread_.partial->take(bytes));
    if (!unread_.partial->whole()) continue;
    admit(std::exchange(unread_.partial, nullptr));
    // One read may have a thousand requests, each of which takes more than its bytes.
    if (slots_.size() % requests_between_counts != 0) continue;
    count_held();
    if (owner_.shard.ledger().is_full()) break;
  }
  return all - bytes.size();
}

void Session::admit(std::shared_ptr<Frame> frame) {
  unread_.size_come = 0;
  arm(idle_, owner_.limits.idle);
  if (connection_.takes_raw_tokens) return admit_raw_token(std::move(frame));
  auto header = protocol::parse_request_header(frame->view());
  std::string refused = header ? broker::refusal_reason(*header) : header.error().message;
  const bool is_too_early =
      refused.empty() && connection_.needs_login() && !is_part_of_login(header->api_key());
  if (is_too_early) {
    refused = fmt::format("the client sent a {} request before its login",
                          protocol::name(header->api_key()));
    audit_unserved(header->api_key());
  }
  if (!refused.empty()) return close(refused, Ending::bad_request);
  if (!may_be_served(header->api_key())) {
    if (connection_.login_has_ended(owner_.shard.clock().mono())) {
      ++owner_.shard.counters.expired_logins_total;
      audit_unserved(header->api_key());
    }
    return close("the client did not log in again in time (connections.max.reauth.ms)",
                 Ending::usual);
  }
  ++owner_.shard.counters.requests_total;
  connection_.count_request(header->client_id.value_or(std::string_view()));
  enqueue(std::move(frame), *header, *broker::find_handler(header->key));
}

// Because there is no login, or it has ended.
void Session::audit_unserved(protocol::ApiKey key) {
  const bool is_early = connection_.needs_login();
  auto& security = owner_.broker.security(owner_.shard);
  auto& log = is_early ? security.log_before_login : security.log_expired_logins;
  log.warn(owner_.shard.clock().mono(), "audit",
           fmt::format("{} from {} on listener {} sent a {} request {}: refused",
                       is_early ? "a client" : printable(connection_.principal()),
                       connection_.peer(), connection_.listener().name, protocol::name(key),
                       is_early ? "before its login"
                                : "after its login had ended (connections.max.reauth.ms)"));
}

// A login that has ended is followed by another, and by nothing else; nothing comes in between its
// steps.
bool Session::may_be_served(protocol::ApiKey key) const {
  const bool has_ended = connection_.login_has_ended(owner_.shard.clock().mono());
  const bool within = connection_.sasl && !connection_.needs_login();
  if (!has_ended && !within) return true;
  return key == (within ? protocol::ApiKey::sasl_authenticate : protocol::ApiKey::sasl_handshake);
}

// The client has begun its login as clients did before SaslAuthenticate: its token stands alone.
void Session::admit_raw_token(std::shared_ptr<Frame> frame) {
  protocol::RequestHeader header;
  header.key = static_cast<std::int16_t>(protocol::ApiKey::sasl_authenticate);
  header.api = protocol::find_api(protocol::ApiKey::sasl_authenticate);
  header.body = frame->view();
  enqueue(std::move(frame), header, broker::raw_token_handler());
}

void Session::enqueue(std::shared_ptr<Frame> frame, const protocol::RequestHeader& header,
                      const broker::Handler& handler) {
  const std::size_t bytes = frame->size();
  requests_bytes_ += bytes;
  slots_.push_back({.request_bytes = bytes, .reserved = 0, .answered = false, .answer = {}});
  broker::RequestContext context{owner_.broker, owner_.shard, connection_, header, frame, bytes};
  context.charge = broker::Charge(owner_.shard.ledger(), this);
  const std::size_t max_answered =
      handler.max_answered == nullptr ? 0 : handler.max_answered(context);
  const bool in_steps = handler.works_in_steps != nullptr && handler.works_in_steps(context);
  waiting_.push_back({std::move(frame), std::move(context), &handler,
                      first_slot_ + slots_.size() - 1, max_answered,
                      handler.pipelined && !in_steps});
}

// Never in the way of the oldest: when all of the answers before it are written, there are none.
bool Session::has_room_for_answer_of(const Request& request) const {
  const std::size_t answers = answers_bytes_ + reserved_bytes_;
  if (answers == 0) return true;
  if (request.max_answered == 0) return answers < owner_.limits.bytes_in_flight;
  return requests_bytes_ + answers + request.max_answered <= owner_.limits.bytes_in_flight;
}

void Session::pump() {
  if (std::exchange(pumping_, true)) return;  // A handler that ends at once comes back in here.
  const auto may_begin = [this] {
    const Pause why = pause();
    return why == Pause::none || why == Pause::full;
  };
  while (!waiting_.empty() && !closed_ && may_begin() && !exclusive_running_ &&
         !connection_.ends_when_answered) {
    // If the oldest may not begin, none behind it may: the requests of a connection keep their
    // order.
    const auto& next = waiting_.front();
    const bool pipelined = may_overtake(*next.handler, next.context, next.pipelined);
    if (running_ > 0 && (!pipelined || waits_for_memory())) break;
    if (!has_room_for_answer_of(waiting_.front())) break;
    Request request = std::move(waiting_.front());
    waiting_.pop_front();
    exclusive_running_ = !pipelined;
    ++running_;
    slots_[request.number - first_slot_].reserved = request.max_answered;
    reserved_bytes_ += request.max_answered;
    run(std::move(request));
  }
  pumping_ = false;
}

void Session::run(Request request) {
  const auto frame = request.frame;
  const auto number = request.number;
  const auto key = request.context.header.key;
  const auto& handler = *request.handler;
  const std::size_t working = broker::working_bytes(handler, request.context.frame_bytes);
  // A pipelined one takes its place in its partitions' order at once.
  const bool at_once = handler.pipelined || working < min_working_bytes;
  if (at_once) request.context.charge.set(working);
  // Looked at for each request, so that a quota holds for connections that are open when it is set.
  const auto& quotas = owner_.broker.security(owner_.shard).image->quotas();
  if (quotas.any(broker::QuotaKind::request) && !connection_.needs_login())
    // Measured only where a quota asks for it.
    request.context.time = std::make_shared<broker::RequestTime>(owner_.shard.clock().mono());
  const auto time = request.context.time;
  // The callback holds the frame until the answer is given, because the request consists of views
  // of it.  The handler runs in here up to its first wait.
  asio::co_spawn(
      owner_.shard.executor(),
      at_once ? handler.run(std::move(request.context))
              : run_when_room(handler, std::move(request.context), working),
      [self = shared_from_this(), frame, number, key](std::exception_ptr failed,
                                                      broker::Answer answer) {
        if (failed) {
          std::string what = "an unknown exception";
          try {
            std::rethrow_exception(failed);
          } catch (const std::exception& e) {
            what = e.what();
          } catch (...) {
          }
          self->owner_.failed_requests.error(
              self->owner_.shard.clock().mono(), "server",
              fmt::format("request {} of {} failed: {}", key, self->connection_.peer(), what));
          // Without an answer the client would wait for this request until its own timeout; it is
          // disconnected instead.
          answer.close = "its request failed";
        }
        self->guarded([&] { self->answered(number, std::move(answer)); });
      });
  if (time) time->until_wait = owner_.shard.clock().mono() - time->begun;
}

void Session::answered(std::uint64_t number, broker::Answer answer) {
  --running_;
  exclusive_running_ = false;
  Slot& slot = slots_[number - first_slot_];
  slot.answered = true;
  // Any answer may be the one that completes the login.
  if (login_.armed() && !connection_.needs_login()) login_.cancel();
  // Nobody waits for the answer any more; only the bytes of the frame were still counted.
  if (closed_) {
    requests_bytes_ -= std::exchange(slot.request_bytes, 0);
    return count_held();
  }
  for (const auto& view : answer.tail_views) slot.viewed += view.bytes;
  viewed_bytes_ += slot.viewed;
  if (slot.viewed > 0) slot.views = {owner_.shard.ledger(), std::move(answer.tail_views)};
  if (answer.mute.count() > 0) mute(answer.mute);
  slot.answer = std::move(answer);
  reserved_bytes_ -= std::exchange(slot.reserved, 0);
  if (linger_.armed()) arm(linger_, max_linger_time);
  for (const auto& piece : slot.answer.frame) answers_bytes_ += piece.size();
  write_answers(min_bulk_bytes);
  if (closed_) return;
  count_held();
  if (running_ == 0) stop_waiting_for_memory();
  if (moved()) return;
  pump();
  wait_readable();
}

void Session::write_answers(std::size_t most) {
  if (writing_) return;
  std::size_t sent_now = 0;
  while (!closed_) {
    // Ready answers join the pieces that are being sent, in the order of the requests.
    while (refused_.empty() && !slots_.empty() && slots_.front().answered &&
           out_.size() < max_pieces) {
      Slot slot = std::move(slots_.front());
      slots_.pop_front();
      ++first_slot_;
      requests_bytes_ -= slot.request_bytes;
      // The client gets the answers before this one; those behind it are dropped.
      if (!slot.answer.close.empty()) {
        refused_ = std::move(slot.answer.close);
        break;
      }
      for (auto& piece : slot.answer.frame) {
        queued_ += piece.size();
        if (!piece.empty()) out_.push_back(std::move(piece));
      }
      if (slot.viewed > 0) viewing_.push_back({queued_, slot.viewed, std::move(slot.views)});
    }
    if (out_.empty()) {
      stalled_.cancel();
      return end_when_sent();
    }
    if (sent_now >= most) return write_later();

    std::array<asio::const_buffer, max_pieces> buffers;
    std::size_t count = 0;
    std::size_t room = most - sent_now;
    for (const auto& piece : out_) {
      if (count == max_pieces || room == 0) break;
      const std::size_t skip = count == 0 ? out_sent_ : 0;
      const std::size_t bytes = std::min(piece.size() - skip, room);
      buffers[count++] = asio::const_buffer(piece.data() + skip, bytes);
      room -= bytes;
    }
    boost::system::error_code error;
    std::size_t sent = send(std::span(buffers.data(), count), error);
    if (error == asio::error::would_block) return wait_writable();
    if (error) return close(error.message(), Ending::usual);

    // The socket took something, so the client reads.
    stalled_.cancel();
    arm(idle_, owner_.limits.idle);  // A client that reads a long answer is not idle,
    if (linger_.armed()) arm(linger_, max_linger_time);  // and has not gone.
    sent_ += sent;
    sent_now += sent;
    // Sent whole, so nothing shows these bytes any more.
    while (!viewing_.empty() && viewing_.front().ends <= sent_) {
      viewed_bytes_ -= viewing_.front().bytes;
      viewing_.pop_front();
    }
    // Pieces that have been sent do not count any more, whether they were views or not.
    if (!viewing_.empty()) {
      const std::size_t left = viewing_.front().ends - sent_;
      const std::size_t sent_views =
          viewing_.front().bytes - std::min(viewing_.front().bytes, left);
      viewing_.front().bytes -= sent_views;
      viewed_bytes_ -= sent_views;
    }
    while (sent > 0) {
      const std::size_t left = out_.front().size() - out_sent_;
      if (sent < left) {
        out_sent_ += sent;
        break;
      }
      sent -= left;
      answers_bytes_ -= out_.front().size();
      out_.pop_front();
      out_sent_ = 0;
    }
  }
}

// Every answer is sent: the end of the connection, if it was to come after them.
void Session::end_when_sent() {
  const bool login_failed = connection_.ends_when_answered && running_ == 0;
  const bool client_left = ended_ && slots_.empty() && unread_.ahead.empty();
  if (refused_.empty() && !login_failed && !client_left) return;
  // A TLS record that the kernel has sent in part is lost if its socket is closed while it is full.
  if (sends_by_kernel_ && !std::exchange(has_room_for_end_, true)) return wait_writable();
  if (!refused_.empty()) return close(refused_, Ending::refused);
  // The client is told why its login failed before it is disconnected.
  close(login_failed ? "its login failed" : "the client has received its answers", Ending::usual);
}

bool Session::moved() {
  broker::Shard* const there = connection_.better_shard();
  if (there == nullptr || there == &owner_.shard || !owner_.move_to || owner_.ending || ended_ ||
      linger_.armed())
    return false;
  // With kernel TLS it is open for a moment after its last answer (end_when_sent()).
  if (connection_.ends_when_answered) return false;
  // Nothing in flight: requests are slots, and answers pieces on their way.
  if (closed_ || is_paused() || !slots_.empty() || !out_.empty() || connection_.sasl) return false;
  boost::system::error_code error;
  const auto local = socket_.local_endpoint(error);
  if (error) return false;
  // Before the descriptor is given away: this shard's watch must not tell of another's session.
  watch_peer(false);
  ConnectionHandoff handoff{.descriptor = LooseDescriptor(-1),
                            .protocol = local.protocol(),
                            .peer = connection_.peer(),
                            .origin = connection_.origin(),
                            .software_name = connection_.client_software_name,
                            .software_version = connection_.client_software_version};
  // This also ends the wait for the socket, whose callback holds this session.
  handoff.descriptor = LooseDescriptor(socket_.release(error));
  if (error) return false;
  handoff.tls = std::move(tls_);
  handoff.unread = std::exchange(unread_, {});
  // The unread bytes are charged again where the connection goes.
  count_held();
  // Without memory for it the connection ends with the handoff, and guarded() closes this session,
  // which is then the one that tells.
  owner_.move_to(*there, std::move(handoff));
  closed_ = moved_away_ = true;
  idle_.cancel();
  stalled_.cancel();
  return true;
}

void Session::wait_writable() {
  writing_ = true;
  if (!stalled_.armed()) arm(stalled_, owner_.limits.write_stall);
  socket_.async_wait(asio::socket_base::wait_write,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       if (error || self->closed_) return;
                       self->guarded([&] {
                         if (self->answers_bytes_ - self->out_sent_ > min_bulk_bytes)
                           self->write_later();
                         else
                           self->go_on_writing(min_bulk_bytes);
                       });
                     });
}

void Session::write_later() {
  owner_.bulk.add([self = shared_from_this()] { return self->write_in_turn(); });
  writing_ = true;
}

// Returns the bytes that it moved.
std::size_t Session::write_in_turn() {
  if (closed_) return 0;
  const auto before = sent_;
  const auto begun_before = begun();
  guarded([this] { go_on_writing(max_moved_bytes); });
  return begun() != begun_before ? BulkQueue::bytes_a_round : sent_ - before;
}

void Session::go_on_writing(std::size_t most) {
  writing_ = false;
  write_answers(most);
  count_held();
  if (moved()) return;
  wait_readable();
  pump();
}

}  // namespace tarry::server
