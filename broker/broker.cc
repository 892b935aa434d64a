#include "broker/broker.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/assert.h"
#include "base/background.h"
#include "base/log.h"
#include "broker/checkpoint/checkpointer.h"
#include "broker/context/durability_wait.h"
#include "broker/replay.h"
#include "broker/security/first_users.h"
#include "delay/tier_replay.h"
#include "storage/backup.h"
#include "storage/log_directory.h"
#include "storage/producer_states.h"
#include "storage/recovery.h"
#include "storage/store_generation.h"

namespace tarry::broker {
namespace {

namespace asio = boost::asio;

// A shard has a block of sequence numbers for itself, so that it asks nobody for one a record.
// 64 bits hold 2^32 blocks of this size.
constexpr Sequence sequences_per_block = Sequence{1} << 32;

// RocksDB writes its manifests when it opens, and may end the process when it cannot; the journals
// want a file each.  Deliveries alone go on with so little.
constexpr std::uint64_t bytes_to_start = 4 << 20;

// As large as Kafka's blocks.
constexpr ProducerId producer_ids_per_block = 1000;
const purgatory::Kind init_producer_id_kind{"init_producer_id"};
// The time for which clients wait for an answer by default.
constexpr std::chrono::seconds producer_ids_timeout{30};

std::error_code try_file_in(const std::filesystem::path& directory) {
  std::string name = (directory / ".tarry-XXXXXX").string();
  const int file = ::mkstemp(name.data());
  if (file < 0) return {errno, std::generic_category()};
  ::close(file);
  ::unlink(name.c_str());
  return {};
}

// The directory of log.dirs, which is made when the stores are open.  It is made and written here
// too, and what was made is taken away again: modes say little, because root may write in /proc by
// them, and a mount may be read-only.
Result<> check_writable(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code failed, ignored;
  const auto directory = fs::absolute(path, failed);
  std::vector<fs::path> missing;  // The deepest first.
  for (auto each = directory; !failed && each.has_relative_path() && !fs::exists(each, failed);
       each = each.parent_path())
    missing.push_back(each);
  if (!failed) fs::create_directories(directory, failed);
  if (!failed) failed = try_file_in(directory);
  for (const auto& each : missing) fs::remove(each, ignored);
  // A full disk may get room while the broker runs, and what is stored can be read meanwhile.
  if (!failed || failed == std::errc::no_space_on_device) return {};
  return fail(Errc::io, fmt::format("log.dirs={} cannot be written: {}; choose another directory, "
                                    "or let the user that runs Tarry write to it",
                                    path, failed.message()));
}

// Asked where the directory is or is going to be, before anything is written there.
Result<> check_space(storage::Disk& disk, const std::string& data_directory) {
  std::error_code ignored;
  auto there = std::filesystem::absolute(data_directory, ignored);
  while (!std::filesystem::exists(there, ignored) && there != there.root_path())
    there = there.parent_path();
  const auto free = disk.free_space(there);
  if (!free) return std::unexpected(free.error());
  if (*free >= bytes_to_start) return {};
  return fail(
      Errc::no_space,
      fmt::format(
          "{} has {} bytes free, but a start needs {}; free space on the disk; nothing was changed",
          data_directory, *free, bytes_to_start));
}

// Files that root has put into the directory are the common reason why some cannot be opened.
std::unexpected<Error> with_owner_advice(Error error, const std::string& data) {
  const std::string_view denied = std::strerror(EACCES);
  if (error.message.contains(denied) && error.message.contains(data)) {
    std::array<char, 1024> buffer{};
    passwd entry{}, *user = nullptr;
    const bool named =
        ::getpwuid_r(::geteuid(), &entry, buffer.data(), buffer.size(), &user) == 0 &&
        user != nullptr;
    error.message +=
        fmt::format("; all files must belong to the user that runs the broker: chown -R {}: {}",
                    named ? std::string(user->pw_name) : std::to_string(::geteuid()), data);
  }
  return std::unexpected(std::move(error));
}

// They win over what the operator reads in the file.
void log_dynamic(const DynamicSettings& dynamic) {
  std::string all;
  for (const auto& [key, value] : dynamic.stored())
    all += fmt::format("{}{}={}", all.empty() ? "" : ", ", key, printable(value));
  if (!all.empty())
    log_info(
        "broker",
        "settings that clients have changed override those of the file and the command line: {}",
        all);
}

}  // namespace

Broker::Broker(BrokerSetup setup, storage::DataDirectory directory)
    : settings_table_(setup.settings),
      started_(setup.clock->mono()),
      directory_(std::move(directory)),
      quota_meters_({.count = static_cast<std::size_t>(setup.config.quota_windows),
                     .length = std::chrono::seconds(setup.config.quota_window_seconds)}),
      disk_reserve_(setup.config.disk_reserve_bytes) {
  context_.config = std::move(setup.config);
  context_.clock = setup.clock;
  context_.random = setup.random;
  context_.disk = setup.disk;
  context_.on_failure = std::move(setup.on_failure);
  context_.shard_count = setup.shards.size();
  context_.slips_logged = &slips_logged_;
  context_.memory =
      std::make_shared<MemoryPool>(static_cast<std::size_t>(context_.config.memory_bytes));
}

Broker::~Broker() = default;

Result<std::unique_ptr<Broker>> Broker::open(BrokerSetup setup) {
  if (const auto& logs = setup.config.log_directory; !logs.empty()) {
    if (auto usable = check_writable(logs); !usable) return std::unexpected(usable.error());
    // Before a data directory is made.
    if (auto ours = storage::check_log_directory(*setup.disk, setup.config.data_directory, logs);
        !ours)
      return std::unexpected(ours.error());
  }
  if (auto space = check_space(*setup.disk, setup.config.data_directory); !space)
    return std::unexpected(space.error());
  auto directory =
      storage::DataDirectory::open(*setup.disk, setup.config.data_directory, *setup.random);
  if (!directory) return std::unexpected(directory.error());
  const auto logs =
      setup.config.log_directory.empty() ? directory->logs() : setup.config.log_directory;
  auto log_lock = storage::take_log_directory(*setup.disk, directory->path(), logs, *setup.random);
  if (!log_lock) return std::unexpected(log_lock.error());
  // Both directories are locked, so no backup of them can be running.
  if (auto removed = storage::remove_backup_leftovers(directory->path(), logs); !removed)
    return std::unexpected(removed.error());
  auto shards = setup.shards;
  std::unique_ptr<Broker> broker(new Broker(std::move(setup), std::move(*directory)));
  if (*log_lock) broker->log_lock_.emplace(std::move(**log_lock));
  const std::string data = broker->directory_.path();
  if (auto opened = broker->open_stores(); !opened) return with_owner_advice(opened.error(), data);
  for (auto& shard : shards) {
    broker->shards_.push_back(std::make_unique<Shard>(
        broker->context_, std::move(shard),
        [&b = *broker](Shard& wanting) { b.give_sequences(wanting); },
        [&b = *broker](Shard& here, TopicPartition from, Buffer batch,
                       std::move_only_function<void(Result<>)> done) {
          write_dead_letters(b.dead_letter_routes(), here, from, std::move(batch), std::move(done));
        }));
  }
  if (auto recovered = broker->recover(); !recovered)
    return with_owner_advice(recovered.error(), data);
  return broker;
}

Result<> Broker::open_stores() {
  auto& config = context_.config;
  config.data_directory = directory_.path();
  if (config.log_directory.empty()) config.log_directory = directory_.logs();
  config.cluster_id = directory_.cluster_id();
  config.start_id = context_.random->topic_id().text();
  config.node_id = directory_.node_id();

  using storage::BucketStore, storage::Database;
  const bool is_new = directory_.is_new();
  // First: a directory of a former format is refused here, and nothing has been changed.
  BucketStore::Limits limits;
  limits.remember = config.delay_remember;
  const auto pending_path = directory_.pending_store();
  auto pending =
      is_new ? BucketStore::make(pending_path, limits) : BucketStore::open(pending_path, limits);
  if (!pending) return std::unexpected(pending.error());
  pending_ = std::move(*pending);
  const auto meta_path = directory_.meta_database();
  auto meta = is_new ? Database::make(meta_path) : Database::open(meta_path);
  if (!meta) return std::unexpected(meta.error());
  meta_ = std::move(*meta);
  // A store that is older than db/meta knows has lost what nothing else has.
  if (auto newest = storage::check_generation(*meta_, pending_->generation(), pending_path);
      !newest)
    return newest;
  // A log makes its own directory and none above it.  A disk that is full may get room later.
  if (auto made = context_.disk->make_directories(config.log_directory);
      !made && made.error().code != Errc::no_space)
    return made;

  catalog_ = std::make_unique<storage::Catalog>(*meta_);
  if (auto loaded = catalog_->load(); !loaded) return loaded;
  offset_store_ = std::make_unique<storage::OffsetStore>(*meta_);
  context_.meta = meta_.get();
  context_.pending = pending_.get();
  context_.pending_counts = &pending_counts_;
  context_.offset_store = offset_store_.get();
  take_stored_settings();
  return {};
}

// --- Settings that were changed while the broker ran

Result<BrokerConfig> Broker::config_with(const DynamicSettings& dynamic) const {
  auto config = settings_table_->config_with(dynamic);
  if (!config) return config;
  // The identity comes from the directory, and no setting changes it.
  static_cast<BrokerIdentity&>(*config) = identity();
  config->dynamic = dynamic;
  return config;
}

// A setting that another version has left and this one does not accept must not keep the broker
// from starting.
void Broker::take_stored_settings() {
  if (settings_table_ == nullptr) return;
  auto stored = DynamicSettings::of_stored(catalog_->broker_configs());
  const auto keep_valid = [this](storage::Configs& configs) {
    std::erase_if(configs, [this](const auto& each) {
      const auto& [key, value] = each;
      const auto& entries = context_.config.entries;
      const auto entry = std::ranges::find(entries, key, &ConfigEntry::name);
      const bool valid = entry != entries.end() && entry->is_dynamic &&
                         settings_table_->canonical(key, value).has_value();
      if (!valid)
        log_error("broker",
                  "the setting {}={}, changed by a client, is no longer valid and is ignored",
                  printable(key), printable(value));
      return !valid;
    });
  };
  keep_valid(stored.of_broker);
  keep_valid(stored.of_cluster);
  if (stored == context_.config.dynamic) return;
  auto config = config_with(stored);
  if (!config) {
    log_error("broker", "the settings that clients have changed are ignored: {}",
              config.error().message);
    stored = {};
    config = config_with(stored);
    TARRY_ASSERT(config.has_value(),
                 "the settings of the file and the command line are valid together");
  }
  context_.config = std::move(*config);
  disk_reserve_ = context_.config.disk_reserve_bytes;
  for (auto& shard : shards_) shard->set_config(context_.config);
}

asio::awaitable<void> Broker::publish_settings(DynamicSettings dynamic) {
  auto config = config_with(dynamic);
  TARRY_ASSERT(config.has_value(), "settings are checked before they are written");
  newest_config_ = std::make_shared<const BrokerConfig>(std::move(*config));
  disk_reserve_ = newest_config_->disk_reserve_bytes;
  // A later change may overtake this one at a shard; so each hop carries the newest.
  for (auto& shard : shards_) {
    auto work = [&shard = *shard, newest = newest_config_]() -> asio::awaitable<void> {
      co_await shard.change_config(newest);
    };
    co_await on(*shards_[0], *shard, std::move(work));
  }
  settings_table_->changed(newest_config_->dynamic);
}

// They stand in db/meta alone, which is why it is flushed before their file goes.
Result<> Broker::take_first_users() {
  const auto file = directory_.path() + "/users.add";
  std::error_code none;
  if (!std::filesystem::exists(file, none)) return {};
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  // The file may be another user's, who wrote it for this broker.
  if (!in.is_open() || in.bad())
    return fail(Errc::io, fmt::format("{}: it cannot be read; give it to the user that runs the "
                                      "broker, or remove it",
                                      file));
  const auto wrong = [&](const Error& error) {
    return fail(
        error.code,
        fmt::format("{}: {}; remove the file, or create it again with `tarry user add --data`",
                    file, error.message));
  };
  const auto rows = parse_first_users(text);
  if (!rows) return wrong(rows.error());
  for (const auto& [key, value] : *rows)
    if (auto taken = catalog_->apply(storage::SecurityRowSet{key, value}); !taken) return taken;
  if (auto flushed = meta_->flush(); !flushed) return flushed;
  log_info("broker", "{} users were taken from {}", rows->size(), file);
  if (!std::filesystem::remove(file, none))
    return wrong({Errc::io, "it cannot be removed: " + none.message()});
  return {};
}

// Makes it at the first start.  It stands in db/meta alone, as the first users do.
Result<> Broker::take_login_secret() {
  const std::string key(SecurityImage::login_secret_key);
  if (const auto kept = catalog_->security_rows().find(key);
      kept != catalog_->security_rows().end()) {
    login_secret_ = kept->second;
    return {};
  }
  for (int i = 0; i < 4; ++i) login_secret_ += std::to_string(random().u64());
  if (auto taken = catalog_->apply(storage::SecurityRowSet{key, login_secret_}); !taken)
    return taken;
  return meta_->flush();
}

void Broker::publish_initial_topics() {
  const auto image = catalog_->image();
  for (auto& shard : shards_) shard->set_topics(image);
}

// A directory that is lost as a whole, by a mount that is missing or a mistake, is often still to
// be had.  An empty one says that the operator wants to go on without.
Result<> Broker::must_have_journals() {
  const std::string root = directory_.journal_root();
  const auto written_by = pending_->shards();
  if (!written_by) return std::unexpected(written_by.error());
  if (directory_.is_new()) return {};
  // If no broker has ever run here, as after `tarry import-log`, there were none.  The directory is
  // made before the store knows of any, so that no crash leaves it missing.
  if (*written_by == 0) return disk().make_directories(root);
  const auto entries = disk().list(root);
  if (entries || entries.error().code != Errc::not_found) return {};
  return fail(Errc::not_found,
              fmt::format("{} is missing; put it back, or restore a backup; to start without the "
                          "records that only the journals held, create it as an empty directory "
                          "(mkdir {})",
                          root, root));
}

// The journals are replayed into stores and logs, settled if another number of shards wrote them,
// and only then opened for new records.
Result<> Broker::recover() {
  if (auto there = must_have_journals(); !there) return there;
  // The replay opens partitions by what the shards know of the topics.
  publish_initial_topics();
  Replay replay(context_, shards_, *catalog_);
  delay::TierReplay pending(*pending_, clock().wall(),
                            static_cast<std::size_t>(context_.config.delay_memory_bytes),
                            [this] { return flush_pending_store(context_); });
  auto recovered = storage::recover(disk(), directory_.journal_root(), *catalog_, pending,
                                    *offset_store_, replay);
  if (!recovered) return std::unexpected(recovered.error());
  // Before the checkpoints that release these batches from the journals.
  if (auto kept = replay.sync_kept(); !kept) return kept;
  if (auto taken = take_first_users(); !taken) return taken;
  if (auto taken = take_login_secret(); !taken) return taken;
  take_stored_settings();
  const auto written_by = pending_->shards();
  if (!written_by) return std::unexpected(written_by.error());
  // The operator may have moved them away, as the error about damage says; or somebody else has.
  // If no broker has ever run, as after `tarry import-log`, there were none.
  if (!directory_.is_new() && *written_by > 0 &&
      std::ranges::none_of(recovered->journals,
                           [](const auto& journal) { return journal.second.exists; })) {
    log_warn("broker",
             "{}: the journal is missing, although the data directory is not new: records that "
             "only the journal held are lost",
             directory_.journal_root());
  }
  publish_initial_topics();
  // If the journal has not replaced a broken end by now, records that were synced are lost.
  for (auto& shard : shards_) {
    for (const auto& [tp, partition] : shard->partitions().all()) partition->fence_if_damaged();
  }
  if (auto counted = count_pending(); !counted) return counted;
  recovery_ = {recovered->journals.size(), recovered->records, recovered->bytes,
               pending_counts_.total()};
  if (auto settled = settle_journals(*recovered); !settled) return settled;
  if (auto opened = open_shards(*recovered); !opened) return opened;
  sequences_next_ = catalog_->next_sequence();
  producer_ids_next_ = producer_ids_end_ = catalog_->next_producer_id();
  topics_ = std::make_unique<Topics>(*shards_[0], *this, *catalog_);
  if (settings_table_ != nullptr) {
    settings_table_->changed(context_.config.dynamic);
    log_dynamic(context_.config.dynamic);
  }
  live_security_ = std::make_unique<LiveSecurity>(*shards_[0], *this, *catalog_);
  const auto image = std::make_shared<const SecurityImage>(catalog_->security_rows());
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    security_.push_back(std::make_unique<ShardSecurity>());
    security_.back()->image = image;
  }
  settings_ = std::make_unique<LiveSettings>(*shards_[0], *this, *catalog_, settings_table_);
  if (auto loaded = load_groups(); !loaded) return loaded;
  // Last: from now on what is missing in the directory is damage.
  if (directory_.is_new()) return directory_.created();
  return {};
}

