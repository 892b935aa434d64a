#include "server/session.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>

#include "base/log.h"
#include "broker/broker.h"

namespace tarry::server {
namespace {

namespace asio = boost::asio;

// One read takes at most so much: what a pipelining producer has sent by then, and little enough
// that one connection does not hold up the others of its shard.
constexpr std::size_t scratch_bytes = 256 * 1024;

// What is kept for an unfinished frame grows by what has come, not by what its size claims.
constexpr std::size_t least_partial = 4096;

// One gather write.  IOV_MAX is 1024; a Fetch answer has two pieces a batch.
constexpr std::size_t most_pieces = 128;

}  // namespace

Sessions::Sessions(broker::Broker& broker, broker::Shard& shard, SessionLimits limits)
    : broker_(broker),
      shard_(shard),
      limits_(limits),
      scratch_(std::make_unique_for_overwrite<std::uint8_t[]>(scratch_bytes)) {}

Sessions::~Sessions() {
  TARRY_ASSERT(first_ == nullptr, "sessions end before what they belong to");
}

void Sessions::start(asio::ip::tcp::socket socket, std::string peer) {
  ++accepted_;
  std::shared_ptr<Session> session;
  try {
    session = std::make_shared<Session>(*this, std::move(socket), std::move(peer));
  } catch (...) {
    if (on_ended) on_ended();  // From here on it says so itself.
    throw;
  }
  session->start();
}

void Sessions::take(int descriptor, asio::ip::tcp protocol, std::string peer) {
  const auto refused = [&](const std::string& why) {
    log_warn("server", "a connection is closed as it came: {}", why);
  };
  asio::ip::tcp::socket socket(shard_.executor());
  boost::system::error_code error;
  socket.assign(protocol, descriptor, error);
  if (error) {
    ::close(descriptor);
    refused(error.message());
    if (on_ended) on_ended();
    return;
  }
  try {
    start(std::move(socket), std::move(peer));
  } catch (const std::exception& failed) {
    refused(failed.what());
  }
}

void Sessions::close_all(std::string_view reason) {
  for (Session* session = first_; session != nullptr;) {
    const auto alive = session->shared_from_this();
    session = session->next_;
    alive->close(reason, false);
  }
}

std::size_t Sessions::bytes_in_flight() const {
  std::size_t bytes = 0;
  for (const Session* session = first_; session != nullptr; session = session->next_)
    bytes += session->requests_bytes_ + session->answers_bytes_;
  return bytes;
}

Session::Session(Sessions& owner, asio::ip::tcp::socket socket, std::string peer)
    : owner_(owner), socket_(std::move(socket)), connection_(std::move(peer)) {
  next_ = owner_.first_;
  previous_ = &owner_.first_;
  if (next_ != nullptr) next_->previous_ = &next_;
  owner_.first_ = this;
  ++owner_.open_;
  owner_.shard_.connections = owner_.open_;
}

Session::~Session() {
  *previous_ = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
  --owner_.open_;
  owner_.shard_.connections = owner_.open_;
  if (owner_.on_ended) owner_.on_ended();
}

void Session::Deadline::on_expired() {
  session_.close(reason_, is_fault_);
}

void Session::arm(timing::Timer& timer, std::chrono::milliseconds after) {
  owner_.shard_.wheel().schedule(timer, owner_.shard_.tick_after(after));
}

void Session::start() {
  boost::system::error_code ignored;  // A socket that is gone already says so when it is read.
  socket_.non_blocking(true, ignored);
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  arm(idle_, owner_.limits_.idle);
  wait_readable();
}

void Session::close(std::string_view reason, bool is_fault) {
  if (std::exchange(closed_, true)) return;
  // A client that does not behave is worth a line; one that went is not.
  if (is_fault) {
    log_warn("server", "connection from {} ended: {}", connection_.peer(), reason);
  } else {
    log_debug("server", "connection from {} ended: {}", connection_.peer(), reason);
  }
  const auto alive = shared_from_this();
  boost::system::error_code ignored;
  socket_.close(ignored);
  idle_.cancel();
  stalled_.cancel();
  waiting_.clear();
  out_.clear();
  partial_.reset();
  ahead_ = {};
  ahead_from_ = 0;
  connection_.close();
}

void Session::wait_readable() {
  // What was read already comes first.
  while (!ahead_.empty() && !closed_ && !is_full()) {
    ahead_from_ += take(Bytes(ahead_).subspan(ahead_from_));
    if (ahead_from_ == ahead_.size()) {
      ahead_ = {};
      ahead_from_ = 0;
    }
    pump();
  }
  if (reading_ || closed_ || is_full()) return;
  reading_ = true;
  socket_.async_wait(asio::socket_base::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       self->reading_ = false;
                       if (error || self->closed_) return;
                       self->read_some();
                     });
}

