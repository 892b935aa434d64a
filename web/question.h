#pragma once

// Question, Reply and Refused: a request over HTTP as an admin sees it, and its answer.
//
//   http_server --> Question --> an admin --> Reply, or a thrown Refused --> http_server
//
// No type of the HTTP library is in it, so that only http_server is compiled with it, and a test
// asks an admin without a socket.
//
// A Question's views live until its reply is sent.  Both belong to the thread of their connection.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tarry::web {

class ReplyStream;

struct Question {
  std::string_view method;
  std::string_view target;
  std::optional<std::string_view> host;
  std::optional<std::string_view> origin;
  std::string_view fetch_site;  // Sec-Fetch-Site
  std::string_view authorization;
  std::string_view cookie;
  std::string_view accept_encoding;
  std::string_view if_none_match;
  std::string_view local;      // Our end of the connection: "127.0.0.1:8080".
  std::string_view peer = {};  // The other end.
  std::string_view body = {};
  std::string_view accept = {};
  bool has_tls = false;  // The connection.
};

struct Reply {
  unsigned status = 200;
  std::string body;
  std::string_view content_type = "application/json";
  std::vector<std::pair<std::string_view, std::string>> headers{};  // Besides the usual ones.
  std::shared_ptr<ReplyStream> stream{};                            // If set, it is the body.
};

// {"error": why}
Reply refusal(unsigned status, std::string_view why);

// Thrown by a handler for a mistake of the client.
struct Refused {
  unsigned status;
  std::string why;
};

}  // namespace tarry::web