Result<> Broker::count_pending() {
  const auto totals = pending_->totals();
  if (!totals) return std::unexpected(totals.error());
  for (const auto& [topic, count] : *totals) pending_counts_.set(topic, count);
  auto uses = pending_->uses();
  if (!uses) return std::unexpected(uses.error());
  pending_counts_.set(std::move(*uses));
  return {};
}

// The store has an epoch for each number of shards, so that the places in its journals can be
// compared.  An epoch ends when everything in its journals is durable elsewhere, and the next one
// is known durably before its first record; whatever a crash cuts off, a start sees which it was.
Result<> Broker::settle_journals(storage::Recovered& recovered) {
  const auto count = static_cast<std::uint16_t>(shards_.size());
  const auto before = pending_->shards();
  if (!before) return std::unexpected(before.error());
  const auto is_ahead = is_ahead_of_journals(recovered);
  if (!is_ahead) return std::unexpected(is_ahead.error());
  const bool is_other = *before != count || *is_ahead;
  if (recovered.other_shards(count) || (is_other && !recovered.journals.empty())) {
    for (auto& shard : shards_) {
      if (auto flushed = shard->checkpointer().flush_now(); !flushed) return flushed;
    }
    if (auto settled =
            storage::settle(disk(), directory_.journal_root(), *meta_, *pending_, count, recovered);
        !settled) {
      return settled;
    }
  }
  if (!is_other) return {};
  if (*is_ahead) {  // The same number is another epoch behind one that nobody has.
    if (auto none = pending_->epoch(0); !none) return std::unexpected(none.error());
  }
  if (auto epoch = pending_->epoch(count); !epoch) return std::unexpected(epoch.error());
  return pending_->flush();
}

