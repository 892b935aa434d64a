#pragma once

// AdminHttp: a small HTTP/1.1 server for GET and HEAD, on a thread of its own.  One request for a
// connection.
//
// All input has bounds: 32 connections, of which a new one closes the oldest; 8 KiB for a request
// and 5 s for it to come and for the answer to go.
//
// The handler runs on the server's thread and is called no more after the destructor.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/result.h"

namespace tarry::relay {

struct HttpAsked {
  std::string target;  // As sent: "/delayed?limit=3".
  std::string host;
};

struct HttpAnswer {
  int status = 200;
  std::string body;
};

class AdminHttp {
 public:
  using Handler = std::function<HttpAnswer(const HttpAsked&)>;

  // Takes the address; port 0: a free one.  The error names the address.
  static Result<std::unique_ptr<AdminHttp>> open(const std::string& host, std::uint16_t port);
  ~AdminHttp();

  // From now on it answers.
  void start(Handler handler);

  const std::string& address() const { return address_; }  // With the port that was found.
  bool is_loopback() const { return is_loopback_; }

 private:
  AdminHttp() = default;
  void run();

  int listener_ = -1;
  int wake_[2] = {-1, -1};  // A pipe: closed for writing when the server is to end.
  std::string address_;
  bool is_loopback_ = false;
  Handler handler_;
  std::thread thread_;
};

}  // namespace tarry::relay
