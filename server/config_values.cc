#include "server/config_values.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/list_text.h"
#include "base/log.h"
#include "server/address.h"

namespace tarry::server {
namespace {

using broker::BrokerConfig;

std::string allowed_numbers(std::int64_t min, std::int64_t max) {
  return min == max ? fmt::format("{}", min)
                    : fmt::format("a whole number from {} to {}", min, max);
}

Result<> path_error() {
  return fail(Errc::invalid, "the path of one directory, without a comma or control character");
}
bool is_path(std::string_view value) {
  return std::ranges::none_of(
      // With a comma it would be a list of directories, which Kafka's log.dirs takes.
      value, [](char c) { return c == ',' || static_cast<unsigned char>(c) < 0x20; });
}

constexpr std::array<std::pair<std::string_view, LogLevel>, 5> log_levels{
    {{"debug", LogLevel::debug},
     {"info", LogLevel::info},
     {"warn", LogLevel::warn},
     {"error", LogLevel::error},
     {"off", LogLevel::off}}};

}  // namespace

std::optional<std::int64_t> parse_whole_number(std::string_view value) {
  std::int64_t parsed = 0;
  // from_chars() takes no blank, no plus sign and no other base.
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (error != std::errc{} || end != value.data() + value.size()) return std::nullopt;
  return parsed;
}

SetValue number(std::int64_t min, std::int64_t max,
                std::function<void(Config& config, std::int64_t value)> put) {
  return [min, max, put = std::move(put)](Config& config, std::string_view value) -> Result<> {
    const auto parsed = parse_whole_number(value);
    if (!parsed || *parsed < min || *parsed > max)
      return fail(Errc::invalid, allowed_numbers(min, max));
    put(config, *parsed);
    return {};
  };
}

SetValue broker_time(std::chrono::milliseconds BrokerConfig::*member, std::int64_t min) {
  return number(min, max_time_ms, [member](Config& config, std::int64_t value) {
    config.broker.*member = std::chrono::milliseconds{value};
  });
}

SetValue broker_flag(bool BrokerConfig::*member) {
  return [member](Config& config, std::string_view value) -> Result<> {
    if (value != "true" && value != "false") return fail(Errc::invalid, "true or false");
    config.broker.*member = value == "true";
    return {};
  };
}

SetValue optional_time(std::optional<std::int64_t> Config::Times::*member, std::int64_t min,
                       std::int64_t max) {
  const auto given = number(
      min, max, [member](Config& config, std::int64_t value) { config.times.*member = value; });
  return [member, given](Config& config, std::string_view value) -> Result<> {
    if (!value.empty()) return given(config, value);
    // An empty value takes back what a lower layer gave.
    config.times.*member = std::nullopt;
    return {};
  };
}

Result<> set_data_directory(Config& config, std::string_view value) {
  if (value.empty() || !is_path(value)) return path_error();
  config.broker.data_directory = value;
  return {};
}
Result<> set_log_directory(Config& config, std::string_view value) {
  if (!is_path(value)) return path_error();
  config.broker.log_directory = value;
  return {};
}

Result<> set_admin_listener(Config& config, std::string_view value) {
  if (value == "off") {
    config.admin.reset();
    return {};
  }
  auto parsed = parse_host_port(value);
  if (!parsed) return fail(Errc::invalid, parsed.error().message + ", or off");
  config.admin = std::move(*parsed);
  return {};
}

Result<> set_admin_allowed_hosts(Config& config, std::string_view value) {
  constexpr std::size_t max_hosts = 64;
  std::vector<std::string> hosts;
  for (std::string_view rest = value; !rest.empty();) {
    const auto host = take_element(rest, ',');
    const bool is_name = !host.empty() && std::ranges::all_of(host, [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':' || c == '[' ||
             c == ']';
    });
    if ((!is_name && host != "*") || hosts.size() == max_hosts) {
      return fail(Errc::invalid,
                  "up to 64 names, with a port or for any port, as in "
                  "localhost,tarry.example.com:8443 (* allows every name)");
    }
    hosts.emplace_back(host);
  }
  config.admin_allowed_hosts = std::move(hosts);
  return {};
}
Result<> set_admin_open_reads(Config& config, std::string_view value) {
  if (value != "true" && value != "false") return fail(Errc::invalid, "true or false");
  config.admin_open_reads = value == "true";
  return {};
}
Result<> set_admin_loopback_reads(Config& config, std::string_view value) {
  if (value != "open" && value != "token") return fail(Errc::invalid, "open or token");
  config.admin_loopback_reads = value == "open";
  return {};
}

Result<> set_header_aliases_key(Config& config, std::string_view value) {
  auto parsed = delay::HeaderAliases::parse(value);
  if (!parsed) return std::unexpected(parsed.error());
  config.header_aliases = std::move(*parsed);
  return {};
}
Result<> set_log_format_key(Config& config, std::string_view value) {
  if (value != "text" && value != "json") return fail(Errc::invalid, "text or json");
  config.log_format = value == "json" ? LogFormat::json : LogFormat::text;
  return {};
}
Result<> set_log_level_key(Config& config, std::string_view value) {
  for (const auto& [name, level] : log_levels) {
    if (value != name) continue;
    config.log_level = level;
    return {};
  }
  return fail(Errc::invalid, "debug, info, warn, error or off");
}

Result<> set_journal_file_bytes(Config& config, std::string_view value) {
  // A journal file consists of whole blocks of the disk.
  constexpr std::int64_t min = 65'536, max = 1 << 30, block = 4096;
  const auto parsed = parse_whole_number(value);
  if (!parsed || *parsed < min || *parsed > max || *parsed % block != 0) {
    return fail(Errc::invalid, allowed_numbers(min, max) + ", a multiple of 4096");
  }
  config.broker.journal_file_bytes = *parsed;
  return {};
}

}  // namespace tarry::server
