#pragma once

// choose_admin(): the admin that a command asks, and a check that it belongs to the broker meant.
//
// -b names a broker's Kafka address, --admin the address of its admin; each has a default and a
// variable of its own.  Nothing on the command line ties the two together, so a command that names
// one broker by -b could change another one by the admin that is the default.  Therefore:
//
//   brokers given   admin given
//   no              -             the admin, without a check
//   yes             yes           both have to be of the same run of a broker, or status 1
//   yes             no            the default admin if it is of the same run, or status 2
//
// "Given" means by a flag or by a variable.  A run has the cluster id of its data directory and a
// start id of its own: a broker on a copy of another one's directory has the same cluster id, and
// the same token.

#include <cstdint>
#include <expected>
#include <string>

#include "cli/admin_client.h"
#include "cli/io/exit_status.h"
#include "cli/kafka/admin.h"
#include "cli/options.h"

namespace tarry::cli {

enum class AdminUse {
  reads,    // When Kafka does not answer, stderr says so and the admin that was given is asked.
  changes,  // Nothing is changed when Kafka does not answer.
};

struct AdminChoiceError {
  int status;  // The command's.
  std::string reason;
  // Why the admin gave no answer; `other` too if it was not asked, or gave one.
  AdminClient::Obstacle obstacle = AdminClient::Obstacle::other;

  // Says why on stderr, and returns the status.
  int report() const {
    complain(reason);
    return status;
  }
};

std::expected<AdminClient, AdminChoiceError> choose_admin(const BrokerOptions& options,
                                                          AdminUse use);

AdminSettings admin_settings(const BrokerOptions& options);

struct BrokerRun {
  std::string cluster_id;
  std::string start_id;  // Empty: the admin shows none (a relay's, an older broker's).
  std::int32_t node_id = 0;

  // Without a start id the cluster ids alone decide.
  bool operator==(const BrokerRun& other) const {
    return cluster_id == other.cluster_id && start_id == other.start_id;
  }
};

// By the admin's /status.
Result<BrokerRun> run_of(AdminClient& admin);

// By Kafka's protocol; asks for no more than a comparison with the admin's needs.
Result<BrokerRun> run_of(KafkaAdmin& kafka, const BrokerRun& of_admin);

}  // namespace tarry::cli
