#pragma once

// ServiceManager: the program that started the broker, as the broker speaks to it.
//
// The protocol is systemd's (sd_notify(3)): datagrams of NAME=VALUE lines to the Unix socket that
// $NOTIFY_SOCKET names.  Without that variable nobody listens, and nothing is sent.
//
// A value; any thread.

#include <string>
#include <string_view>
#include <utility>

namespace tarry::server {

class ServiceManager {
 public:
  ServiceManager() = default;  // Nobody listens.
  // The path of a socket; `@name` is one in Linux's abstract namespace.
  explicit ServiceManager(std::string socket_path) : socket_path_(std::move(socket_path)) {}

  static ServiceManager from_environment();

  bool listens() const { return !socket_path_.empty(); }
  // Sends lines such as "READY=1\nSTATUS=...".  A failure is logged: the broker works without a
  // manager, but one that was never told READY=1 will end it.
  void tell(std::string_view lines) const;

 private:
  std::string socket_path_;
};

}  // namespace tarry::server
