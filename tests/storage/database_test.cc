#include "storage/database.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "scratch.h"
#include "storage/bucket_store.h"
#include "storage/rocks.h"

namespace tarry::storage {
namespace {

namespace fs = std::filesystem;

void put(Database& database, std::size_t family, const std::string& key, const std::string& value) {
  rocksdb::WriteBatch batch;
  batch.Put(database.rocks().family(family), key, value);
  REQUIRE(database.rocks().write(batch).has_value());
}

Result<bool> has(Database& database, std::size_t family, const std::string& key) {
  rocksdb::PinnableSlice value;
  return database.rocks().get(family, key, value);
}

// A database with something in it, closed.
std::string filled(const ScratchDirectory& scratch) {
  const std::string path = scratch.path("db/meta");
  auto made = Database::make(path);
  REQUIRE(made.has_value());
  for (int i = 0; i < 2000; ++i)
    put(**made, meta_family::producers, "key " + std::to_string(i), std::string(100, 'v'));
  REQUIRE((*made)->flush().has_value());
  return path;
}

fs::path file_that(const std::string& directory, const std::string& name_part) {
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.path().filename().string().find(name_part) != std::string::npos) return entry.path();
  FAIL("no file ", name_part);
  return {};
}

// Names and bytes of all that counts: RocksDB's info log and lock file do not.
std::map<std::string, std::string> counted_rows(const std::string& directory) {
  auto out = contents(directory);
  std::erase_if(out, [](const auto& file) {
    return file.first.find("LOG") != std::string::npos || file.first.ends_with("LOCK");
  });
  return out;
}

TEST_SUITE("database") {
  TEST_CASE("a crash keeps the flushed writes and nothing else") {
    ScratchDirectory scratch;
    auto made = Database::make(scratch.path("db"));
    REQUIRE(made.has_value());
    put(**made, meta_family::producers, "kept", "1");
    REQUIRE((*made)->flush().has_value());
    put(**made, meta_family::producers, "lost", "1");
    fs::copy(scratch.path("db"), scratch.path("crashed"), fs::copy_options::recursive);

    for (const std::string& path : {scratch.path("crashed"), scratch.path("db")}) {
      made->reset();
      auto opened = Database::open(path);
      REQUIRE(opened.has_value());
      CHECK(*has(**opened, meta_family::producers, "kept"));
      CHECK_FALSE(*has(**opened, meta_family::producers, "lost"));
    }
  }

  TEST_CASE(
      "the writes of one batch survive in both column families or in neither, whatever RocksDB "
      "flushed") {
    ScratchDirectory scratch;
    const Database::Limits small{.write_buffer_bytes = 64 << 10};
    auto made = Database::make(scratch.path("db"), small);
    REQUIRE(made.has_value());
    for (int round = 0; round < 4; ++round) {
      for (int i = 0; i < 1500; ++i) {
        const std::string key = std::to_string(round * 10'000 + i);
        rocksdb::WriteBatch batch;
        batch.Put((*made)->rocks().family(meta_family::producers), key, std::string(200, 'p'));
        batch.Put((*made)->rocks().family(meta_family::offsets), key, "o");
        REQUIRE((*made)->rocks().write(batch).has_value());
      }
      // Killed here; buffers that ran full were flushed before, nobody asked for it.
      made->reset();
      made = Database::open(scratch.path("db"), small);
      REQUIRE(made.has_value());
      int kept = 0;
      for (int i = 0; i < 1500; ++i) {
        const std::string key = std::to_string(round * 10'000 + i);
        const bool there = *has(**made, meta_family::producers, key);
        CHECK(there == *has(**made, meta_family::offsets, key));
        kept += there ? 1 : 0;
      }
      CHECK(kept > 0);     // Else this has tested nothing:
      CHECK(kept < 1500);  // some were flushed and some were not.
    }
  }

  TEST_CASE("another format version is refused before anything is changed") {
    ScratchDirectory scratch;
    const std::string path = scratch.path("db");
    {
      auto made = Database::make(path);
      REQUIRE(made.has_value());
      Rocks& rocks = (*made)->rocks();
      Family* other = nullptr;
      REQUIRE(rocks.db->CreateColumnFamily({}, "tarry-meta-3", &other).ok());
      rocks.families.push_back(other);
      REQUIRE((*made)->flush().has_value());
    }
    const auto before = contents(path);
    const auto opened = Database::open(path);
    REQUIRE_FALSE(opened.has_value());
    CHECK(opened.error().code == Errc::unsupported);
    CHECK(opened.error().message.find(path) != std::string::npos);
    CHECK(opened.error().message.find("tarry-meta-3") != std::string::npos);
    CHECK(opened.error().message.find("start the version of Tarry that wrote it") !=
          std::string::npos);
    CHECK(contents(path) == before);
  }

  TEST_CASE(
      "db/meta of format 1 gets the missing parts and keeps the others, wherever it stopped") {
    // A crash may leave none, one, or all of the new column families.
    for (const std::vector<std::string>& made :
         {std::vector<std::string>{}, {"groups"}, {"groups", "offsets", "tarry-meta-2"}}) {
      ScratchDirectory scratch;
      const std::string path = scratch.path("db/meta");
      {
        auto meta = Database::make(path);
        REQUIRE(meta.has_value());
        put(**meta, meta_family::producers, "kept", "1");
        REQUIRE((*meta)->flush().has_value());
      }
      {  // As format 1 had it.
        rocksdb::DB* db = nullptr;
        std::vector<std::string> names;
        REQUIRE(rocksdb::DB::ListColumnFamilies({}, path, &names).ok());
        std::vector<rocksdb::ColumnFamilyDescriptor> families;
        for (const auto& name : names) families.emplace_back(name, rocksdb::ColumnFamilyOptions());
        std::vector<Family*> handles;
        REQUIRE(rocksdb::DB::Open({}, path, families, &handles, &db).ok());
        for (std::size_t i = 0; i < names.size(); ++i) {
          const bool is_new =
              names[i] == "groups" || names[i] == "offsets" || names[i] == "tarry-meta-2";
          if (is_new && std::ranges::find(made, names[i]) == made.end())
            REQUIRE(db->DropColumnFamily(handles[i]).ok());
          REQUIRE(db->DestroyColumnFamilyHandle(handles[i]).ok());
        }
        Family* format = nullptr;
        REQUIRE(db->CreateColumnFamily({}, "tarry-meta-1", &format).ok());
        REQUIRE(db->DestroyColumnFamilyHandle(format).ok());
        delete db;
      }
      for (int start = 0; start < 2; ++start) {
        auto meta = Database::open(path);
        REQUIRE_MESSAGE(meta.has_value(), meta.error().message);
        CHECK(has(**meta, meta_family::producers, "kept").value());
        CHECK(has(**meta, meta_family::offsets, "later").value() == (start == 1));
        put(**meta, meta_family::offsets, "later", "2");
        REQUIRE((*meta)->flush().has_value());
      }
      std::vector<std::string> names;
      REQUIRE(rocksdb::DB::ListColumnFamilies({}, path, &names).ok());
      CHECK(std::ranges::find(names, "tarry-meta-1") == names.end());
    }
  }

  TEST_CASE("a database of the other kind is refused") {
    ScratchDirectory scratch;
    const std::string path = scratch.path("db/pending");
    REQUIRE(BucketStore::make(path, {}).has_value());
    const auto opened = Database::open(path);
    REQUIRE_FALSE(opened.has_value());
    CHECK(opened.error().code == Errc::corrupt);
  }

  TEST_CASE("a directory that is missing is refused and not made") {
    ScratchDirectory scratch;
    const auto opened = Database::open(scratch.path("db/meta"));
    REQUIRE_FALSE(opened.has_value());
    CHECK(opened.error().code == Errc::corrupt);
    CHECK(opened.error().message.find("missing") != std::string::npos);
    CHECK_FALSE(fs::exists(scratch.path("db")));
  }

  TEST_CASE("every kind of damage is refused and nothing is made anew") {
    using Damage = std::function<void(const std::string&)>;
    const auto cut_half = [](const fs::path& file) {
      fs::resize_file(file, fs::file_size(file) / 2);
    };
    const auto flip = [](const fs::path& file) {
      std::string bytes = read_whole(file);
      bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x40);
      write_whole(file, bytes);
    };
    const std::vector<std::pair<const char*, Damage>> damages{
        {"CURRENT gone", [](const std::string& db) { fs::remove(db + "/CURRENT"); }},
        {"CURRENT empty", [](const std::string& db) { write_whole(db + "/CURRENT", ""); }},
        {"CURRENT garbage", [](const std::string& db) { write_whole(db + "/CURRENT", "xyz\n"); }},
        {"CURRENT names another",
         [](const std::string& db) { write_whole(db + "/CURRENT", "MANIFEST-999999\n"); }},
        {"MANIFEST gone", [](const std::string& db) { fs::remove(file_that(db, "MANIFEST")); }},
        {"MANIFEST empty",
         [](const std::string& db) { write_whole(file_that(db, "MANIFEST"), ""); }},
        {"MANIFEST flipped", [&](const std::string& db) { flip(file_that(db, "MANIFEST")); }},
        {"SST gone", [](const std::string& db) { fs::remove(file_that(db, ".sst")); }},
        {"SST cut", [&](const std::string& db) { cut_half(file_that(db, ".sst")); }},
        {"all but the directory gone",
         [](const std::string& db) {
           fs::remove_all(db);
           fs::create_directory(db);
         }},
    };
    for (const auto& [name, damage] : damages) {
      CAPTURE(name);
      ScratchDirectory scratch;
      const std::string path = filled(scratch);
      damage(path);
      const auto before = counted_rows(path);
      const auto opened = Database::open(path);
      REQUIRE_FALSE(opened.has_value());
      CHECK(opened.error().code == Errc::corrupt);
      CHECK(opened.error().message.find(path) != std::string::npos);
      CHECK(counted_rows(path) == before);
    }
  }

  TEST_CASE("a flipped bit in a table is an error of the read that meets it") {
    ScratchDirectory scratch;
    const std::string path = filled(scratch);
    const fs::path table = file_that(path, ".sst");
    std::string bytes = read_whole(table);
    bytes[100] = static_cast<char>(bytes[100] ^ 1);
    write_whole(table, bytes);
    auto opened = Database::open(path);
    REQUIRE(opened.has_value());
    const auto read = has(**opened, meta_family::producers, "key 0");
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().code == Errc::corrupt);
  }

  TEST_CASE("two processes cannot have one database open") {
    ScratchDirectory scratch;
    auto made = Database::make(scratch.path("db"));
    REQUIRE(made.has_value());
    const auto second = Database::open(scratch.path("db"));
    REQUIRE_FALSE(second.has_value());
    CHECK(second.error().code == Errc::in_use);
  }

  TEST_CASE("an empty database holds next to no memory") {
    ScratchDirectory scratch;
    auto made = Database::make(scratch.path("db"));
    REQUIRE(made.has_value());
    CHECK((*made)->memory_bytes() < (1 << 20));
  }
}

}  // namespace
}  // namespace tarry::storage