// A journal that somebody took away begins again at 0, and what it reports then would look as if
// the store had it already.
Result<bool> Broker::is_ahead_of_journals(const storage::Recovered& recovered) {
  const auto shards = pending_->shards();
  if (!shards) return std::unexpected(shards.error());
  if (*shards == 0) return false;
  const auto epoch = pending_->epoch(*shards);
  if (!epoch) return std::unexpected(epoch.error());
  for (std::uint16_t shard = 0; shard < *shards; ++shard) {
    const auto places = pending_->places(shard);
    if (!places) return std::unexpected(places.error());
    const Lsn end = recovered.journal(shard).end;
    for (const auto& [home, place] : *places)
      if (place.epoch == *epoch && place.lsn >= end) return true;
  }
  return false;
}

Result<> Broker::open_shards(const storage::Recovered& recovered) {
  for (auto& shard : shards_) {
    if (auto opened = shard->open_journal(recovered.journal(shard->index())); !opened)
      return opened;
    if (auto opened = shard->engine().open(); !opened) return opened;
  }
  return {};
}

Result<> Broker::load_groups() {
  const auto topics = catalog_->image();
  return offset_store_->load([&](const TopicId& id) { return topics->find(id) != nullptr; },
                             [&](const storage::OffsetStore::StoredGroup& group) {
                               return shard_of_group(group.id).groups().restore(group);
                             });
}

