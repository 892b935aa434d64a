#pragma once

// KafkaConnection: one client of librdkafka, and what is known about its connection.
//
//   open() --> connected <---> lost --> ~KafkaConnection()
//                         |
//                         one line on stderr each way, for a caller that uses watch()
//
// librdkafka connects in the background and connects again by itself, so an operation fails only
// by its timeout.  Its error then says "timed out" and nothing else; this class keeps what the last
// connection failed with and puts it into the error.
//
// A connection that logs in is open once it has logged in, so that a wrong password is one failed
// login and one error.
//
// The address that was given may answer while the one that the broker advertises leads nowhere.  A
// caller that waits for records learns that by check_advertised(), every other one by the error of
// its timeout.
//
// Invariants
//   - Nothing here waits longer for a broker than timeout().
//   - librdkafka has threads of its own, which run none of our code: callbacks run in poll() and in
//     the calls of librdkafka that take a message, on the thread that makes those calls.
//   - librdkafka knows the address of a connection, which is therefore neither copied nor moved.
//
// It belongs to the admin, producer or consumer that opened it, and is destroyed after everything
// that they took from its client.  One thread.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <librdkafka/rdkafka.h>

#include "base/result.h"
#include "cli/kafka/settings.h"

namespace tarry::cli {

// Both are called with what librdkafka owns.
struct KafkaCallbacks {
  // A producer's record was accepted or refused.
  std::function<void(const rd_kafka_message_t& message)> delivered{};
  // A group gives us partitions, or takes them.
  std::function<void(rd_kafka_resp_err_t what, rd_kafka_topic_partition_list_t* partitions)>
      rebalanced{};
};

class KafkaConnection {
 public:
  // `properties` are key=value of librdkafka's, which those of `settings` override.
  static Result<std::unique_ptr<KafkaConnection>> open(rd_kafka_type_t type,
                                                       const KafkaSettings& settings,
                                                       const std::vector<std::string>& properties,
                                                       KafkaCallbacks callbacks = {});
  ~KafkaConnection();
  KafkaConnection(const KafkaConnection&) = delete;
  KafkaConnection& operator=(const KafkaConnection&) = delete;

  rd_kafka_t* client() { return client_; }
  const KafkaSettings& settings() const { return settings_; }
  // The settings' timeout, or what is left of it until their deadline.
  std::chrono::milliseconds timeout() const;

  // Runs callbacks that are due; waits for the first one.
  void poll(std::chrono::milliseconds wait = std::chrono::milliseconds{0});

  // The error of an operation on `thing` that failed with `error`; `text` is the broker's own.
  std::unexpected<Error> error_of(std::string_view thing, rd_kafka_resp_err_t error,
                                  const char* text = nullptr);
  // The broker did not answer.
  std::unexpected<Error> timeout_error();

  // A caller that waits for a broker's records, or for its answers to them, calls it again and
  // again.  Says on stderr, once, that the address that the broker advertises cannot be reached.
  // Asks only now and then, and no more once something has come.
  void check_advertised();
  // Something came over the address that a broker advertises.
  void mark_reached();

  // A consumer, which reads on when a broker goes away, calls it while no record comes.  It says on
  // stderr that the connection is lost, once each time, and asks about `topic` until a broker
  // answers.
  void watch(rd_kafka_topic_t* topic);
  // A record, or the end of a partition, came from a broker; says that the connection is back when
  // it was lost.
  void mark_connected();

  // The connection is lost and stderr says so.
  bool is_lost() const { return is_lost_; }
  // Nothing ever came over the address that a broker advertises, and nobody can connect to it.
  bool is_unreachable() const { return !unreachable_.empty(); }
  // A request would not be answered now; stderr may not say so yet.
  bool is_disconnected() const { return is_lost_ || all_brokers_down_ || is_unreachable(); }

 private:
  KafkaConnection(KafkaSettings settings, KafkaCallbacks callbacks);
  void set_callbacks(rd_kafka_conf_t* config);
  void on_error(rd_kafka_resp_err_t error, const char* reason);
  Result<> wait_for_login();
  std::chrono::milliseconds advertised_check_interval() const;
  std::string advertised_problem();
  void say_back();

  const KafkaSettings settings_;
  const KafkaCallbacks callbacks_;
  rd_kafka_t* client_ = nullptr;   // Null only while open() has not made it.
  std::string last_failure_;       // The error of the last connection that failed; empty: none did.
  std::string login_failure_;      // The reason of the last failed login; empty: none failed.
  bool all_brokers_down_ = false;  // librdkafka has said so, and nothing came since.
  bool is_lost_ = false;
  int answers_ = 0;  // In a row, while the connection is lost.
  bool was_reached_ = false;
  std::string unreachable_;  // The advertised address; empty: it is not known that it is none.
  std::chrono::steady_clock::time_point advertised_check_due_;
};

using KafkaConnectionPtr = std::unique_ptr<KafkaConnection>;

}  // namespace tarry::cli
