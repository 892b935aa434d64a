#pragma once

// Connection: what a handler may know of the client whose request it answers.
//
// It belongs to the session that reads the requests (server/session) and lives until the last of
// them is answered or given up.  Runs on the session's shard, and asserts that.

#include <functional>
#include <string>
#include <vector>

#include <boost/intrusive/list.hpp>

#include "base/owner_thread.h"
#include "purgatory/delayed_operation.h"

namespace tarry::broker {

class Shard;

class Connection {
 public:
  explicit Connection(std::string peer) : peer_(std::move(peer)) { thread_.bind(); }

  const std::string& peer() const { return peer_; }  // "127.0.0.1:40312"
  // As Kafka shows it: "/127.0.0.1".
  std::string host() const;
  bool closed() const { return closed_; }

  // A Produce or Fetch says where its partitions are; null: on several shards.
  void asked_of(Shard* shard);
  // Where all of the last requests were; null: there is no such shard.
  Shard* better_shard() const { return in_a_row_ >= a_habit ? asked_ : nullptr; }

  // The client has gone: what it waits for is cancelled, at once.
  void close();

  // An operation that is cancelled when the client goes; leaves with its Parking.
  class Parking : public boost::intrusive::list_base_hook<
                      boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
   public:
    Parking(Connection& connection, purgatory::DelayedOperation& operation)
        : operation_(operation) {
      connection.thread_.check();
      connection.parked_.push_back(*this);
    }
    Parking(const Parking&) = delete;
    Parking& operator=(const Parking&) = delete;

   private:
    friend class Connection;
    purgatory::DelayedOperation& operation_;
  };

  // `then` is called when the client goes, at once when it has gone; unless this goes first.
  class OnClose {
   public:
    OnClose(Connection& connection, std::move_only_function<void()> then);
    ~OnClose();
    OnClose(const OnClose&) = delete;
    OnClose& operator=(const OnClose&) = delete;

   private:
    friend class Connection;
    Connection& connection_;
    std::move_only_function<void()> then_;  // Changes nothing that belongs to the connection.
  };

  // As ApiVersions said it; empty until then.
  std::string client_software_name;
  std::string client_software_version;

 private:
  // So many requests for one shard: what a client with partitions on two of them, that asks for one
  // at a time, hardly ever does.
  static constexpr unsigned a_habit = 8;

  OwnerThread thread_;
  const std::string peer_;
  Shard* asked_ = nullptr;
  unsigned in_a_row_ = 0;  // Requests for asked_.
  bool closed_ = false;
  // A handful: requests in flight are bounded.
  boost::intrusive::list<Parking, boost::intrusive::constant_time_size<false>> parked_;
  std::vector<OnClose*> on_close_;
};

}  // namespace tarry::broker
