#pragma once

// Which admin a command asks, and that it is one of the broker that was meant.
//
// -b names a broker's Kafka address, --admin the address of its admin; each has a default and a
// variable of its own.  Nothing on the command line ties the two together, so a command that names
// one broker by -b could change another one by the admin that is the default.  Therefore:
//
//   brokers given   admin given
//   no              -             the admin, whatever it is
//   yes             yes           both have to tell the same cluster id: else status 1
//   yes             no            the default's, if it tells the same cluster id: else status 2
//
// "Given" is by a flag or by a variable.  Two Tarry brokers never have one cluster id.

#include <expected>
#include <string>

#include "cli/admin_client.h"
#include "cli/io/exit_status.h"
#include "cli/options.h"

namespace tarry::cli {

enum class AdminUse {
  reads,  // When Kafka does not answer it is told on stderr, and the admin that was given is asked.
  changes,  // Nothing is changed when Kafka does not answer.
};

struct NoAdmin {
  int status;  // The command's.
  std::string why;

  int told() const {  // After the one line on stderr.
    complain(why);
    return status;
  }
};

std::expected<AdminClient, NoAdmin> choose_admin(const BrokerOptions& options, AdminUse use);

AdminSettings admin_settings(const BrokerOptions& options);

// The cluster id that the admin's /status tells.
Result<std::string> cluster_of(AdminClient& admin);

}  // namespace tarry::cli
