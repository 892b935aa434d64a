#include "cli/kafka/connection.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/core.h>

#include "base/ascii_case.h"
#include "base/log.h"
#include "base/time_text.h"
#include "cli/io/exit_status.h"
#include "cli/kafka/advertised_check.h"
#include "cli/kafka/error_text.h"
#include "cli/kafka/handles.h"
#include "cli/kafka/loopback_check.h"

namespace tarry::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How long a lost broker is waited for, each time it is asked whether it is back.
constexpr milliseconds lost_probe_timeout{200};

// The wait after a deadline, because librdkafka may take 0 for its own default.
constexpr milliseconds min_timeout{1};

// How long nothing comes over the address that a broker advertises before it is tried; and how long
// the brokers, one of which has answered before, then have to tell it.
constexpr milliseconds advertised_patience{3000};
constexpr milliseconds advertised_probe_timeout{300};

// A wait for the answer after a login; doubled each time, so that a broker far away can answer, and
// a login that fails is noticed soon.
constexpr milliseconds first_login_patience{20};

// Whether the connection begins with a login.
bool logs_in(const std::vector<std::string>& properties) {
  constexpr std::string_view key = "security.protocol=";
  std::string protocol;
  // The last value holds.
  for (const auto& each : properties)
    if (each.starts_with(key)) protocol = each.substr(key.size());
  std::ranges::transform(protocol, protocol.begin(), ascii_lower);
  return protocol.starts_with("sasl_");
}

// librdkafka's objection to the property; empty: it has none.
std::string problem_of_property(rd_kafka_conf_t* config, std::string_view key_value) {
  const auto equals = key_value.find('=');
  const std::string key(key_value.substr(0, equals));
  const std::string value(equals == key_value.npos ? "" : key_value.substr(equals + 1));
  std::array<char, 512> wrong{};
  if (rd_kafka_conf_set(config, key.c_str(), value.c_str(), wrong.data(), wrong.size()) ==
      RD_KAFKA_CONF_OK) {
    return {};
  }
  return wrong.data();
}

Result<> set_property(rd_kafka_conf_t* config, std::string_view key_value) {
  const auto wrong = problem_of_property(config, key_value);
  if (wrong.empty()) return {};
  // The value of a key that was mistyped may be a password.
  const auto shown =
      key_value.contains("pass") ? key_value.substr(0, key_value.find('=')) : key_value;
  return fail(Errc::invalid, fmt::format("{}: {}", printable(shown), wrong));
}

Result<> set_properties(rd_kafka_conf_t* config, const std::vector<std::string>& properties) {
  for (const auto& property : properties)
    if (auto set = set_property(config, property); !set) return set;
  return {};
}

}  // namespace

Result<> check_property(std::string_view word) {
  const KafkaConf config(rd_kafka_conf_new());
  if (!is_properties_file(word)) return set_property(config.get(), word);
  const auto properties = expand_properties({std::string(word)});
  if (!properties) return std::unexpected(properties.error());
  for (const auto& each : *properties) {
    const auto wrong = problem_of_property(config.get(), each);
    // Without the value, which is kept in a file so that nobody sees it.
    if (!wrong.empty())
      return fail(Errc::invalid, fmt::format("{}: {}", printable(word.substr(1)), wrong));
  }
  return {};
}

KafkaConnection::KafkaConnection(KafkaSettings settings, KafkaCallbacks callbacks)
    : settings_(std::move(settings)),
      callbacks_(std::move(callbacks)),
      advertised_check_due_(steady_clock::now() + advertised_check_interval()) {}

