#pragma once

// AdminServer: the admin of one member over HTTP.  docs/relay.md lists the requests.
//
//   /healthz /readyz          whether it answers; whether all that it was given is owned
//   /status                   the member, its partitions, its figures
//   /delayed /delayed/count   the pending records of the partitions that this member owns
//
// Nothing is changed over it.  There is no login, so an address that is not loopback has the first
// two alone, and on loopback the Host must be an address or localhost: a page from elsewhere whose
// name resolves to this machine is refused.

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "relay/admin_http.h"
#include "relay/member.h"
#include "relay/options.h"

namespace tarry::relay {

struct AdminFacts {
  std::string version;
  std::string cluster_id;
  std::string instance;
  std::string owner;
  std::string data;
  const RelayOptions& options;
};

class AdminServer {
 public:
  // All references outlive it.
  AdminServer(std::unique_ptr<AdminHttp> http, const Member& member, const Clock& clock,
              AdminFacts facts);

  void start();
  const std::string& address() const { return http_->address(); }

  HttpAnswer answer(const HttpAsked& asked) const;  // Any thread.

 private:
  std::string state() const;
  std::string status() const;
  HttpAnswer delayed(const std::string& path, const std::string& query) const;

  std::unique_ptr<AdminHttp> http_;
  const Member& member_;
  const Clock& clock_;
  const AdminFacts facts_;
};

}  // namespace tarry::relay
