#pragma once

// ReplyStream: the body of an answer that is made while it is sent.
//
// On the server's thread.  The connection asks for the next piece when the one before is written,
// so a client that does not read makes it wait; one that goes away is asked no more.

#include <optional>
#include <string>

#include <boost/asio/awaitable.hpp>

namespace tarry::web {

class ReplyStream {
 public:
  virtual ~ReplyStream() = default;

  // The next piece, not empty; nothing at the end.
  virtual boost::asio::awaitable<std::optional<std::string>> next() = 0;
};

}  // namespace tarry::web
