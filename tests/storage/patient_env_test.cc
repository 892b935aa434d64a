#include "storage/patient_env.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "scratch.h"

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
}

}  // namespace
}  // namespace tarry::storage
