#pragma once

// BrokerNames: the names that a broker knows, for the words that a shell completes.
//
// Invariant: nothing is said when the broker does not answer, and a list takes at most
// max_wait; a shell waits for it at every press of the key.
//
// It belongs to one run of `tarry __complete`.  One thread.

#include <chrono>
#include <string>
#include <vector>

#include "cli/completion.h"
#include "cli/options.h"

namespace tarry::cli {

class BrokerNames : public NameSource {
 public:
  static constexpr std::chrono::milliseconds max_wait{600};
  static constexpr std::size_t max_ids = 200;

  // `typed` may have -b, --admin and --data; else the variables and the defaults hold.
  explicit BrokerNames(const TypedWords& typed);

  std::vector<std::string> topics() override;
  std::vector<std::string> groups() override;
  std::vector<std::string> ids(const std::string& topic, const std::string& prefix) override;
  std::vector<std::string> topic_configs(const std::string& topic) override;
  std::vector<std::string> broker_configs() override;

 private:
  BrokerOptions options_;
};

}  // namespace tarry::cli
