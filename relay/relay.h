#pragma once

// Relay: a member of the relay's group with its admin: what `tarry relay` runs.
//
//   open()   takes the data directory and the admin's address, connects, joins the group
//   run()    until a stop is asked for; then leaves the group in order

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/random.h"
#include "base/result.h"
#include "relay/admin_server.h"
#include "relay/kafka_cluster.h"
#include "relay/kafka_directory.h"
#include "relay/member.h"
#include "relay/options.h"
#include "relay/stop.h"
#include "storage/disk_rows.h"

namespace tarry::relay {

class Relay {
 public:
  // `clock` outlives it.  Errors are one line that names the option or the topic.
  static Result<std::unique_ptr<Relay>> open(const RelayOptions& options,
                                             const std::string& version, const Clock& clock,
                                             Random& random);

  // `ready` is called once: when the first assignment is complete, or at once if there is no source
  // topic.  `between_steps` is called several times a second while nothing hangs.  The error: this
  // member cannot go on, and others take over.
  Result<> run(Stop& stop, const std::function<void()>& ready,
               const std::function<void()>& between_steps);
  // The admin's, in place of that in the options.  In run(), between two steps.
  Result<> use_certificate(std::shared_ptr<ssl_ctx_st> tls) {
    return admin_->use_certificate(std::move(tls));
  }

  const std::string& admin() const { return admin_->address(); }
  const std::string& data() const { return data_.path(); }

 private:
  Relay(RelayOptions options, DataDirectory data)
      : options_(std::move(options)), data_(std::move(data)) {}

  const RelayOptions options_;
  DataDirectory data_;
  std::unique_ptr<KafkaCluster> cluster_;
  std::unique_ptr<storage::DiskRows> store_;
  std::unique_ptr<Member> member_;
  std::unique_ptr<KafkaDirectory> directory_;
  std::unique_ptr<AdminServer> admin_;  // Uses the others, so it goes first.
  bool has_sources_ = false;            // When it was opened.
};

}  // namespace tarry::relay