KafkaConnection::~KafkaConnection() {
  // Without the flag it would wait for an answer to what it is asking just now.
  if (client_ != nullptr) rd_kafka_destroy_flags(client_, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
}

Result<KafkaConnectionPtr> KafkaConnection::open(rd_kafka_type_t type,
                                                 const KafkaSettings& settings,
                                                 const std::vector<std::string>& properties,
                                                 KafkaCallbacks callbacks) {
  // librdkafka would try again until the timeout is over.
  if (!settings.waits_for_start && all_refused_on_loopback(settings.brokers)) {
    return fail(Errc::io, fmt::format("nothing listens at {}: is `tarry serve` running?",
                                      printable(settings.brokers)));
  }
  auto complete = expanded(settings);
  if (!complete) return std::unexpected(complete.error());
  KafkaConnectionPtr connection(new KafkaConnection(std::move(*complete), std::move(callbacks)));
  KafkaConf config(rd_kafka_conf_new());
  // librdkafka's own pauses between two attempts grow to ten seconds, for which a person would
  // wait.
  const std::vector<std::string> common{"client.id=tarry",
                                        "log_level=0",
                                        "broker.address.family=any",
                                        "reconnect.backoff.ms=50",
                                        "reconnect.backoff.max.ms=1000",
                                        "bootstrap.servers=" + settings.brokers};
  // The user's properties come last, because the last value of a key holds.
  for (const auto* each : {&common, &properties, &connection->settings_.properties})
    if (auto set = set_properties(config.get(), *each); !set) return std::unexpected(set.error());
  connection->set_callbacks(config.get());
  std::array<char, 512> wrong{};
  connection->client_ = rd_kafka_new(type, config.get(), wrong.data(), wrong.size());
  if (connection->client_ == nullptr) return fail(Errc::invalid, wrong.data());
  static_cast<void>(config.release());  // The client owns it now.
  // They are in bootstrap.servers already; here only their number counts.
  if (rd_kafka_brokers_add(connection->client_, settings.brokers.c_str()) == 0) {
    return fail(Errc::invalid,
                fmt::format("{}: give at least one HOST:PORT", printable(settings.brokers)));
  }
  if (logs_in(connection->settings_.properties))
    if (auto in = connection->wait_for_login(); !in) return std::unexpected(in.error());
  return connection;
}

milliseconds KafkaConnection::timeout() const {
  if (!settings_.deadline) return settings_.timeout;
  const auto left =
      std::chrono::duration_cast<milliseconds>(*settings_.deadline - steady_clock::now());
  return std::min(settings_.timeout, std::max(left, min_timeout));
}

// librdkafka would try a wrong password again and again until the timeout, and each try is a failed
// login to the broker.
Result<> KafkaConnection::wait_for_login() {
  const auto until = steady_clock::now() + timeout();
  for (auto patience = first_login_patience;; patience *= 2) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - steady_clock::now());
    if (left <= milliseconds{0}) return timeout_error();
    const struct rd_kafka_metadata* metadata = nullptr;
    // About no topic at all, so that it costs a broker little.
    const auto error =
        rd_kafka_metadata(client_, 0, nullptr, &metadata, in_ms(std::min(patience, left)));
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
      const KafkaMetadata owned(metadata);
      return {};
    }
    poll();  // Brings what a connection has failed with.
    if (!login_failure_.empty()) {
      return fail(Errc::invalid,
                  fmt::format("{}: {}", printable(settings_.brokers), login_failure_));
    }
  }
}

void KafkaConnection::set_callbacks(rd_kafka_conf_t* config) {
  // The connection is behind a pointer and never moves, so the callbacks may keep its address.
  rd_kafka_conf_set_opaque(config, this);
  // librdkafka would write its own log to stderr, between our lines.
  rd_kafka_conf_set_log_cb(config, nullptr);
  rd_kafka_conf_set_error_cb(config, [](rd_kafka_t*, int error, const char* reason, void* us) {
    static_cast<KafkaConnection*>(us)->on_error(static_cast<rd_kafka_resp_err_t>(error), reason);
  });
  if (callbacks_.delivered) {
    rd_kafka_conf_set_dr_msg_cb(config,
                                [](rd_kafka_t*, const rd_kafka_message_t* message, void* us) {
                                  static_cast<KafkaConnection*>(us)->callbacks_.delivered(*message);
                                });
  }
  if (callbacks_.rebalanced) {
    rd_kafka_conf_set_rebalance_cb(
        config, [](rd_kafka_t*, rd_kafka_resp_err_t what,
                   rd_kafka_topic_partition_list_t* partitions, void* us) {
          static_cast<KafkaConnection*>(us)->callbacks_.rebalanced(what, partitions);
        });
  }
}

void KafkaConnection::poll(milliseconds wait) {
  rd_kafka_poll(client_, static_cast<int>(wait.count()));
}

std::unexpected<Error> KafkaConnection::timeout_error() {
  poll();  // The reason may not have been taken yet.
  // The user has been told before what can be done about it.
  if (is_unreachable()) {
    return fail(Errc::io, fmt::format("no answer from {} within {}", unreachable_,
                                      format_duration(settings_.timeout)));
  }
  if (auto problem = advertised_problem(); !problem.empty())
    return fail(Errc::io, std::move(problem));
  return fail(Errc::io, fmt::format("no answer from {} within {}{}{}", printable(settings_.brokers),
                                    format_duration(settings_.timeout),
                                    last_failure_.empty() ? "" : ": ", last_failure_));
}

