#include "server/sessions.h"

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/ip/tcp.hpp>

#include "base/assert.h"
#include "server/session.h"

namespace tarry::server {

namespace asio = boost::asio;

Sessions::~Sessions() {
  TARRY_ASSERT(first == nullptr, "sessions end before what they belong to");
}

void Sessions::take(ConnectionHandoff handoff) {
  // The peer is copied, because the handoff is gone when the session's constructor throws.
  const auto refused = [this, peer = handoff.peer](const std::string& why) {
    not_taken.warn(shard.clock().mono(), "server",
                   fmt::format("a new connection is closed at once: {}", why));
    if (on_ended) on_ended(peer);
  };
  asio::ip::tcp::socket socket(shard.executor());
  boost::system::error_code error;
  socket.assign(handoff.protocol, handoff.descriptor.get(), error);
  if (error) return refused(error.message());
  (void)handoff.descriptor.release();  // The socket has it.
  // end() has closed the others already, and nobody would close this one.
  if (ending) return refused("the broker is stopping");
  std::shared_ptr<Session> session;
  SessionContext& shared = *this;  // The base is private, and not known to make_shared().
  try {
    session = std::make_shared<Session>(shared, std::move(socket), std::move(handoff));
  } catch (const std::exception& failed) {
    return refused(failed.what());  // From here on the session says itself when it has ended.
  }
  session->start();
}

void Sessions::close_all(std::string_view reason) {
  for (Session* session = first; session != nullptr;) {
    // Keeps it alive while it is closed, and takes the next one first: closing unlinks a session
    // that no handler uses.
    const auto alive = session->shared_from_this();
    session = session->next();
    alive->close(reason, Ending::usual);
  }
}

void Sessions::end(std::string_view reason, std::move_only_function<void()> then) {
  ending = true;
  if (open == 0) return then();
  on_all_ended = std::move(then);
  close_all(reason);
}

std::size_t Sessions::bytes_in_flight() const {
  std::size_t bytes = 0;
  for (const Session* session = first; session != nullptr; session = session->next())
    bytes += session->bytes_in_flight();
  return bytes;
}

}  // namespace tarry::server
