#pragma once

// find_unreachable(): whether an address that a broker advertises leads nowhere.
//
//   -b 127.0.0.1:9092 --> "broker 1 is at 172.17.0.2:9092" --> nobody can connect there
//
// A client uses the first address only to learn the others, and records come over those.
// librdkafka tries an address that cannot be connected again and again and does not say so, or
// only after half a minute.  Containers, mapped ports and tunnels are the usual cause.

#include <optional>
#include <string>

#include <librdkafka/rdkafka.h>

namespace tarry::cli {

struct UnreachableBroker {
  std::string answered;    // The address that the metadata came from.
  std::string advertised;  // The address in it to which nobody can connect.
  std::string reason;      // Why the last attempt failed.
};

// Connects to the brokers that the metadata lists, one after the other, and tells the first that
// does not take a connection.  Asks a limited number of addresses and waits a second for each at
// most, beside what the system takes to resolve a name.
std::optional<UnreachableBroker> find_unreachable(const struct rd_kafka_metadata& metadata);

// Why nobody on this machine can connect to the address; empty: a connection was made, or it is not
// known that none can be.  Waits as find_unreachable() does.
std::string connect_problem(const std::string& host, const std::string& port);

// The error for the user: what is wrong, and what to do.
std::string unreachable_text(const UnreachableBroker& broker);

}  // namespace tarry::cli