std::unexpected<Error> KafkaConnection::error_of(std::string_view thing, rd_kafka_resp_err_t error,
                                                 const char* text) {
  // librdkafka says "timed out" or "transport failure"; why the broker was not reached came to
  // on_error().
  if (is_connection_error(error)) return timeout_error();
  switch (error) {
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
      return fail(Errc::not_found, fmt::format("{}: there is no such topic", thing));
    case RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND:
      return fail(Errc::not_found, fmt::format("{}: there is no such group", thing));
    case RD_KAFKA_RESP_ERR_NON_EMPTY_GROUP:
    case RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID:
      return fail(Errc::in_use,
                  fmt::format("{}: the group is active; stop its consumers first", thing));
    case RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR:
      return fail(errc_of(error),
                  fmt::format("{}: {}; `tarry doctor` tells why", thing, error_text(error, text)));
    default:
      return fail(errc_of(error), fmt::format("{}: {}", thing, error_text(error, text)));
  }
}

void KafkaConnection::on_error(rd_kafka_resp_err_t error, const char* reason) {
  if (error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
    all_brokers_down_ = true;  // The reasons came before it, one for each broker.
    return;
  }
  last_failure_ = connection_error_text(reason);
  if (error == RD_KAFKA_RESP_ERR__AUTHENTICATION) login_failure_ = last_failure_;
}

milliseconds KafkaConnection::advertised_check_interval() const {
  // Half of the timeout, so that a command says it before it gives up.
  return std::min(advertised_patience, settings_.timeout / 2);
}

// Empty: every advertised address that was tried takes connections, or no broker answers.
std::string KafkaConnection::advertised_problem() {
  if (was_reached_) return {};
  const struct rd_kafka_metadata* metadata = nullptr;
  // About no topic at all: every answer lists the brokers.
  if (rd_kafka_metadata(client_, 0, nullptr, &metadata,
                        in_ms(std::min(advertised_probe_timeout, timeout()))) !=
      RD_KAFKA_RESP_ERR_NO_ERROR) {
    return {};
  }
  const KafkaMetadata owned(metadata);
  const auto found = find_unreachable(*owned);
  if (!found) {
    // Nothing comes for another reason.
    advertised_check_due_ = steady_clock::time_point::max();
    return {};
  }
  unreachable_ = found->advertised;
  return unreachable_text(*found);
}

void KafkaConnection::check_advertised() {
  if (was_reached_ || is_lost_ || is_unreachable()) return;
  const auto now = steady_clock::now();
  if (now < advertised_check_due_) return;
  advertised_check_due_ = now + advertised_check_interval();
  if (const auto problem = advertised_problem(); !problem.empty())
    complain(problem + "; still trying");
}

void KafkaConnection::mark_reached() {
  was_reached_ = true;
  if (!is_unreachable()) return;
  complain("the broker is reached now");
  unreachable_.clear();
}

void KafkaConnection::watch(rd_kafka_topic_t* topic) {
  if (std::exchange(all_brokers_down_, false) && !is_lost_) {
    is_lost_ = true;
    complain(fmt::format("the connection to {} is lost{}{}; reading continues when it is back",
                         printable(settings_.brokers), last_failure_.empty() ? "" : ": ",
                         last_failure_));
  }
  if (!is_lost_) {
    check_advertised();
    return;
  }
  const struct rd_kafka_metadata* metadata = nullptr;
  if (rd_kafka_metadata(client_, 0, topic, &metadata, in_ms(lost_probe_timeout)) !=
      RD_KAFKA_RESP_ERR_NO_ERROR) {
    answers_ = 0;
    return;
  }
  const KafkaMetadata owned(metadata);
  // The first answer is not enough: errors from before it may still be queued, and would look like
  // another loss.  The caller polls before the second answer, which takes them.
  if (++answers_ == 2) say_back();
}

void KafkaConnection::mark_connected() {
  mark_reached();
  say_back();
}

void KafkaConnection::say_back() {
  all_brokers_down_ = false;
  answers_ = 0;
  if (!std::exchange(is_lost_, false)) return;
  complain(fmt::format("the connection to {} is back", printable(settings_.brokers)));
}

}  // namespace tarry::cli
