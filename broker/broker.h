#pragma once

// Broker: the topics, the shards that hold their partitions, and hops from shard to shard.
//
//   Produce, Fetch ... --> handler (on the connection's shard)
//                             |-- own partitions: a plain call
//                             '-- another shard's: on(shard, ...), one hop there and back
//
//   CreateTopics ...   --> Topics, on shard 0, whose journal has the catalog; the new image is
//                          handed to every shard before the client is answered
//
// open() makes everything from a data directory: databases, recovery of all journals that are
// there, shards.  Then the server runs a thread for each shard's executor and calls start().
//
// Threads: each member says its thread; members that are constant after open() any thread may read.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/random.h"
#include "broker/context/broker_context.h"
#include "broker/context/cancellation_token.h"
#include "broker/context/once_per_topic.h"
#include "broker/dead_letter_writer.h"
#include "broker/security/failed_logins.h"
#include "broker/security/quota_meters.h"
#include "broker/security/shard_security.h"
#include "broker/settings/dynamic_settings.h"
#include "broker/settings/settings_table.h"
#include "broker/shard.h"
#include "broker/topics/live_security.h"
#include "broker/topics/live_settings.h"
#include "broker/topics/topics.h"
#include "storage/bucket_store.h"
#include "storage/catalog.h"
#include "storage/data_directory.h"
#include "storage/database.h"
#include "storage/directory_lock.h"
#include "storage/file.h"
#include "storage/offset_store.h"
#include "storage/pending_counts.h"

namespace tarry::storage {
struct Recovered;
}

namespace tarry::broker {

struct BrokerSetup {
  BrokerConfig config;  // Cluster and node id are read from the directory.
  storage::Disk* disk = nullptr;
  const Clock* clock = nullptr;
  Random* random = nullptr;           // Any thread may ask it.
  SettingsTable* settings = nullptr;  // Null: no setting can be changed while it runs.
  std::vector<ShardSetup> shards;
  // The journal could not be written, so no promise can be kept: the caller ends the process.
  // Any thread.
  std::function<void(const Error&)> on_failure;
};

// The work of a recovery, for the operator.
struct RecoverySummary {
  std::size_t journals = 0;
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;
  std::uint64_t pending = 0;
};

class Broker final : public TopicsHost, public SettingsHost, public SecurityHost {
 public:
  static Result<std::unique_ptr<Broker>> open(BrokerSetup setup);
  ~Broker();

  // Begins deliveries.  Call it once the shards' threads run.  `ready` is called on shard 0's
  // thread when every shard has its first sequence numbers, or there is no room to note them; until
  // then a delayed record may be refused for the time being.
  void start(std::move_only_function<void()> ready = [] {});
  // Everything dirty is written; `then` runs on shard 0's thread.
  void stop(std::move_only_function<void()> then);

  // Looks once for all shards at what other programs may change: how much of the disk is free, and
  // whether the data directory is still the one that was opened.  When something is wrong, each
  // shard refuses records from its next turn on; when all is well, no shard is woken, unless to
  // look at log.dirs, if that is elsewhere.  Blocks; one thread, which is no shard's, from start()
  // until stop() is called.
  void look_at_disk();
  // The directory was removed or replaced, as far as the last look says.  Any thread.
  bool lost_directory() const { return lost_directory_; }

  // The constants; settings are each shard's (Shard::config()).
  const BrokerIdentity& identity() const { return context_.config; }
  const Clock& clock() const { return *context_.clock; }
  Random& random() { return *context_.random; }
  storage::Disk& disk() { return *context_.disk; }
  storage::Database& meta() { return *meta_; }
  storage::BucketStore& pending() { return *pending_; }  // It blocks: for a Background.
  storage::PendingCounts& pending_counts() { return pending_counts_; }  // Any thread.
  storage::OffsetStore& offset_store() { return *offset_store_; }       // Any thread.
  const RecoverySummary& recovery() const { return recovery_; }
  const std::shared_ptr<MemoryPool>& memory() const { return context_.memory; }  // Any thread.
  MonoTime started() const { return started_; }
  void journal_failed(const Error& error) { context_.on_failure(error); }

  std::size_t shard_count() const { return shards_.size(); }
  Shard& shard(std::size_t index) { return *shards_[index]; }
  Shard& shard_of(const TopicPartition& tp) { return *shards_[context_.shard_index_of(tp)]; }
  Shard& shard_of_group(std::string_view id) { return *shards_[context_.shard_index_of_group(id)]; }
  Topics& topics() { return *topics_; }            // On shard 0's thread.
  LiveSettings& settings() { return *settings_; }  // On shard 0's thread.
  const LiveSettings& settings() const { return *settings_; }
  LiveSecurity& live_security() { return *live_security_; }  // On shard 0's thread.
  // On that shard's thread.
  ShardSecurity& security(const Shard& shard) { return *security_[shard.index()]; }
  QuotaMeters& quota_meters() { return quota_meters_; }     // Any thread.
  FailedLogins& failed_logins() { return failed_logins_; }  // Any thread.
  // The key to the salts of users that do not exist: no client can compute them, and they stay the
  // same as those of users that do.
  const std::string& login_secret() const { return login_secret_; }
  // Hands every shard the catalog's image; in recovery, before the threads run.
  void publish_initial_topics();

