#pragma once

// Connection: a handler's view of the client whose request it answers.
//
// It belongs to the session that reads the requests (server/session) and lives until the last of
// them is answered or given up.  Runs on the session's shard, and asserts that.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/intrusive/list.hpp>

#include "base/owner_thread.h"
#include "broker/context/connection_origin.h"
#include "broker/context/listener_info.h"

namespace tarry::broker {

class Shard;
struct ClientMeters;
struct SaslExchange;

// Places it in its shard's ClientList.
using ClientHook =
    boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

class Connection : public ClientHook {
 public:
  explicit Connection(std::string peer, ConnectionOrigin origin = {})
      : origin_(std::move(origin)), peer_(std::move(peer)) {
    thread_.bind();
  }

  const std::string& peer() const { return peer_; }  // "127.0.0.1:40312"
  // In the form that Kafka shows: "/127.0.0.1".
  std::string host() const;
  // The listener that accepted it, and who its TLS says it is.
  const ConnectionOrigin& origin() const { return origin_; }
  ConnectionUse& use() {
    thread_.check();
    return origin_.use;
  }
  // A request has come.
  void count_request(std::string_view client_id) {
    thread_.check();
    ++origin_.use.requests;
    const auto shown = client_id.substr(0, max_client_id);
    if (origin_.use.client_id != shown) origin_.use.client_id = shown;
  }
  const ListenerInfo& listener() const;
  // "User:alice", "User:ANONYMOUS".
  std::string principal() const;
  PrincipalId principal_id() const { return origin_.principal_id; }
  void set_principal_id(PrincipalId id) {
    thread_.check();
    origin_.principal_id = id;
  }
  // Until it has logged in it may send ApiVersions, SaslHandshake and SaslAuthenticate alone.
  bool needs_login() const {
    return origin_.listener && has_sasl(origin_.listener->protocol) && origin_.sasl_user.empty();
  }
  // `mechanism` and `user` of a further login are those of the first.
  void logged_in(std::string user, std::string mechanism, MonoTime now,
                 std::optional<MonoTime> ends) {
    thread_.check();
    origin_.sasl_user = std::move(user);
    origin_.sasl_mechanism = std::move(mechanism);
    origin_.logged_in_at = now;
    origin_.login_ends = ends;
  }
  bool login_has_ended(MonoTime now) const {
    return origin_.login_ends && now > *origin_.login_ends;
  }
  bool closed() const { return closed_; }

  // Each Produce and Fetch says which shard has all of its partitions; null: several shards do.
  void note_shard(Shard* shard);
  // The shard that the last requests were for; null: there is no such shard.
  Shard* better_shard() const { return in_a_row_ >= min_in_a_row ? noted_ : nullptr; }

  // The client has gone: the operations that it waits for are cancelled.
  void close();

  // Is called when the client goes, unless the listener goes first.
  class CloseListener : public boost::intrusive::list_base_hook<
                            boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
   public:
    CloseListener(const CloseListener&) = delete;
    CloseListener& operator=(const CloseListener&) = delete;

    // Adds and removes no listeners.
    virtual void on_close() = 0;

   protected:
    // Null: there is no client that could go.
    explicit CloseListener(Connection* connection) {
      if (connection == nullptr) return;
      connection->thread_.check();
      connection->listeners_.push_back(*this);
    }
    ~CloseListener() = default;
  };

  // The meters of its last client id; null: not looked up yet.
  std::shared_ptr<ClientMeters> meters;
  std::shared_ptr<SaslExchange> sasl;  // Null: no login has begun.
  bool takes_raw_tokens = false;       // After SaslHandshake 0: its next frame is no request.
  bool ends_when_answered = false;     // It is closed when it has its answers.

  // The name that ApiVersions gave; empty until then.
  std::string client_software_name;
  std::string client_software_version;

 private:
  // A client that has partitions on two shards and asks for one at a time hardly ever names the
  // same shard so often.
  static constexpr unsigned min_in_a_row = 8;
  // It is kept for as long as the connection is open.
  static constexpr std::size_t max_client_id = 255;

  OwnerThread thread_;
  ConnectionOrigin origin_;
  const std::string peer_;
  Shard* noted_ = nullptr;
  unsigned in_a_row_ = 0;  // Requests for noted_.
  bool closed_ = false;
  boost::intrusive::list<CloseListener, boost::intrusive::constant_time_size<false>> listeners_;
};

// The connections of a shard, the last that came to it first; each leaves it when it ends.
using ClientList = boost::intrusive::list<Connection, boost::intrusive::constant_time_size<false>>;

}  // namespace tarry::broker
