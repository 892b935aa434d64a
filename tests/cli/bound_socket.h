#pragma once

// A socket that is bound to a free port of loopback, and does not listen.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include <doctest/doctest.h>

namespace tarry::cli {

inline int bound_socket(std::uint16_t& port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  REQUIRE(::bind(socket, reinterpret_cast<sockaddr*>(&at), size) == 0);
  REQUIRE(::getsockname(socket, reinterpret_cast<sockaddr*>(&at), &size) == 0);
  port = ntohs(at.sin_port);
  return socket;
}

}  // namespace tarry::cli
