#pragma once

// Users that `tarry user add --data` leaves for the next start of the broker, so that
// the first one can log in.
//
//   DATA/users.add, mode 0600, one user per line; all but mechanism and iterations are in base64:
//   SCRAM-SHA-512 <name> <iterations> <salt> <stored key> <server key>
//
// The start takes them over and removes the file.  A line that cannot be read ends the start.

#include <string>
#include <string_view>

#include "base/result.h"
#include "storage/journal_record.h"

namespace tarry::broker {

// Rows as SecurityImage keeps them.
Result<storage::Configs> parse_first_users(std::string_view text);

}  // namespace tarry::broker
