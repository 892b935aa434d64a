#pragma once

// RelayOptions: what `tarry relay` is told, and its defaults.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "delay/time_zones.h"
#include "relay/admin_server.h"
#include "relay/member.h"

namespace tarry::relay {

struct RelayOptions {
  std::string brokers;  // HOST:PORT,...
  std::string source = "*.delayed";
  std::string group = "relay";
  Delivery delivery = Delivery::exactly_once;
  std::string data = "./tarry-relay";
  AdminOptions admin;
  std::string advertise;    // The admin's address for the other members; empty: its own address.
  std::size_t standby = 0;  // Warm copies of each partition.
  std::string deliver_to;   // Empty: none.
  bool same_partition = false;
  std::string instance;                         // Empty: the one in the data directory.
  std::size_t memory = std::size_t{256} << 20;  // The memory of the store of pending records.
  std::vector<std::string> properties;
};

// Errc::invalid, with the option and its value.
Result<> check(const RelayOptions& options);

// A member must know the time zones that the other members know: it would take a recurring record
// for invalid whose zone is only not on its machine.  Errc::not_found: there are none.
Result<> check_time_zones(const delay::TimeZones& zones);

// The absolute data directory, which is made if it is missing, locked for this process, and has the
// file `instance`: the name of this member.
class DataDirectory {
 public:
  // `random` is for the name, if there is none yet.
  static Result<DataDirectory> open(const std::string& path, std::uint64_t random);
  DataDirectory(DataDirectory&& other) noexcept;
  DataDirectory& operator=(DataDirectory&&) = delete;
  ~DataDirectory();

  const std::string& path() const { return path_; }
  const std::string& instance() const { return instance_; }

 private:
  DataDirectory(std::string path, std::string instance, int lock)
      : path_(std::move(path)), instance_(std::move(instance)), lock_(lock) {}

  std::string path_;
  std::string instance_;
  int lock_;
};

}  // namespace tarry::relay
