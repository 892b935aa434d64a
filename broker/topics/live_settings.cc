#include "broker/topics/live_settings.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"
#include "broker/context/one_shot_event.h"
#include "broker/context/shard_context.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

// A key and certificates in PEM.
constexpr std::size_t max_secret_bytes = 128 * 1024;

void log_changes(const BrokerConfig& config, const DynamicSettings& before,
                 const DynamicSettings& now, std::string_view who) {
  const auto shown = [&](const std::string& key, const std::string& value) {
    const auto entry = std::ranges::find(config.entries, key, &ConfigEntry::name);
    // The log must not hold passwords.
    return entry != config.entries.end() && entry->is_sensitive ? "[hidden]" : printable(value);
  };
  const auto changed = [&](const storage::Configs& old, const storage::Configs& fresh,
                           std::string_view whose) {
    for (const auto& [key, value] : fresh) {
      const auto had = old.find(key);
      if (had == old.end() || had->second != value)
        log_info("audit", "{} has set {}={}{}", who, key, shown(key, value), whose);
    }
    for (const auto& [key, value] : old) {
      if (!fresh.contains(key))
        log_info("audit", "{} has removed the setting {}={}{}", who, key, shown(key, value), whose);
    }
  };
  changed(before.of_broker, now.of_broker, "");
  changed(before.of_cluster, now.of_cluster, " as the cluster's default");
}

}  // namespace

LiveSettings::LiveSettings(ShardContext& shard, SettingsHost& host, storage::Catalog& catalog,
                           const SettingsTable* table)
    : shard_(shard),
      host_(host),
      catalog_(catalog),
      table_(table),
      latest_(shard.config().dynamic) {}

TopicResult<void> LiveSettings::check_key(std::string_view key) const {
  const auto& entries = shard_.config().entries;
  const auto entry = std::ranges::find(entries, key, &ConfigEntry::name);
  if (entry == entries.end()) {
    return refuse(ErrorCode::invalid_config,
                  fmt::format("Unknown broker config name: {}", printable(key)));
  }
  if (entry->is_dynamic && table_ != nullptr) return {};
  return refuse(ErrorCode::invalid_request,
                fmt::format("{} cannot be changed while the broker runs: it needs a restart. Set "
                            "it in the properties file or with --set, and start the broker again.",
                            key));
}

TopicResult<storage::Configs> LiveSettings::settle(const storage::Configs& wanted) const {
  storage::Configs settled;
  for (const auto& [key, value] : wanted) {
    if (auto known = check_key(key); !known) return std::unexpected(known.error());
    const auto& entries = shard_.config().entries;
    const bool is_secret = std::ranges::find(entries, key, &ConfigEntry::name)->is_sensitive;
    const std::size_t max_bytes = is_secret ? max_secret_bytes : max_topic_config_bytes;
    if (value.size() > max_bytes) {
      return refuse(
          ErrorCode::invalid_config,
          fmt::format("Invalid value {}... for configuration {}: it has {} bytes; the "
                      "limit is {}",
                      is_secret ? "[hidden]" : printable(value, 32), key, value.size(), max_bytes));
    }
    auto canonical = table_->canonical(key, value);
    if (!canonical) {
      return refuse(ErrorCode::invalid_config,
                    fmt::format("Invalid value {} for configuration {}: expected {}",
                                value.empty() ? "(nothing)"
                                : is_secret   ? "[hidden]"
                                              : printable(value),
                                key, canonical.error().message));
    }
    settled.emplace(key, std::move(*canonical));
  }
  return settled;
}

asio::awaitable<TopicResult<void>> LiveSettings::change(Scope scope, Change change, std::string who,
                                                        bool only_check) {
  shard_.assert_on_shard();
  // The newest settings may still be on their way to the journal and to the shards.
  DynamicSettings next = latest_;
  auto& own = scope == Scope::broker ? next.of_broker : next.of_cluster;
  auto wanted = change(own);
  if (!wanted) co_return std::unexpected(wanted.error());
  auto settled = settle(*wanted);
  if (!settled) co_return std::unexpected(settled.error());
  own = std::move(*settled);
  // A path that is set again may have other contents by now.
  const bool names_files = std::ranges::any_of(
      own, [](const auto& setting) { return setting.first.ends_with("store.location"); });
  if (next == latest_ && !names_files) co_return TopicResult<void>{};
  // Without a table settle() takes no key, so nothing can have changed.
  if (const auto config = table_->config_with(next); !config)
    co_return refuse(ErrorCode::invalid_config, config.error().message);
  if (const auto checked = table_->check(next); !checked)
    co_return refuse(ErrorCode::invalid_config, checked.error().message);
  if (only_check) co_return TopicResult<void>{};

  const storage::BrokerConfigsSet operation{next.stored()};
  // With the disk's reserve: a lower tarry.disk.reserve.bytes may be what helps.
  storage::JournalTransaction transaction(storage::Reserve::use);
  transaction.add(operation);
  OneShotEvent settled_event;
  Result<> result;
  transaction.on_settled([&](const Result<>& safe) {
    result = safe;
    if (result) result = catalog_.apply(operation);
    settled_event.fire();
  });
  if (const auto lsn = shard_.commit(std::move(transaction)); !lsn)
    co_return refuse(ErrorCode::kafka_storage_error, lsn.error().message);
  // From here on it holds: the next change builds on it, and comes after it in the journal.
  log_changes(shard_.config(), std::exchange(latest_, next), next, who);
  co_await settled_event.wait();
  if (!result) {
    shard_.journal_failed(result.error());
    co_return refuse(ErrorCode::kafka_storage_error, result.error().message);
  }
  co_await host_.publish_settings(std::move(next));
  co_return TopicResult<void>{};
}

}  // namespace tarry::broker
