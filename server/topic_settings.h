#pragma once

// The check of a new topic's name and configs as a broker with the default settings makes it, for
// programs that make topics without one.
//
// Touches nothing but its arguments.

#include <cstdint>
#include <string>

#include "base/result.h"
#include "storage/journal_record.h"

namespace tarry::server {

// Its configs as they are to be stored, or why it would be refused.
Result<storage::Configs> check_new_topic(const std::string& name, std::int32_t partitions,
                                         const storage::Configs& configs);

}  // namespace tarry::server
