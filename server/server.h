#pragma once

// Server: the process as a whole, started and stopped in order.
//
//   start:  addresses taken --> data directory, databases, recovery --> a thread a shard
//           --> deliveries, wheels --> admin --> listeners
//   stop:   the same in reverse: no new clients, sessions closed and their requests ended, a last
//           checkpoint, the pool, the threads
//
// Everything that can be refused is refused first: nothing on disk is touched until all of the
// configuration is understood and the addresses are taken.
//
// A journal that cannot be written ends the process at once (on_failure): nothing may be
// acknowledged after it, and recovery starts from what is on disk.
//
// A request that does not end (a disk that does not answer) does not keep the process for ever:
// stop() waits for the last requests for tarry.shutdown.timeout.ms, then says how many are left.
//
// start() and stop() block and belong to the thread that owns the Server, which serves no shard.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "server/address.h"
#include "server/config.h"

namespace tarry::broker {
class Broker;
}

namespace tarry::server {

class Server {
 public:
  // `on_failure` may come from any thread; the program ends in it.
  Server(Config config, std::function<void(const Error&)> on_failure);
  ~Server();  // Stops, however long the last requests take.

  // When it returns, connections are accepted.  After an error nothing runs.
  Result<> start();
  // Errc::stopped when requests did not end in time: no client can connect any more, and the
  // threads still run.  The program then ends, or calls stop() again.
  Result<> stop();

  // Reads the certificates again (SIGHUP); a listener whose new ones cannot be used keeps the old
  // ones, and a line in the log says why.  Between start() and stop(), on their thread.
  void reload();

  // Calls `all_answered`, on one of the shards' threads, once each of them has taken a turn.  From
  // any thread, between start() and stop().
  void ask_shards(std::function<void()> all_answered);

  // Meaningful between start() and stop().
  HostPort kafka() const;                 // The first listener's, with the port that was found.
  std::string listeners() const;          // All: "INTERNAL://127.0.0.1:9092,EXTERNAL://[::]:9093".
  std::optional<HostPort> admin() const;  // Empty: off.
  const std::string& data() const;        // Absolute.
  std::uint32_t shards() const;
  broker::Broker& broker();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tarry::server