void Broker::start(std::move_only_function<void()> ready) {
  // Each engine asks for a block of sequence numbers at its start; `ready` is called when all have
  // been answered.
  not_ready_ = shards_.size();
  ready_ = std::move(ready);
  for (auto& shard : shards_) {
    asio::post(shard->executor(), [shard = shard.get()] { shard->start(); });
  }
}

void Broker::stop(std::move_only_function<void()> then) {
  // Shard 0 last: what the others still want from it (blocks, topics) is in its journal first.
  auto rest = std::make_shared<std::move_only_function<void(std::size_t)>>();
  *rest = [this, rest, then = std::move(then)](std::size_t left) mutable {
    if (left == 0) {
      then();
      *rest = nullptr;
      return;
    }
    Shard& shard = *shards_[left - 1];
    asio::post(shard.executor(), [rest, left, &shard] {
      shard.stop([rest, left, &shard] {
        asio::post(shard.executor(), [rest, left] { (*rest)(left - 1); });
      });
    });
  };
  (*rest)(shards_.size());
}

// --- The disk

void Broker::look_at_disk() {
  const auto in_place = directory_.check_in_place();
  // Not log.dirs: while that hangs, this thread would watch nothing, and could not be ended.
  const std::string& data = identity().data_directory;
  const auto free = Background::caught([&] { return disk().free_space(data); }).value_or(0);
  const DiskSpace space{.of_data = free, .least = free, .least_of = data};
  const bool lost = !in_place;
  if (lost_directory_.exchange(lost) != lost) {
    if (lost) {
      log_error("broker",
                "{}; the broker accepts no records, because the next start would not find them: "
                "put the directory back, or stop the broker, restore a backup and start again",
                in_place.error().message);
    } else {
      log_info("broker", "the data directory {} is back: the broker accepts records",
               identity().data_directory);
    }
  }
  const bool is_wrong = lost || space.least < static_cast<std::uint64_t>(disk_reserve_.load());
  const bool is_news = std::exchange(disk_was_wrong_, is_wrong) || is_wrong;
  const bool has_other_logs = !storage::is_within(identity().log_directory, data);
  if (!is_news && !has_other_logs) return;
  for (auto& shard : shards_) {
    asio::post(shard->executor(), [shard = shard.get(), space, lost, is_news] {
      auto& free_space = shard->free_space();
      if (is_news) {
        free_space.seen(space, lost);
      } else {
        free_space.look();
      }
    });
  }
}

