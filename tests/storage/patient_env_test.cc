#include "storage/patient_env.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "scratch.h"
#include "storage/database.h"
#include "storage/rocks.h"

namespace tarry::storage {
namespace {

// The machine's files, but the next few that are to be opened fail with `error`.
class FailingFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  using FileSystemWrapper::FileSystemWrapper;
  const char* Name() const override { return "tarry-failing"; }

  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* context) override {
    ++tries;
    if (failures > 0) {
      --failures;
      return rocksdb::IOStatus::IOError("While open a file: " + path, std::strerror(error));
    }
    return target()->NewWritableFile(path, options, file, context);
  }

  int error = EMFILE;
  int failures = 0;
  int tries = 0;
};

// The machine's files, which take nothing while the disk is full.
class FullFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  using FileSystemWrapper::FileSystemWrapper;
  const char* Name() const override { return "tarry-full"; }

  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* context) override {
    std::unique_ptr<rocksdb::FSWritableFile> below;
    auto status = target()->NewWritableFile(path, options, &below, context);
    if (status.ok()) *file = std::make_unique<FullFile>(*this, std::move(below));
    return status;
  }

  std::atomic<bool> is_full = false;
  std::atomic<int> refused = 0;

 private:
  class FullFile final : public rocksdb::FSWritableFileOwnerWrapper {
   public:
    FullFile(FullFileSystem& files, std::unique_ptr<rocksdb::FSWritableFile> below)
        : FSWritableFileOwnerWrapper(std::move(below)), files_(files) {}

    rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* context) override {
      if (!files_.is_full) return target()->Append(data, options, context);
      ++files_.refused;
      return rocksdb::IOStatus::NoSpace("No space left on device");
    }
    rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                             const rocksdb::DataVerificationInfo&,
                             rocksdb::IODebugContext* context) override {
      return Append(data, options, context);
    }

   private:
    FullFileSystem& files_;
  };
};

// Databases are opened on these files while there is one.
struct OnFullFiles {
  OnFullFiles() { set_rocks_files(files); }
  ~OnFullFiles() { set_rocks_files(nullptr); }
  OnFullFiles(const OnFullFiles&) = delete;
  OnFullFiles& operator=(const OnFullFiles&) = delete;

  const std::shared_ptr<FullFileSystem> files =
      std::make_shared<FullFileSystem>(rocksdb::FileSystem::Default());
};

struct EnvFixture {
  ScratchDirectory scratch;
  std::shared_ptr<FailingFileSystem> below =
      std::make_shared<FailingFileSystem>(rocksdb::FileSystem::Default());
  std::shared_ptr<rocksdb::FileSystem> patient = make_patient(below);

  rocksdb::IOStatus open() {
    std::unique_ptr<rocksdb::FSWritableFile> file;
    return patient->NewWritableFile(scratch.path("file"), {}, &file, nullptr);
  }
};

TEST_SUITE("patient env") {
  TEST_CASE("a file that finds no descriptor, or no memory, is opened when there is one again") {
    for (const int error : {EMFILE, ENFILE, ENOMEM}) {
      EnvFixture f;
      f.below->error = error;
      f.below->failures = 2;
      CHECK(f.open().ok());
      CHECK(f.below->tries == 3);
    }
  }

  TEST_CASE("another error is reported at once") {
    EnvFixture f;
    f.below->error = EACCES;
    f.below->failures = 1;
    CHECK_FALSE(f.open().ok());
    CHECK(f.below->tries == 1);
    CHECK(f.open().ok());
  }

  TEST_CASE("a log loses the lines for which there was no room, and goes on when there is") {
    ScratchDirectory scratch;
    const auto below = std::make_shared<FullFileSystem>(rocksdb::FileSystem::Default());
    const auto patient = make_patient(below);
    std::shared_ptr<rocksdb::Logger> logger;
    REQUIRE(patient->NewLogger(scratch.path("LOG"), {}, &logger, nullptr).ok());
    const auto write = [&](const char* line) {
      rocksdb::Error(logger.get(), "%s", line);
      logger->Flush();
    };
    write("before");
    below->is_full = true;
    write("lost");
    write("lost too");
    CHECK(below->refused.load() == 2);
    below->is_full = false;
    write("behind");
    logger.reset();
    const auto text = read_whole(scratch.path("LOG"));
    CHECK(text.contains("before"));
    CHECK(text.contains("behind"));
    CHECK_FALSE(text.contains("lost"));
  }

  TEST_CASE("a compaction that finds the disk full fails and ends neither process nor database") {
    ScratchDirectory scratch;
    const OnFullFiles on;
    auto made = Database::make(scratch.path("db"));
    REQUIRE(made.has_value());
    Rocks& rocks = (*made)->rocks();
    Family* const family = rocks.family(meta_family::producers);
    SeededRandom random{1};
    // Several megabytes that cannot be compressed, so that one table is written in many writes.
    const auto fill = [&] {
      rocksdb::WriteBatch batch;
      for (int row = 0; row < 4000; ++row) {
        std::string value;
        while (value.size() < 1000) value += std::to_string(random.u64());
        batch.Put(family, "key " + std::to_string(row), value);
      }
      REQUIRE(rocks.write(batch).has_value());
      REQUIRE((*made)->flush().has_value());
    };
    fill();
    fill();
    on.files->is_full = true;
    rocksdb::CompactRangeOptions options;
    options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
    const auto compacted = rocks.db->CompactRange(options, family, nullptr, nullptr);
    CHECK_FALSE(compacted.ok());
    CHECK(on.files->refused.load() > 0);
    on.files->is_full = false;
    fill();
    rocksdb::PinnableSlice value;
    const auto found = rocks.get(meta_family::producers, "key 3999", value);
    REQUIRE(found.has_value());
    CHECK(*found);
    CHECK((*made)->verify().has_value());
  }
}

}  // namespace
}  // namespace tarry::storage
