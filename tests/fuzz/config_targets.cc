// What an operator or a client with the right to do so writes as text, and what the databases and
// small files keep of it.

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <rocksdb/write_batch.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/token_proof.h"
#include "broker/security/first_users.h"
#include "broker/security/quota_table.h"
#include "broker/settings/topic_config.h"
#include "server/address.h"
#include "server/config.h"
#include "server/config_keys.h"
#include "server/listener_config.h"
#include "server/principal_rules.h"
#include "server/setting.h"
#include "server/tls_settings.h"
#include "storage/database.h"
#include "storage/log.h"
#include "storage/offset_store.h"
#include "storage/producer_states.h"
#include "storage/rocks.h"
#include "tests/fuzz/targets.h"
#include "tests/given.h"
#include "tests/memory_disk.h"
#include "tests/storage/scratch.h"
#include "web/access_tokens.h"

namespace tarry::fuzz {

namespace {

// A pattern of a rule may be slow on purpose: whoever writes it may do anything anyway.
constexpr std::size_t max_pattern_bytes = 64;

void try_listeners(Input& from) {
  server::ListenerKeys keys;
  auto listeners = server::parse_listeners(as_text(from.piece()));
  // A broker whose listeners cannot be read does not start.
  if (!listeners) return;
  keys.listeners = std::move(*listeners);
  if (auto advertised = server::parse_advertised_listeners(as_text(from.piece())))
    keys.advertised = std::move(*advertised);
  if (auto protocols = server::parse_protocol_map(as_text(from.piece())))
    keys.protocols = std::move(*protocols);
  keys.inter_broker = as_text(from.piece());
  const auto name = as_text(from.piece());
  if (const auto split = server::split_listener_key(name))
    keys.of_listener[std::string(split->first)][std::string(split->second)] = as_text(from.rest());
  const auto resolved = server::resolve_listeners(keys);
  if (resolved) TARRY_ASSERT(!resolved->empty(), "a broker listens somewhere");
}

void try_principal_rules(Input& from) {
  const Bytes text = from.rest();
  if (text.size() > max_pattern_bytes) return;
  const bool good = server::check_principal_rules(as_text(text)).has_value();
  const auto parsed = server::PrincipalRules::parse(as_text(text));
  TARRY_ASSERT(parsed.has_value() == good, "what is checked is what is used");
  if (parsed) (void)parsed->apply("CN=a,OU=b");
}

// As it is set while the broker runs.
void try_setting(Input& from) {
  const auto* key = server::find_setting_key(as_text(from.piece()));
  if (key == nullptr) return;
  const auto value = as_text(from.rest());
  server::Config scratch;
  if (!key->apply(scratch, value)) return;
  TARRY_ASSERT(key->apply(scratch, key->canonical(value)).has_value(), "a value means itself");
}

void try_topic_config(Input& from) {
  const auto keys = broker::topic_config_keys();
  storage::Configs own;
  while (!from.empty() && own.size() < 4) {
    const auto& key = keys[from.below(keys.size())];
    own.insert_or_assign(std::string(key.name), std::string(as_text(from.piece())));
  }
  const auto settled = broker::settle_topic_configs({}, own);
  if (!settled) return;
  TARRY_ASSERT(broker::make_topic_config({}, *settled).has_value(), "what is stored can be used");
  const auto again = broker::settle_topic_configs({}, *settled);
  TARRY_ASSERT(again && *again == *settled, "a value means itself");
}

void try_quota_row(Input& from) {
  broker::QuotaTable table;
  const auto key = as_text(from.piece());
  if (!table.take_row(key, as_text(from.rest()))) return;
  for (const auto& [entity, limits] : table.all()) {
    for (std::size_t kind = 0; kind < broker::quota_kinds; ++kind) {
      if (!limits[kind]) continue;
      broker::QuotaTable again;
      const auto which = static_cast<broker::QuotaKind>(kind);
      TARRY_ASSERT(again.take_row(broker::QuotaTable::row_key(entity, which),
                                  broker::QuotaTable::row_value(*limits[kind])),
                   "a quota is its row");
      TARRY_ASSERT(again.is_set(entity, which), "and the same one");
    }
  }
}

void try_access(Input& from) {
  const auto nonce = as_text(from.piece());
  if (is_proof_nonce(nonce)) {
    const auto proof = token_proof(as_text(from.piece()), nonce, as_text(from.piece()));
    TARRY_ASSERT(same_secret(proof, proof) && proof.size() == 64, "a proof is a digest");
  }
  const auto holders = web::AccessTokens::parse(as_text(from.rest()));
  if (!holders) return;
  TARRY_ASSERT(holders->size() <= web::AccessTokens::max_holders, "there is a bound");
  for (const auto& holder : *holders)
    TARRY_ASSERT(!holder.name.empty(), "who has a token is named");
}

// One database for all runs: an empty one takes milliseconds.
storage::Database& scratch_database() {
  static const storage::ScratchDirectory directory;
  static const auto database = storage::Database::make(directory.path("meta"));
  TARRY_ASSERT(database.has_value(), "a database can be made");
  return **database;
}

// Puts one row where nothing else is, has it read, and removes it.
template <typename Read>
void with_row(std::size_t family, Bytes key, Bytes value, Read read) {
  auto& rocks = scratch_database().rocks();
  const auto slice = [](Bytes bytes) {
    return rocksdb::Slice(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  rocksdb::WriteBatch put, remove;
  put.Put(rocks.family(family), slice(key), slice(value));
  remove.Delete(rocks.family(family), slice(key));
  TARRY_ASSERT(rocks.write(put).has_value(), "a row can be written");
  read();
  TARRY_ASSERT(rocks.write(remove).has_value(), "and removed");
}

void try_producer_row(Input& from) {
  const TopicPartition partition{storage::test_topic(1), 3};
  Buffer key;
  append_bytes(key, partition.topic.bytes);
  append_be(key, partition.partition);
  append_bytes(key, from.take(8));
  const Bytes value = from.rest();
  with_row(storage::meta_family::producers, key, value, [&] {
    auto rows = storage::load_producer_states(scratch_database(), partition);
    if (!rows) return;
    storage::ProducerStates states;
    states.restore(std::move(*rows));
    TARRY_ASSERT(states.size() <= 1, "a row is one producer");
    (void)states.check(0, 0, 0, 1);
    (void)states.changes(0);
  });
}

void try_offset_row(Input& from) {
  const bool is_group = (from.u8() & 1) != 0;
  const Bytes key = from.piece();
  const Bytes value = from.rest();
  with_row(is_group ? storage::meta_family::groups : storage::meta_family::offsets, key, value, [] {
    storage::OffsetStore store(scratch_database());
    std::size_t offsets = 0;
    (void)store.load([](const TopicId&) { return true; },
                     [&](const storage::OffsetStore::StoredGroup& group) -> Result<> {
                       offsets += group.offsets.size();
                       return {};
                     });
    TARRY_ASSERT(offsets <= 1, "a row is one offset");
  });
}

// partition.metadata and the note of the log's start.
void try_small_files(Input& from) {
  SeededRandom random(1);
  storage::MemoryDisk disk(random);
  const std::string directory = "logs/t-0";
  TARRY_ASSERT(disk.make_directories(directory).has_value(), "there is room");
  for (const std::string_view name :
       {storage::partition_metadata_name, storage::start_offset_name}) {
    const Bytes bytes = from.piece();
    if (bytes.empty()) continue;
    TARRY_ASSERT(
        storage::replace_file(disk, directory + "/" + std::string(name), bytes).has_value(),
        "there is room");
  }
  (void)storage::Log::open(disk, directory, storage::test_topic(1), {});
}

}  // namespace

void fuzz_config(Bytes input) {
  Input from(input);
  switch (from.u8() % 9) {
    case 0:
      return try_listeners(from);
    case 1:
      return try_principal_rules(from);
    case 2:
      (void)server::parse_host_port(as_text(from.rest()));
      return;
    case 3:
      (void)broker::parse_first_users(as_text(from.rest()));
      return;
    case 4:
      return try_topic_config(from);
    case 5:
      return try_quota_row(from);
    case 6:
      return try_access(from);
    case 7:
      return try_setting(from);
    default: {
      const Json json = parse_json(as_text(from.rest()));
      if (!json.is_discarded())
        TARRY_ASSERT(!parse_json(text_of(json)).is_discarded(), "what is written can be read");
    }
  }
}

void fuzz_stored(Bytes input) {
  Input from(input);
  switch (from.u8() % 3) {
    case 0:
      return try_producer_row(from);
    case 1:
      return try_offset_row(from);
    default:
      return try_small_files(from);
  }
}

}  // namespace tarry::fuzz
