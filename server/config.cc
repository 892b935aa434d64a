#include "server/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <thread>
#include <utility>

#include <fmt/core.h>

#include "base/assert.h"
#include "base/time_text.h"
#include "broker/settings/topic_config.h"

namespace tarry::server {
namespace {

using broker::BrokerConfig;
using broker::ConfigType;

constexpr std::int64_t max_long = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t max_int = std::numeric_limits<std::int32_t>::max();
// A century: what is longer is a slip of the pen, and nanoseconds in 64 bits end at three.
constexpr std::int64_t longest_ms = 3'155'760'000'000;

// A file that is longer is not meant for us.
constexpr std::size_t longest_file = 1 << 20;

using Set = std::function<Result<>(Config&, std::string_view)>;

// A value is shown as it was given, but cannot make a line of its own.
std::string shown(std::string_view value) {
  return value.empty() ? "(nothing)" : printable(value);
}

// --- What a value may be ---

std::optional<std::int64_t> whole_number(std::string_view value) {
  std::int64_t parsed = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (error != std::errc{} || end != value.data() + value.size()) return std::nullopt;
  return parsed;
}

std::string number_allowed(std::int64_t least, std::int64_t most) {
  return least == most ? fmt::format("{}", least)
                       : fmt::format("a whole number from {} to {}", least, most);
}

// A whole number between two bounds; `put` takes it.
template <typename Put>
Set number(std::int64_t least, std::int64_t most, Put put) {
  return [=](Config& config, std::string_view value) -> Result<> {
    const auto parsed = whole_number(value);
    if (!parsed || *parsed < least || *parsed > most)
      return fail(Errc::invalid, number_allowed(least, most));
    put(config, *parsed);
    return {};
  };
}

template <typename T>
Set broker_number(T BrokerConfig::*member, std::int64_t least, std::int64_t most) {
  return number(least, most, [member](Config& config, std::int64_t value) {
    config.broker.*member = static_cast<T>(value);
  });
}
Set broker_time(std::chrono::milliseconds BrokerConfig::*member, std::int64_t least) {
  return number(least, longest_ms, [member](Config& config, std::int64_t value) {
    config.broker.*member = std::chrono::milliseconds{value};
  });
}
Set broker_flag(bool BrokerConfig::*member) {
  return [member](Config& config, std::string_view value) -> Result<> {
    if (value != "true" && value != "false") return fail(Errc::invalid, "true or false");
    config.broker.*member = value == "true";
    return {};
  };
}
template <typename T>
Set session_number(T SessionLimits::*member, std::int64_t least, std::int64_t most) {
  return number(least, most, [member](Config& config, std::int64_t value) {
    config.sessions.*member = T(value);
  });
}

// A number that need not be given; which of several counts is found when all are read.
Set time_of(std::optional<std::int64_t> Config::Times::*member, std::int64_t least,
            std::int64_t most) {
  return [=](Config& config, std::string_view value) -> Result<> {
    if (value.empty()) {
      config.times.*member = std::nullopt;
      return {};
    }
    return number(least, most, [member](Config& into, std::int64_t parsed) {
      into.times.*member = parsed;
    })(config, value);
  };
}

Result<> no_path() {
  return fail(Errc::invalid, "the path of one directory, without a comma or control character");
}
bool is_path(std::string_view value) {
  return std::ranges::none_of(
      value, [](char c) { return c == ',' || static_cast<unsigned char>(c) < 0x20; });
}
Result<> set_data_directory(Config& config, std::string_view value) {
  if (value.empty() || !is_path(value)) return no_path();
  config.broker.data_directory = value;
  return {};
}
Result<> set_log_directory(Config& config, std::string_view value) {
  if (!is_path(value)) return no_path();
  config.broker.log_directory = value;
  return {};
}

// Kafka's form names the protocol first: PLAINTEXT://localhost:9092.
constexpr std::string_view plaintext = "PLAINTEXT://";

Result<HostPort> listener(std::string_view value) {
  if (value.starts_with(plaintext)) value.remove_prefix(plaintext.size());
  return parse_host_port(value);
}
Result<> set_listeners(Config& config, std::string_view value) {
  auto parsed = listener(value);
  if (!parsed) return std::unexpected(parsed.error());
  config.listen = std::move(*parsed);
  return {};
}
Result<> set_advertised(Config& config, std::string_view value) {
  if (value.empty()) {
    config.advertise.reset();
    return {};
  }
  auto parsed = listener(value);
  if (!parsed) return std::unexpected(parsed.error());
  if (parsed->host.empty()) {
    return fail(Errc::invalid,
                "HOST:PORT with a host that clients can reach (port 0: the "
                "listener's)");
  }
  config.advertise = std::move(*parsed);
  return {};
}
Result<> set_admin(Config& config, std::string_view value) {
  if (value == "off") {
    config.admin.reset();
    return {};
  }
  auto parsed = parse_host_port(value);
  if (!parsed) return fail(Errc::invalid, parsed.error().message + ", or off");
  config.admin = std::move(*parsed);
  return {};
}

constexpr std::array<std::pair<std::string_view, LogLevel>, 5> log_levels{
    {{"debug", LogLevel::debug},
     {"info", LogLevel::info},
     {"warn", LogLevel::warn},
     {"error", LogLevel::error},
     {"off", LogLevel::off}}};

Result<> set_log_level_key(Config& config, std::string_view value) {
  for (const auto& [name, level] : log_levels) {
    if (value != name) continue;
    config.log_level = level;
    return {};
  }
  return fail(Errc::invalid, "debug, info, warn, error or off");
}

// Blocks of the disk: what the journal's files are made of.
Result<> set_journal_file_bytes(Config& config, std::string_view value) {
  constexpr std::int64_t least = 65'536, most = 1 << 30, block = 4096;
  const auto parsed = whole_number(value);
  if (!parsed || *parsed < least || *parsed > most || *parsed % block != 0) {
    return fail(Errc::invalid, number_allowed(least, most) + ", a multiple of 4096");
  }
  config.broker.journal_file_bytes = *parsed;
  return {};
}

constexpr std::string_view retention_reason =
    "How long records are kept after their append; -1: for ever. log.retention.ms takes "
    "precedence over .minutes, and .minutes over .hours.";
constexpr std::string_view roll_reason =
    "How old a segment may grow before the next one begins. log.roll.ms takes precedence over "
    ".hours.";

// --- The table ---

std::vector<ConfigKey> own_keys() {
  return {
      {"advertised.listeners", "", "", ConfigType::string,
       "The address that the broker tells clients to connect to. Empty: 127.0.0.1 for a listener "
       "on localhost, the machine's host name for any other.",
       set_advertised},
      {"auto.create.topics.enable", "true", "", ConfigType::boolean,
       "Whether a topic is made when a client asks for one that is not there.",
       broker_flag(&BrokerConfig::auto_create_topics)},
      {"connections.max.idle.ms", "600000", "ms", ConfigType::long_,
       "The broker closes a connection that sends no request for this long.",
       session_number(&SessionLimits::idle, 1, longest_ms)},
      {"default.replication.factor", "1", "", ConfigType::integer,
       "There is one broker, so there is one copy.", number(1, 1, [](Config&, std::int64_t) {})},
      {"delete.topic.enable", "true", "", ConfigType::boolean, "Whether topics may be deleted.",
       broker_flag(&BrokerConfig::delete_topics)},
      {"fetch.max.bytes", "57671680", "bytes", ConfigType::integer,
       "The most that one Fetch answer carries, whatever the client asks for.",
       broker_number(&BrokerConfig::fetch_max_bytes, 1024, max_int)},
      {"group.initial.rebalance.delay.ms", "3000", "ms", ConfigType::integer,
       "How long an empty group waits for more members after the first one; it waits again while "
       "members keep coming.",
       broker_time(&BrokerConfig::group_initial_rebalance_delay, 0)},
      {"group.max.session.timeout.ms", "1800000", "ms", ConfigType::integer,
       "The longest session timeout that a consumer may ask for.",
       broker_time(&BrokerConfig::group_max_session_timeout, 1)},
      {"group.max.size", "10000", "", ConfigType::integer,
       "The largest number of members of a group; the broker refuses members above it.",
       broker_number(&BrokerConfig::group_max_size, 1, 1'000'000)},
      {"group.min.session.timeout.ms", "6000", "ms", ConfigType::integer,
       "The shortest session timeout that a consumer may ask for.",
       broker_time(&BrokerConfig::group_min_session_timeout, 1)},
      {"listeners", "PLAINTEXT://localhost:9092", "", ConfigType::list,
       "Where clients connect: one address. localhost is 127.0.0.1 and ::1, no host is any "
       "address of the machine, port 0 a free one.",
       set_listeners},
      {"log.dirs", "", "", ConfigType::string,
       "The directory of the segments. Empty: logs/ in tarry.data.dir.", set_log_directory},
      {"log.retention.check.interval.ms", "300000", "ms", ConfigType::long_,
       "How often retention looks for segments to delete.",
       broker_time(&BrokerConfig::retention_check, 1)},
      {"log.retention.hours", "168", "hours", ConfigType::integer, retention_reason,
       time_of(&Config::Times::retention_hours, -1, max_int)},
      {"log.retention.minutes", "", "minutes", ConfigType::integer, retention_reason,
       time_of(&Config::Times::retention_minutes, -1, max_int)},
      {"log.retention.ms", "", "ms", ConfigType::long_, retention_reason,
       time_of(&Config::Times::retention_ms, -1, max_long)},
      {"log.roll.hours", "168", "hours", ConfigType::integer, roll_reason,
       time_of(&Config::Times::roll_hours, 1, max_int)},
      {"log.roll.ms", "", "ms", ConfigType::long_, roll_reason,
       time_of(&Config::Times::roll_ms, 1, max_long)},
      {"max.connections", "100000", "", ConfigType::integer,
       "The largest number of open connections; the broker closes new ones above it. The limit of "
       "open files, minus a reserve for the broker's own files, may lower it: a log line at the "
       "start says so, and /status has the number.",
       number(1, max_int,
              [](Config& config, std::int64_t value) {
                config.max_connections = static_cast<std::size_t>(value);
              })},
      {"node.id", "1", "", ConfigType::integer,
       "The broker's id in its cluster of one; the data directory keeps it, and it cannot be "
       "changed later.",
       number(1, 1, [](Config&, std::int64_t) {})},
      {"num.partitions", "1", "", ConfigType::integer,
       "The number of partitions of a topic that is created without one.",
       broker_number(&BrokerConfig::num_partitions, 1, 100'000)},
      {"offset.metadata.max.bytes", "4096", "bytes", ConfigType::integer,
       "The longest text that a consumer may commit with an offset.",
       broker_number(&BrokerConfig::offset_metadata_bytes, 0, 32'767)},
      {"offsets.commit.timeout.ms", "5000", "ms", ConfigType::integer,
       "How long a commit may take to become durable; after that the client is told to try again.",
       broker_time(&BrokerConfig::offsets_commit_timeout, 1)},
      {"offsets.retention.check.interval.ms", "600000", "ms", ConfigType::long_,
       "How often the broker looks for committed offsets that have expired; those of one group "
       "that expire within this time of each other go together.",
       broker_time(&BrokerConfig::offsets_retention_check, 1)},
      {"offsets.retention.minutes", "10080", "minutes", ConfigType::integer,
       "How long the offsets of a group are kept after its last member has left; without members "
       "of its own, after they were committed.",
       number(1, max_int,
              [](Config& config, std::int64_t value) {
                config.broker.offsets_retention = std::chrono::minutes{value};
              })},
      {"producer.id.expiration.ms", "86400000", "ms", ConfigType::integer,
       "How long the broker remembers an idempotent producer that sends nothing, to recognise its "
       "retries.",
       broker_time(&BrokerConfig::producer_id_expiration, 1)},
      {"socket.request.max.bytes", "104857600", "bytes", ConfigType::integer,
       "The largest request; the broker closes a connection that announces a larger one.",
       session_number(&SessionLimits::frame_bytes, 1, max_int)},

      {"tarry.admin.listener", "127.0.0.1:8080", "", ConfigType::string,
       "Where the admin's HTTP listens, or off. Off loopback it asks for its token for reading "
       "too.",
       set_admin},
      {"tarry.checkpoint.interval.ms", "60000", "ms", ConfigType::long_,
       "The longest time between a change and the checkpoint that covers it; a shorter time leaves "
       "less for recovery to read.",
       broker_time(&BrokerConfig::checkpoint_interval, 1)},
      {"tarry.connection.max.bytes", "134217728", "bytes", ConfigType::long_,
       "The limit of bytes in flight on one connection, requests and answers together. At the "
       "limit the broker neither reads from it nor begins a Fetch until answers have left.",
       session_number(&SessionLimits::bytes_in_flight, 1, max_long)},
      {"tarry.connection.max.requests", "1000", "", ConfigType::integer,
       "The limit of requests in flight on one connection. At the limit the broker stops reading "
       "from it until some are answered.",
       session_number(&SessionLimits::requests_in_flight, 1, 1'000'000)},
      {"tarry.connection.write.stall.ms", "60000", "ms", ConfigType::long_,
       "The broker disconnects a client that reads none of its answers for this long.",
       session_number(&SessionLimits::write_stall, 1, longest_ms)},
      {"tarry.data.dir", "./tarry-data", "", ConfigType::string,
       "The data directory; one broker uses it at a time.", set_data_directory},
      {"tarry.decompressed.max.bytes", "134217728", "bytes", ConfigType::long_,
       "The largest size to which a batch may decompress; a few kilobytes can claim gigabytes. One "
       "shard holds at most twice as much of decompressed batches.",
       broker_number(&BrokerConfig::decompressed_max_bytes, 1024, std::int64_t{1} << 31)},
      {"tarry.delay.near.entries", "2000000", "", ConfigType::long_,
       "The largest number of pending records that a shard keeps in memory; the others are on disk "
       "until their due time is near.",
       broker_number(&BrokerConfig::near_entries, 1000, 1'000'000'000)},
      {"tarry.delay.remember.ms", "3600000", "ms", ConfigType::long_,
       "How long the broker remembers that a schedule id was delivered, to answer a cancel that "
       "comes too late.",
       broker_time(&BrokerConfig::delay_remember, 0)},
      {"tarry.disk.reserve.bytes", "268435456", "bytes", ConfigType::long_,
       "The free space that the broker keeps for deliveries and checkpoints. With less free it "
       "accepts no new records.",
       broker_number(&BrokerConfig::disk_reserve_bytes, 0, max_long)},
      {"tarry.group.max.bytes", "16777216", "bytes", ConfigType::long_,
       "The largest size of what the members of a group send, subscriptions and assignments "
       "together; the broker refuses members above it.",
       broker_number(&BrokerConfig::group_max_bytes, 65'536, 33'554'432)},
      {"tarry.group.offsets.bytes", "67108864", "bytes", ConfigType::long_,
       "The memory that committed offsets of all groups may take on one shard; the broker refuses "
       "commits above it.",
       broker_number(&BrokerConfig::group_offsets_bytes, 4096, std::int64_t{1} << 40)},
      {"tarry.journal.file.bytes", "33554432", "bytes", ConfigType::long_,
       "The size of one journal file; at least two of them must fit into tarry.journal.max.bytes.",
       set_journal_file_bytes},
      {"tarry.journal.max.bytes", "268435456", "bytes", ConfigType::long_,
       "The largest size of a shard's journal, which is what recovery reads at most.",
       broker_number(&BrokerConfig::journal_max_bytes, 33'554'432, std::int64_t{1} << 40)},
      {"tarry.log.level", "info", "", ConfigType::string,
       "The lowest level of log lines that the broker writes to stderr.", set_log_level_key},
      {"tarry.log.tail.bytes", "67108864", "bytes", ConfigType::long_,
       "The memory in which a shard keeps the ends of its logs, from which consumers at the end "
       "read.",
       broker_number(&BrokerConfig::tail_bytes, 65'536, std::int64_t{1} << 40)},
      {"tarry.max.groups", "100000", "", ConfigType::integer,
       "The largest number of consumer groups.",
       broker_number(&BrokerConfig::max_groups, 1, 10'000'000)},
      {"tarry.max.partitions", "200000", "", ConfigType::integer,
       "The largest number of partitions of all topics together.",
       broker_number(&BrokerConfig::max_partitions, 1, 10'000'000)},
      {"tarry.shards", "0", "", ConfigType::integer,
       "The number of threads that serve clients; 0: one for each core. It may be changed at any "
       "restart.",
       number(0, 256,
              [](Config& config, std::int64_t value) {
                config.shards = static_cast<std::uint32_t>(value);
              })},
      {"tarry.shutdown.timeout.ms", "30000", "ms", ConfigType::long_,
       "How long a stopping broker waits for the last requests; then it ends without them and says "
       "so. Everything acknowledged is in the journal.",
       number(1, longest_ms,
              [](Config& config, std::int64_t value) {
                config.shutdown_timeout = std::chrono::milliseconds{value};
              })},
      {"tarry.unfinished.max.bytes", "268435456", "bytes", ConfigType::long_,
       "The limit of bytes that unfinished requests hold on all connections of a shard; above it "
       "the broker closes the connection with the largest one.",
       session_number(&SessionLimits::unfinished_bytes, 1, max_long)},
  };
}

std::string_view unit_of(std::string_view name) {
  if (name.ends_with(".ms")) return "ms";
  if (name.ends_with(".bytes")) return "bytes";
  return "";
}

// The broker's defaults for what a topic may override: the topic's own checks hold for them.
void add_topic_defaults(std::vector<ConfigKey>& keys) {
  for (const auto& key : broker::topic_config_keys()) {
    if (key.broker_name.empty() ||
        std::ranges::any_of(keys, [&](const auto& own) { return own.name == key.broker_name; })) {
      continue;  // Without a default, or one of those that Kafka gives several names.
    }
    keys.push_back({key.broker_name, key.fallback, unit_of(key.broker_name), key.type, key.reason,
                    [&key](Config& config, std::string_view value) -> Result<> {
                      broker::TopicConfig checked;
                      auto set = key.set(checked, value);
                      if (!set) return std::unexpected(set.error());
                      config.broker.topic_defaults[std::string(key.name)] = std::move(*set);
                      return {};
                    }});
  }
}

std::vector<ConfigKey> make_keys() {
  auto keys = own_keys();
  add_topic_defaults(keys);
  std::ranges::sort(keys, [](const auto& a, const auto& b) {
    return std::pair(a.name.starts_with("tarry."), a.name) <
           std::pair(b.name.starts_with("tarry."), b.name);
  });
  return keys;
}

// The one form that everything behind this sees and DescribeConfigs shows: "7d", "1GiB" and "007"
// as plain numbers, "True" as "true", an address with its protocol, as Kafka has them.
std::string in_plain_form(const ConfigKey& key, std::string_view value) {
  using broker::ConfigType;
  const bool is_address = key.name == "listeners" || key.name == "advertised.listeners";
  if (is_address && !value.empty() && value.find("://") == value.npos)
    return fmt::format("{}{}", plaintext, value);
  if (key.type == ConfigType::boolean) {
    std::string lower(value);
    for (char& c : lower) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return lower;
  }
  if (key.type == ConfigType::integer || key.type == ConfigType::long_) {
    if (const auto parsed = whole_number(value)) return std::to_string(*parsed);
  }
  if (key.type == ConfigType::double_) {
    double parsed = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
    if (error == std::errc{} && end == value.data() + value.size())
      return fmt::format("{}", parsed);
  }
  if (key.unit == "ms") {
    if (const auto parsed = parse_duration(value)) return std::to_string(parsed->count());
  } else if (key.unit == "bytes") {
    if (const auto parsed = parse_size(value)) return std::to_string(*parsed);
  }
  return std::string(value);
}

Result<> set_key(const ConfigKey& key, Config& config, std::string_view value) {
  const auto set = key.set(config, in_plain_form(key, value));
  if (set) return set;
  std::string allowed = set.error().message;
  if (key.unit == "ms") allowed += ", in ms, or as in 90s and 7d";
  if (key.unit == "bytes") allowed += ", in bytes, or as in 64KiB and 1GiB";
  return fail(set.error().code, std::move(allowed));
}

// --- Errors ---

// A flag has the key's value as its own word; elsewhere the key is part of what was written.
std::string place(const Setting& setting) {
  const std::string value = shown(setting.value);
  if (setting.where == "--set") return fmt::format("--set {}={}", printable(setting.key), value);
  if (setting.where.starts_with("--")) return fmt::format("{} {}", setting.where, value);
  return fmt::format("{}: {}={}", setting.where, printable(setting.key), value);
}

// How many letters must be added, taken away or changed.
std::size_t letters_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

std::string unknown_key(const Setting& setting) {
  std::string_view nearest;
  std::size_t distance = 4;  // What is further away is no slip.
  if (setting.key.size() < 100) {
    for (const auto& key : config_keys()) {
      const auto letters = letters_between(setting.key, key.name);
      if (letters < distance) {
        distance = letters;
        nearest = key.name;
      }
    }
  }
  return fmt::format("{}: there is no such key{}; `tarry serve --help-config` shows all",
                     place(setting),
                     nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
}

// --- Properties files ---

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\f';
}

void append_utf8(std::string& to, std::uint32_t code) {
  if (code < 0x80) {
    to += static_cast<char>(code);
  } else if (code < 0x800) {
    to += static_cast<char>(0xc0 | (code >> 6));
    to += static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    to += static_cast<char>(0xe0 | (code >> 12));
    to += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    to += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    to += static_cast<char>(0xf0 | (code >> 18));
    to += static_cast<char>(0x80 | ((code >> 12) & 0x3f));
    to += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    to += static_cast<char>(0x80 | (code & 0x3f));
  }
}

std::optional<std::uint32_t> four_hex_digits(std::string_view text) {
  if (text.size() < 4) return std::nullopt;
  std::uint32_t code = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + 4, code, 16);
  if (error != std::errc{} || end != text.data() + 4) return std::nullopt;
  return code;
}

// One logical line: what an escape stands for, and where key and value part.
class LineReader {
 public:
  explicit LineReader(std::string_view line) : left_(line) {}

  Result<std::pair<std::string, std::string>> read() {
    std::string key, value;
    while (!left_.empty() && !is_blank(left_[0]) && left_[0] != '=' && left_[0] != ':') {
      if (auto taken = take(key); !taken) return std::unexpected(taken.error());
    }
    skip_blanks();
    if (!left_.empty() && (left_[0] == '=' || left_[0] == ':')) left_.remove_prefix(1);
    skip_blanks();
    std::size_t end = 0;  // Of the value without the blanks behind it.
    while (!left_.empty()) {
      const bool blank = is_blank(left_[0]);
      if (auto taken = take(value); !taken) return std::unexpected(taken.error());
      if (!blank) end = value.size();
    }
    value.resize(end);
    return std::pair(std::move(key), std::move(value));
  }

 private:
  void skip_blanks() {
    while (!left_.empty() && is_blank(left_[0])) left_.remove_prefix(1);
  }

  // The next character, which may be written as an escape.
  Result<> take(std::string& to) {
    const char c = left_[0];
    left_.remove_prefix(1);
    if (c != '\\') {
      to += c;
      return {};
    }
    if (left_.empty()) return {};  // At the end of the file it joins nothing.
    const char escaped = left_[0];
    left_.remove_prefix(1);
    switch (escaped) {
      case 't':
        to += '\t';
        return {};
      case 'n':
        to += '\n';
        return {};
      case 'r':
        to += '\r';
        return {};
      case 'f':
        to += '\f';
        return {};
      case 'u':
        return take_code(to);
      default:
        to += escaped;
        return {};
    }
  }

  // Java writes what is above U+FFFF as two escapes.
  Result<> take_code(std::string& to) {
    const auto wrong = [] {
      return fail(Errc::invalid, "\\u wants four hex digits of a character, as in \\u00e9");
    };
    auto code = four_hex_digits(left_);
    if (!code || (*code >= 0xdc00 && *code < 0xe000)) return wrong();
    left_.remove_prefix(4);
    if (*code >= 0xd800 && *code < 0xdc00) {
      const auto low = left_.starts_with("\\u") ? four_hex_digits(left_.substr(2)) : std::nullopt;
      if (!low || *low < 0xdc00 || *low >= 0xe000) return wrong();
      left_.remove_prefix(6);
      code = 0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00);
    }
    append_utf8(to, *code);
    return {};
  }

  std::string_view left_;
};

bool goes_on(std::string_view line) {
  const auto last = line.find_last_not_of('\\');
  const auto backslashes = line.size() - (last == std::string_view::npos ? 0 : last + 1);
  return backslashes % 2 == 1;
}

// --- What several keys say together ---

Result<> check_flushes(const storage::Configs& topic_defaults) {
  const auto config = broker::make_topic_config(topic_defaults, {});
  if (!config) return std::unexpected(config.error());
  for (const char* name : {"flush.messages", "flush.ms"}) {
    auto why =
        broker::flush_conflict(config->durability, broker::find_topic_config_key(name)->broker_name,
                               topic_defaults.at(name));
    if (!why.empty()) return fail(Errc::invalid, std::move(why));
  }
  return {};
}

Result<> settle_times(Config& config) {
  const auto& times = config.times;
  constexpr std::int64_t minute = 60'000, hour = 3'600'000;
  const auto in_ms = [](std::int64_t value, std::int64_t unit) {
    return value < 0 ? std::int64_t{-1} : value * unit;  // An int of hours fits.
  };
  std::int64_t retention = 168 * hour;
  if (times.retention_ms) {
    retention = *times.retention_ms;
  } else if (times.retention_minutes) {
    retention = in_ms(*times.retention_minutes, minute);
  } else if (times.retention_hours) {
    retention = in_ms(*times.retention_hours, hour);
  }
  std::int64_t roll = 168 * hour;
  if (times.roll_ms) {
    roll = *times.roll_ms;
  } else if (times.roll_hours) {
    roll = in_ms(*times.roll_hours, hour);
  }
  config.broker.topic_defaults["retention.ms"] = std::to_string(retention);
  config.broker.topic_defaults["segment.ms"] = std::to_string(roll);

  if (config.broker.journal_max_bytes < 2 * config.broker.journal_file_bytes) {
    return fail(Errc::invalid,
                fmt::format("tarry.journal.max.bytes={} with tarry.journal.file.bytes={}: at least "
                            "two files have to fit",
                            config.broker.journal_max_bytes, config.broker.journal_file_bytes));
  }
  return check_flushes(config.broker.topic_defaults);
}

}  // namespace

std::string ConfigKey::allowed() const {
  // No key takes a line feed, so each says what it would take.
  Config scratch;
  const auto said = set(scratch, "\n");
  return said ? std::string() : said.error().message;
}

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> keys = make_keys();
  return keys;
}

const ConfigKey* find_config_key(std::string_view name) {
  for (const auto& key : config_keys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

Result<> check_setting(std::string_view name, std::string_view value) {
  const auto* key = find_config_key(name);
  TARRY_ASSERT(key != nullptr, "who asks for a key by name knows that it is there");
  Config scratch;
  return set_key(*key, scratch, value);
}

Result<std::vector<Setting>> parse_properties(std::string_view text, std::string_view name) {
  std::vector<Setting> settings;
  std::string logical;     // Of several lines, when they end in a backslash.
  std::size_t number = 0;  // Of the line, and of the one where the logical one began.
  std::size_t begun = 0;
  bool joining = false;

  while (!text.empty()) {
    const auto end = text.find_first_of("\r\n");
    std::string_view line = text.substr(0, end);
    if (end == std::string_view::npos) {
      text = {};
    } else {
      text.remove_prefix(end + (text.substr(end).starts_with("\r\n") ? 2 : 1));
    }
    ++number;
    while (!line.empty() && is_blank(line[0])) line.remove_prefix(1);
    if (!joining) {
      if (line.empty() || line[0] == '#' || line[0] == '!') continue;
      logical.clear();
      begun = number;
    }
    joining = goes_on(line) && !text.empty();
    logical += joining ? line.substr(0, line.size() - 1) : line;
    if (joining) continue;

    auto read = LineReader(logical).read();
    if (!read) {
      return fail(Errc::invalid,
                  fmt::format("{}:{}: {}: {}", name, begun, shown(logical), read.error().message));
    }
    settings.push_back(
        {fmt::format("{}:{}", name, begun), std::move(read->first), std::move(read->second)});
  }
  return settings;
}

Result<std::vector<Setting>> read_properties(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const auto unreadable = [&](const std::string& why) {
    return fail(Errc::io, fmt::format("--config {}: the file cannot be read: {}", path, why));
  };
  if (!file) return unreadable(std::generic_category().message(errno));
  std::string text(longest_file + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.fail() && !file.eof()))
    return unreadable(std::generic_category().message(errno));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > longest_file) return unreadable("it is longer than 1 MiB");
  return parse_properties(text, path);
}

Result<Config> make_config(std::span<const std::vector<Setting>> layers) {
  Config config;
  std::map<std::string_view, std::string> given;  // The highest layer's, in plain form.
  for (const auto& key : config_keys()) {
    const auto set = set_key(key, config, key.fallback);
    TARRY_ASSERT(set.has_value(), "a key's default is allowed");
  }
  for (const auto& layer : layers) {
    std::map<std::string_view, const Setting*> seen;
    for (const auto& setting : layer) {
      const auto* key = find_config_key(setting.key);
      if (key == nullptr) return fail(Errc::invalid, unknown_key(setting));
      const auto [first, is_first] = seen.emplace(key->name, &setting);
      if (!is_first) {
        return fail(Errc::invalid, fmt::format("{}: the key is given twice, first as {}: keep one",
                                               place(setting), place(*first->second)));
      }
      if (const auto set = set_key(*key, config, setting.value); !set) {
        return fail(Errc::invalid,
                    fmt::format("{}: allowed is {}", place(setting), set.error().message));
      }
      given[key->name] = in_plain_form(*key, setting.value);
    }
  }
  if (const auto settled = settle_times(config); !settled) return std::unexpected(settled.error());
  if (config.shards == 0) config.shards = std::max(1u, std::thread::hardware_concurrency());
  if (config.admin && config.admin->port != 0 && config.admin->port == config.listen.port &&
      (config.admin->host == config.listen.host || config.admin->host.empty() ||
       config.listen.host.empty())) {
    return fail(Errc::in_use,
                fmt::format("tarry.admin.listener={}: that is the port of listeners={}: give "
                            "another",
                            config.admin->text(), config.listen.text()));
  }

  for (const auto& key : config_keys()) {
    const auto found = given.find(key.name);
    std::string value = found == given.end() ? std::string(key.fallback) : found->second;
    config.broker.entries.push_back({.name = std::string(key.name),
                                     .value = value,
                                     .fallback = std::string(key.fallback),
                                     .type = key.type,
                                     .is_default = value == key.fallback,
                                     .is_sensitive = false,
                                     .reason = std::string(key.reason)});
  }
  return config;
}

std::string config_help() {
  std::string out =
      "# Every key that `tarry serve --config FILE` and `--set key=value` take, with its default.\n"
      "# Written by `tarry serve --help-config`.\n"
      "# Times in ms are plain numbers or 250ms, 30m, 1h30m, 7d; sizes are bytes or 64KiB, 1GiB.\n";
  const auto wrapped = [&](std::string_view text) {
    constexpr std::size_t width = 96;
    while (!text.empty()) {
      std::size_t end = text.size();
      if (end > width) {
        end = text.rfind(' ', width);
        if (end == std::string_view::npos || end == 0) end = text.find(' ');
        if (end == std::string_view::npos) end = text.size();
      }
      out += fmt::format("# {}\n", text.substr(0, end));
      text.remove_prefix(std::min(text.size(), end + 1));
    }
  };
  for (const auto& key : config_keys()) {
    out += '\n';
    wrapped(key.reason);
    std::string range = key.allowed();
    if (!key.unit.empty()) range = fmt::format("{}, in {}", range, key.unit);
    if (key.fallback.empty()) range += ", or nothing";
    wrapped(fmt::format("Allowed: {}.", range));
    out += fmt::format("{}={}\n", key.name, key.fallback);
  }
  return out;
}

}  // namespace tarry::server