void Session::read_some() {
  boost::system::error_code error;
  // The rest of a large frame is read to where it belongs, so that it is copied once only.
  if (partial_ && partial_->come() >= least_partial) {
    const auto room = partial_->room();
    partial_->came(socket_.read_some(asio::buffer(room.data(), room.size()), error));
    if (partial_->whole()) admit(std::exchange(partial_, nullptr));
  } else {
    const std::size_t got =
        socket_.read_some(asio::buffer(owner_.scratch_.get(), scratch_bytes), error);
    const std::size_t taken = take({owner_.scratch_.get(), got});
    ahead_.assign(owner_.scratch_.get() + taken, owner_.scratch_.get() + got);
  }
  if (closed_) return;
  if (error && error != asio::error::would_block && error != asio::error::interrupted) {
    const bool within = error == asio::error::eof && size_come_ > 0;
    return close(within ? "the stream ended inside a frame" : error.message(), within);
  }
  pump();
  wait_readable();
}

std::size_t Session::take(Bytes bytes) {
  const std::size_t all = bytes.size();
  while (!bytes.empty() && !closed_ && !is_full()) {
    // The size first, of which as little as one byte may have come.
    if (!partial_) {
      const std::size_t more = std::min(size_.size() - size_come_, bytes.size());
      std::memcpy(size_.data() + size_come_, bytes.data(), more);
      size_come_ += more;
      bytes = bytes.subspan(more);
      if (size_come_ < size_.size()) break;
      const auto claimed = load_be<std::int32_t>(size_.data());
      if (claimed < 0 || static_cast<std::size_t>(claimed) > owner_.limits_.frame_bytes) {
        close(fmt::format("a frame of {} bytes; socket.request.max.bytes is {}", claimed,
                          owner_.limits_.frame_bytes),
              true);
        break;
      }
      partial_ = std::make_shared<Frame>(static_cast<std::size_t>(claimed));
    }
    bytes = bytes.subspan(partial_->take(bytes));
    if (partial_->whole()) admit(std::exchange(partial_, nullptr));
  }
  return all - bytes.size();
}

void Session::admit(std::shared_ptr<Frame> frame) {
  size_come_ = 0;
  arm(idle_, owner_.limits_.idle);
  auto header = protocol::parse_request_header(frame->view());
  std::string refused = header ? broker::why_refused(*header) : header.error().message;
  if (!refused.empty()) return close(refused, true);
  ++owner_.shard_.requests_total;
  const auto* handler = broker::find_handler(header->key);
  const std::size_t bytes = frame->size();
  requests_bytes_ += bytes;
  slots_.push_back({.request_bytes = bytes, .reserved = 0, .answered = false, .answer = {}});
  broker::RequestContext context{owner_.broker_, owner_.shard_, connection_, *header, frame, bytes};
  const std::size_t most_answered =
      handler->most_answered == nullptr ? 0 : handler->most_answered(context);
  waiting_.push_back({std::move(frame), std::move(context), handler,
                      first_slot_ + slots_.size() - 1, most_answered});
}

