#include "relay/kafka_handles.h"

#include <array>

#include <fmt/format.h>

#include "base/log.h"

namespace tarry::relay {

Result<> set_properties(rd_kafka_conf_t* conf, const std::vector<std::string>& properties) {
  for (const auto& each : properties) {
    const auto equals = each.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail(Errc::invalid, fmt::format("{}: give it as KEY=VALUE", printable(each)));
    std::array<char, 512> wrong{};
    const auto set = rd_kafka_conf_set(conf, each.substr(0, equals).c_str(),
                                       each.substr(equals + 1).c_str(), wrong.data(), wrong.size());
    if (set != RD_KAFKA_CONF_OK) {
      const std::string key = each.substr(0, equals);
      // A value may be a password.
      return fail(Errc::invalid, fmt::format("{}: {}", printable(key), wrong.data()));
    }
  }
  return {};
}

std::string error_text(rd_kafka_resp_err_t error, std::string_view what) {
  return fmt::format("{}: {}: {}", what, rd_kafka_err2name(error), rd_kafka_err2str(error));
}

std::string error_text(const rd_kafka_error_t* error, std::string_view what) {
  return fmt::format("{}: {}: {}", what, rd_kafka_error_name(error),
                     printable(rd_kafka_error_string(error), 400));
}

Result<KafkaClient> open_client(rd_kafka_type_t type, const std::vector<std::string>& properties,
                                const std::function<void(rd_kafka_conf_t*)>& prepare) {
  KafkaConf conf(rd_kafka_conf_new());
  if (const auto set = set_properties(conf.get(), properties); !set)
    return std::unexpected(set.error());
  // librdkafka would write its own lines to stderr, between ours.
  rd_kafka_conf_set_log_cb(conf.get(), nullptr);
  if (prepare) prepare(conf.get());
  std::array<char, 512> wrong{};
  KafkaClient client(rd_kafka_new(type, conf.get(), wrong.data(), wrong.size()));
  if (!client) return fail(Errc::invalid, wrong.data());
  static_cast<void>(conf.release());  // The client owns it now.
  return client;
}

}  // namespace tarry::relay
