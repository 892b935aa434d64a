#pragma once

// KafkaDirectory: the real Directory: asks Kafka's group coordinator, through a client of its own.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "relay/directory.h"
#include "relay/kafka_handles.h"

namespace tarry::relay {

class KafkaDirectory final : public Directory {
 public:
  struct Options {
    std::string brokers, source, group, client_id;
    std::vector<std::string> properties;  // -X
    std::chrono::milliseconds timeout{3'000};
  };

  static Result<std::unique_ptr<KafkaDirectory>> open(const Options& options);

  Result<Listing> list() override;

 private:
  KafkaDirectory(Options options, KafkaClient client)
      : options_(std::move(options)), client_(std::move(client)) {}
  Result<> list_members(Listing& listing);

  const Options options_;
  KafkaClient client_;
};

}  // namespace tarry::relay