bool Session::is_full() const {
  return slots_.size() >= owner_.limits_.requests_in_flight ||
         requests_bytes_ + answers_bytes_ >= owner_.limits_.bytes_in_flight;
}

// Never in the way of the oldest: when all of the answers before it are written, there are none.
bool Session::has_room_for_answer_of(const Request& request) const {
  const std::size_t answers = answers_bytes_ + reserved_bytes_;
  if (answers == 0) return true;
  if (request.most_answered == 0) return answers < owner_.limits_.bytes_in_flight;
  return requests_bytes_ + answers + request.most_answered <= owner_.limits_.bytes_in_flight;
}

void Session::pump() {
  if (std::exchange(pumping_, true)) return;  // A handler that ends at once comes back in here.
  while (!waiting_.empty() && !closed_ && !exclusive_running_) {
    const bool pipelined = waiting_.front().handler->pipelined;
    if (!pipelined && running_ > 0) break;
    if (!has_room_for_answer_of(waiting_.front())) break;
    Request request = std::move(waiting_.front());
    waiting_.pop_front();
    exclusive_running_ = !pipelined;
    ++running_;
    slots_[request.number - first_slot_].reserved = request.most_answered;
    reserved_bytes_ += request.most_answered;
    run(std::move(request));
  }
  pumping_ = false;
}

void Session::run(Request request) {
  const auto frame = request.frame;
  const auto number = request.number;
  const auto key = request.context.header.key;
  asio::co_spawn(owner_.shard_.executor(), request.handler->run(std::move(request.context)),
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
                     log_error("server", "request {} of {} failed: {}", key,
                               self->connection_.peer(), what);
                     answer.close = "its request failed";
                   }
                   self->answered(number, std::move(answer));
                 });
}

void Session::answered(std::uint64_t number, broker::Answer answer) {
  --running_;
  exclusive_running_ = false;
  if (closed_) return;
  Slot& slot = slots_[number - first_slot_];
  slot.answered = true;
  slot.answer = std::move(answer);
  reserved_bytes_ -= std::exchange(slot.reserved, 0);
  for (const auto& piece : slot.answer.frame) answers_bytes_ += piece.size();
  write_answers();
  if (closed_) return;
  pump();
  wait_readable();
}

void Session::write_answers() {
  if (writing_) return;
  while (!closed_) {
    // What is ready joins the pieces on their way, in the order of the requests.
    while (!slots_.empty() && slots_.front().answered && out_.size() < most_pieces) {
      Slot slot = std::move(slots_.front());
      slots_.pop_front();
      ++first_slot_;
      requests_bytes_ -= slot.request_bytes;
      if (!slot.answer.close.empty()) return close(slot.answer.close, true);
      for (auto& piece : slot.answer.frame) {
        if (!piece.empty()) out_.push_back(std::move(piece));
      }
    }
    if (out_.empty()) return stalled_.cancel();

    std::array<asio::const_buffer, most_pieces> buffers;
    std::size_t count = 0;
    for (const auto& piece : out_) {
      if (count == most_pieces) break;
      const std::size_t skip = count == 0 ? out_sent_ : 0;
      buffers[count++] = asio::const_buffer(piece.data() + skip, piece.size() - skip);
    }
    boost::system::error_code error;
    std::size_t sent = socket_.write_some(std::span(buffers.data(), count), error);
    if (error == asio::error::would_block) return wait_writable();
    if (error) return close(error.message(), false);

    stalled_.cancel();
    arm(idle_, owner_.limits_.idle);  // Who reads a long answer is not idle.
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

void Session::wait_writable() {
  writing_ = true;
  if (!stalled_.armed()) arm(stalled_, owner_.limits_.write_stall);
  socket_.async_wait(asio::socket_base::wait_write,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       self->writing_ = false;
                       if (error || self->closed_) return;
                       self->write_answers();
                       self->wait_readable();
                       self->pump();
                     });
}

}  // namespace tarry::server
