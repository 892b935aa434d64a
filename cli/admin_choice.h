#pragma once

// choose_admin(): the admin that a command asks, and a check that it belongs to the broker meant.
//
// -b names a broker's Kafka address, --admin the address of its admin; each has a default and a
// variable of its own.  Nothing on the command line ties the two together, so a command that names
// one broker by -b could change another one by the admin that is the default.  Therefore:
//
//   brokers given   admin given
//   no              -             the admin, without a check
//   yes             yes           both have to have the same cluster id, or status 1
//   yes             no            the default admin if it has the same cluster id, or status 2
//
// "Given" means by a flag or by a variable.  No two Tarry brokers have the same cluster id.

#include <expected>
#include <string>

#include "cli/admin_client.h"
#include "cli/io/exit_status.h"
#include "cli/options.h"

namespace tarry::cli {

enum class AdminUse {
  reads,    // When Kafka does not answer, stderr says so and the admin that was given is asked.
  changes,  // Nothing is changed when Kafka does not answer.
};

struct AdminChoiceError {
  int status;  // The command's.
  std::string reason;

  // Says why on stderr, and returns the status.
  int report() const {
    complain(reason);
    return status;
  }
};

std::expected<AdminClient, AdminChoiceError> choose_admin(const BrokerOptions& options,
                                                          AdminUse use);

AdminSettings admin_settings(const BrokerOptions& options);

// The cluster id in the admin's /status.
Result<std::string> cluster_of(AdminClient& admin);

}  // namespace tarry::cli
