#pragma once

// ClientTls: TLS over a connected socket, for a WireClient.
//
// Its settings have librdkafka's names and meanings: ssl.ca.location (a file or a directory; the
// system's authorities without it), ssl.certificate.location, ssl.key.location, ssl.key.password,
// enable.ssl.certificate.verification, ssl.endpoint.identification.algorithm.
//
// The socket stays its owner's.  Calls block as the socket does.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

struct ssl_st;

namespace tarry::cli {

class ClientTls {
 public:
  // Does the handshake.  `properties` are those of librdkafka; the error names one that is not
  // supported, or what is wrong with the broker's certificate.
  static Result<ClientTls> connect(int descriptor, const std::string& host,
                                   const std::map<std::string, std::string>& properties);

  // False: the connection has ended, or errno is EAGAIN.
  bool send(std::span<const std::uint8_t> bytes);
  // How many bytes have come; 0 as false.
  std::size_t receive(std::span<std::uint8_t> into);

 private:
  struct Free {
    void operator()(ssl_st* session) const;
  };
  ClientTls(int descriptor, ssl_st* session) : descriptor_(descriptor), session_(session) {}

  template <typename Step>
  int until_done(Step step);
  bool flush_output();

  int descriptor_;
  std::unique_ptr<ssl_st, Free> session_;
};

}  // namespace tarry::cli