// --- Publishing topics to the shards

asio::awaitable<void> Broker::hop(Shard& there, asio::awaitable<void>&& work) {
  return asio::co_spawn(there.executor(), std::move(work), asio::use_awaitable);
}

asio::awaitable<void> Broker::publish_topics(std::shared_ptr<const storage::TopicsImage> image) {
  for (auto& shard : shards_) {
    auto work = [&shard = *shard, image]() -> asio::awaitable<void> {
      co_await shard.change_topics(image);
    };
    co_await on(*shards_[0], *shard, std::move(work));
  }
}

asio::awaitable<void> Broker::publish_security() {
  // On the pool: an image of a hundred thousand rules takes a tenth of a second, to make and to
  // destroy.
  auto make = [this] { return std::make_shared<const SecurityImage>(catalog_->security_rows()); };
  const auto image = co_await shards_[0]->blocking(std::move(make));
  auto before = security(*shards_[0]).image;
  for (auto& shard : shards_) {
    auto work = [this, &shard = *shard, image]() -> asio::awaitable<void> {
      security(shard).image = image;
      co_return;
    };
    co_await on(*shards_[0], *shard, std::move(work));
  }
  shards_[0]->background().run([before = std::move(before)] {}, [] {});
}

asio::awaitable<std::uint64_t> Broker::fence_topic(TopicId topic) {
  std::uint64_t arriving = 0;
  for (auto& shard : shards_) {
    auto work = [&shard = *shard, topic]() -> asio::awaitable<std::size_t> {
      // Refused first, so that nothing more arrives once it is counted.
      shard.set_topic_refused(topic, true);
      co_return shard.engine().arriving_of(topic);
    };
    arriving += co_await on(*shards_[0], *shard, std::move(work));
  }
  co_return arriving;
}

