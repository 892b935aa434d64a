#pragma once

// The text of `tarry serve --help-config`, which is also the file etc/tarry.properties.

#include <string>

namespace tarry::server {

// Every key with default, unit, range and reason, as a properties file with the defaults.
std::string config_help();

}  // namespace tarry::server
