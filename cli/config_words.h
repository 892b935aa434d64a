#pragma once

// KEY=VALUE as people type configs, and as Kafka's protocol wants them.

#include <string>
#include <vector>

#include "cli/kafka/config_entry.h"

namespace tarry::cli {

// From words that have an '=' (options.h: is_key_value).  A duration (30m) of a key that ends in
// .ms and a size (64KiB) of one that ends in .bytes become numbers; any other text stays, and the
// broker refuses it by name.
ConfigList config_list(const std::vector<std::string>& words);

// A broker's refusal of one of these words, with how its value may be written here: the broker
// knows only that it has to be a whole number.
std::string with_example(std::string refusal, const std::vector<std::string>& words);

}  // namespace tarry::cli