void Broker::unfence_topic(const TopicId& topic, bool deleted) {
  for (auto& shard : shards_) {
    asio::post(shard->executor(), [&shard = *shard, topic, deleted] {
      shard.set_topic_refused(topic, false);
      // Once more, for what it has seen of the topic's records until they were dropped.
      if (deleted) shard.engine().topic_deleted(topic);
    });
  }
}

// --- Ids that are given out in blocks

void Broker::give_sequences(Shard& shard) {
  Shard& first = *shards_[0];
  asio::post(first.executor(), [this, &first, &shard] {
    // Taken before it is durable, so that a shard that asks meanwhile gets another block.
    const Sequence begin = sequences_next_;
    const Sequence end = begin + sequences_per_block;
    sequences_next_ = end;
    storage::JournalTransaction transaction(storage::Reserve::use);
    transaction.add(storage::SequencesGiven{end});
    transaction.on_durable([this, begin, end, &shard] {
      if (const auto applied = catalog_->apply(storage::SequencesGiven{end}); !applied)
        return journal_failed(applied.error());
      asio::post(shard.executor(),
                 [&shard, begin, end] { shard.engine().give_sequences(begin, end); });
      sequences_answered();
    });
    const auto lsn = first.commit(std::move(transaction));
    if (lsn) {
      sequences_refused_ = false;
      return;
    }
    // The engine answers `busy`, and asks again with every record that wants one.
    if (!std::exchange(sequences_refused_, true)) {
      log_warn("broker", "shard {} cannot reserve sequence numbers for delayed records: {}",
               shard.index(), lsn.error().message);
    }
    asio::post(shard.executor(), [&shard] { shard.engine().sequences_refused(); });
    sequences_answered();
  });
}

