#pragma once

// Context: what all requests to the admin share.
//
// It lives as long as the admin, which owns it.  A coroutine that goes on without a connection
// holds Context::owner, as otherwise the admin could end below it.
//
// On shard 0's thread.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "admin/pauses.h"
#include "admin/sessions.h"
#include "base/clock.h"
#include "web/access_tokens.h"
#include "web/audit.h"
#include "web/hosts.h"

namespace tarry::broker {
class Broker;
class Shard;
}  // namespace tarry::broker

namespace tarry::admin {

class DuePicture;
class EventFeed;

// Requests, answers, rights and figures are web's.
using namespace web;

// Facts about the program that the broker does not know.
struct ProgramFacts {
  std::string kafka_address;                // The first listener's.
  std::string kafka_listeners;              // All: "INTERNAL://127.0.0.1:9092,...".
  std::vector<std::string> open_listeners;  // The addresses beyond loopback without a login.
  // max.connections as it is now, and how many of them the limit of open files allows.
  std::function<std::size_t()> wanted_kafka_connections, max_kafka_connections;
  std::string admin_address;
  std::string kafka_advertised;  // The addresses that clients are told, as in kafka_listeners.
};

struct Context {
  broker::Broker& broker;
  broker::Shard& here;
  const ProgramFacts facts;
  const AccessTokens tokens;
  const Hosts hosts;
  // Names the cluster: a browser sends the cookies of all ports of a host to each.
  const std::string cookie_name;
  const std::chrono::milliseconds wrong_login_delay;
  const std::shared_ptr<Pauses> pauses;
  const std::shared_ptr<EventFeed> events;
  const std::shared_ptr<DuePicture> due;
  // The owner of all of this: held by coroutines that no connection waits for.
  const std::weak_ptr<void> owner;
  Sessions sessions{};
  Audit audit{};
  // Called when a request has changed what is pending: those who watch are told at once.
  std::function<void()> pending_changed = {};

  // The size of the data directory is found by walking through it, so it is cached for a while.
  struct DiskUse {
    std::uint64_t bytes = 0;
    std::uint64_t log_bytes = 0, journal_bytes = 0;  // Parts of `bytes`.
    std::optional<MonoTime> again;                   // No walk begins before this.
    bool looking = false;
  } disk_use{};
  // The due time of the first record that is on disk alone: a bucket is read for it.
  struct FirstOnDisk {
    std::optional<WallTime> from;  // The beginning of the bucket.
    WallTime due;
    MonoTime again{};  // No bucket is read again before this,
    MonoTime soon{};   //   nor before this when something was changed.
    bool looking = false;
  } first_on_disk{};
  bool makes_large_answer = false;  // By LargeAnswer.
  // When the last backup that is whole began; empty: there was none since the start.
  std::optional<WallTime> last_backup{};
};

}  // namespace tarry::admin
