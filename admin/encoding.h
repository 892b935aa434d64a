#pragma once

// Bytes in JSON: as text if they are UTF-8, else in base64.

#include <string>

#include "base/bytes.h"

namespace tarry::admin {

std::string base64(Bytes bytes);  // RFC 4648 section 4, padded.

}  // namespace tarry::admin