  // Runs `work` (a callable that gives an awaitable) on `there` and comes back to the caller's
  // shard with its result.  Hops to one shard arrive in the order in which they were begun.
  // Give it a named callable, moved: g++ 12 destroys a temporary one twice (GCC bug 99576).
  template <typename F>
  auto on(Shard& here, Shard& there, F work) -> decltype(work()) {
    using Value = typename decltype(work())::value_type;
    if (&here == &there) co_return co_await work();
    if constexpr (std::is_void_v<Value>) {
      auto begun = run_there(std::move(work));
      co_await hop(there, std::move(begun));
    } else {
      std::optional<Value> value;
      auto begun = run_there_into(std::move(work), value);
      co_await hop(there, std::move(begun));
      co_return std::move(*value);
    }
  }

  // A block of sequence numbers for pending records, never given out before.  Returns on
  // `shard`'s thread when the block is durably reserved.
  void give_sequences(Shard& shard);
  // A producer id that was never given out before.  On shard 0's thread.
  boost::asio::awaitable<Result<ProducerId>> next_producer_id(
      std::shared_ptr<CancellationToken> token);

 private:
  Broker(BrokerSetup setup, storage::DataDirectory directory);

  // --- on(): Asio's part of a hop is long to compile, so there is one for all kinds of work.

  static boost::asio::awaitable<void> hop(Shard& there, boost::asio::awaitable<void>&& work);
  template <typename F>
  static boost::asio::awaitable<void> run_there(F work) {
    co_await work();
  }
  // `value` is in the frame that waits for the hop.
  template <typename F, typename Value>
  static boost::asio::awaitable<void> run_there_into(F work, std::optional<Value>& value) {
    value.emplace(co_await work());
  }

  // --- TopicsHost
  boost::asio::awaitable<void> publish_topics(
      std::shared_ptr<const storage::TopicsImage> image) override;
  boost::asio::awaitable<std::uint64_t> fence_topic(TopicId topic) override;
  void unfence_topic(const TopicId& topic, bool deleted) override;
  // --- SettingsHost
  boost::asio::awaitable<void> publish_settings(DynamicSettings dynamic) override;

  // --- SecurityHost
  boost::asio::awaitable<void> publish_security() override;

  Result<> open_stores();
  Result<BrokerConfig> config_with(const DynamicSettings& dynamic) const;
  void take_stored_settings();
  Result<> must_have_journals();
  Result<> recover();
  Result<> take_first_users();
  Result<> take_login_secret();
  Result<> count_pending();
  Result<> settle_journals(storage::Recovered& recovered);
  Result<bool> is_ahead_of_journals(const storage::Recovered& recovered);
  Result<> open_shards(const storage::Recovered& recovered);
  Result<> load_groups();
  void sequences_answered();
  DeadLetterRoutes dead_letter_routes();

  BrokerContext context_;  // Constant once recovery is done.
  SettingsTable* const settings_table_;
  OncePerTopic slips_logged_;
  const MonoTime started_;
  storage::DataDirectory directory_;
  std::optional<storage::DirectoryLock> log_lock_;  // Empty: log.dirs is below the data directory.
  std::unique_ptr<storage::Database> meta_;
  std::unique_ptr<storage::Catalog> catalog_;
  std::unique_ptr<storage::BucketStore> pending_;
  storage::PendingCounts pending_counts_;
  std::unique_ptr<storage::OffsetStore> offset_store_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::unique_ptr<Topics> topics_;
  std::unique_ptr<LiveSettings> settings_;
  std::unique_ptr<LiveSecurity> live_security_;
  std::vector<std::unique_ptr<ShardSecurity>> security_;  // One for each shard.
  QuotaMeters quota_meters_;
  FailedLogins failed_logins_;
  std::string login_secret_;
  std::shared_ptr<const BrokerConfig> newest_config_;  // On shard 0; null: as at the start.
  RecoverySummary recovery_;
  Sequence sequences_next_ = 1;     // On shard 0: the first that no block has.
  bool sequences_refused_ = false;  // On shard 0: and it was logged.
  std::size_t not_ready_ = 0;       // On shard 0: shards that wait for their first.
  std::move_only_function<void()> ready_;

  ProducerId producer_ids_next_ = 0;    // On shard 0: given out up to here,
  ProducerId producer_ids_end_ = 0;     // noted up to here,
  ProducerId producer_ids_noting_ = 0;  // being noted up to here.

  std::atomic<std::int64_t> disk_reserve_;  // The newest tarry.disk.reserve.bytes.
  std::atomic<bool> lost_directory_ = false;
  bool disk_was_wrong_ = false;  // At the last look_at_disk(), on its thread.
};

}  // namespace tarry::broker