DeadLetterRoutes Broker::dead_letter_routes() {
  return {*shards_[0], *topics_,
          [this](const TopicPartition& tp) -> Shard& { return shard_of(tp); }};
}

// An engine asks for one block at a time, so at first each answer is for another shard.
void Broker::sequences_answered() {
  if (not_ready_ > 0 && --not_ready_ == 0) std::exchange(ready_, nullptr)();
}

asio::awaitable<Result<ProducerId>> Broker::next_producer_id(
    std::shared_ptr<CancellationToken> token) {
  // Others may have used up the block while this request waited for it.
  while (producer_ids_next_ == producer_ids_end_) {
    // Noted first, given out then.  A caller that comes meanwhile notes a block of its own, which
    // is only a waste.
    const ProducerId begin = std::max(producer_ids_end_, producer_ids_noting_);
    const ProducerId end = begin + producer_ids_per_block;
    producer_ids_noting_ = end;
    storage::JournalTransaction transaction;
    transaction.add(storage::ProducerIdsGiven{end});
    auto noted = std::make_shared<Result<>>();
    transaction.on_durable([this, begin, end, noted] {
      *noted = catalog_->apply(storage::ProducerIdsGiven{end});
      if (!*noted) return;
      producer_ids_next_ = begin;
      producer_ids_end_ = end;
    });
    const auto lsn = shards_[0]->commit(std::move(transaction));
    if (!lsn) co_return std::unexpected(lsn.error());
    if (!co_await wait_until_durable(*shards_[0], *lsn, init_producer_id_kind, producer_ids_timeout,
                                     *token)) {
      co_return fail(Errc::stopped,
                     "the journal did not make the new producer ids durable in time");
    }
    if (!*noted) co_return std::unexpected(noted->error());
  }
  co_return producer_ids_next_++;
}

}  // namespace tarry::broker
