#pragma once

// Call: one request to the admin, as its handler gets it.
//
//   web::Question --> routes.cc: who is it, may it? --> Call --> a handler --> web::Reply
//
// A handler is called only if the client may make that request, and throws Refused for a mistake of
// the client.  A Call lives until its reply is made.
//
// On shard 0's thread; handlers hop from there.

#include <cstddef>
#include <string>
#include <string_view>

#include "admin/context.h"
#include "broker/views/pending_reader.h"
#include "web/question.h"
#include "web/target.h"

namespace tarry::admin {

struct Call {
  Context& context;
  Target target;
  broker::PendingReader reader;
  std::string local = {};  // Our end of the connection.
  std::string body = {};
  std::string session = {};  // The key in its cookie; empty: none.
  std::string accept_encoding = {};
  std::string if_none_match = {};
  bool may_read = true;
  bool came_by_tls = false;  // To us, or to a proxy before us.
  std::string accept = {};

  const std::string& part(std::size_t index) const { return target.path[index]; }
  // Null when it is not given.
  const std::string* parameter(std::string_view name) const {
    const auto found = target.query.find(name);
    return found == target.query.end() ? nullptr : &found->second;
  }
};

}  // namespace tarry::admin
