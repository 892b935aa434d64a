#include "storage/patient_env.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/log.h"

namespace tarry::storage {
namespace {

constexpr std::chrono::milliseconds between_tries{100};

// RocksDB keeps errno only as text, after the path.
bool is_exhausted(const rocksdb::IOStatus& status) {
  if (status.ok() || !status.IsIOError()) return false;
  const std::string text = status.ToString();
  for (const int error : {EMFILE, ENFILE, ENOMEM})
    if (text.ends_with(std::strerror(error))) return true;
  return false;
}

template <typename Open>
rocksdb::IOStatus patiently(const std::string& path, Open open) {
  auto status = open();
  if (!is_exhausted(status)) return status;
  // At once, because the caller stands still until it is over.
  log_error("storage",
            "{}; trying again for up to {} s: raise the limit of open files (`ulimit -n`, "
            "LimitNOFILE=), or close connections",
            status.ToString(), open_patience.count());
  const auto until = std::chrono::steady_clock::now() + open_patience;
  while (is_exhausted(status) && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(between_tries);
    status = open();
  }
  if (status.ok()) log_info("storage", "{} is open: a file descriptor became free", path);
  return status;
}

// A file that loses what cannot be written.
class NotesFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  using FSWritableFileOwnerWrapper::FSWritableFileOwnerWrapper;

  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* context) override {
    target()->Append(data, options, context).PermitUncheckedError();
    return rocksdb::IOStatus::OK();
  }
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           const rocksdb::DataVerificationInfo& /*sum*/,
                           rocksdb::IODebugContext* context) override {
    return Append(data, options, context);
  }
  rocksdb::IOStatus Flush(const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* context) override {
    target()->Flush(options, context).PermitUncheckedError();
    return rocksdb::IOStatus::OK();
  }
};

// Its loggers write to such files.
class NotesFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  using FileSystemWrapper::FileSystemWrapper;

  const char* Name() const override { return "tarry-notes"; }

  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* context) override {
    auto status = target()->NewWritableFile(path, options, file, context);
    if (status.ok()) *file = std::make_unique<NotesFile>(std::move(*file));
    return status;
  }
  // The wrapper's own would open the file behind our back.
  rocksdb::IOStatus NewLogger(const std::string& path, const rocksdb::IOOptions& options,
                              std::shared_ptr<rocksdb::Logger>* logger,
                              rocksdb::IODebugContext* context) override {
    return FileSystem::NewLogger(path, options, logger, context);
  }
};

class PatientFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  explicit PatientFileSystem(const std::shared_ptr<rocksdb::FileSystem>& below)
      : FileSystemWrapper(below), notes_(below) {}

  const char* Name() const override { return "tarry-patient"; }

  rocksdb::IOStatus NewSequentialFile(const std::string& path, const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                      rocksdb::IODebugContext* context) override {
    return patiently(path,
                     [&] { return target()->NewSequentialFile(path, options, file, context); });
  }
  rocksdb::IOStatus NewRandomAccessFile(const std::string& path,
                                        const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                        rocksdb::IODebugContext* context) override {
    return patiently(path,
                     [&] { return target()->NewRandomAccessFile(path, options, file, context); });
  }
  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* context) override {
    return patiently(path, [&] { return target()->NewWritableFile(path, options, file, context); });
  }
  rocksdb::IOStatus NewDirectory(const std::string& path, const rocksdb::IOOptions& options,
                                 std::unique_ptr<rocksdb::FSDirectory>* directory,
                                 rocksdb::IODebugContext* context) override {
    return patiently(path,
                     [&] { return target()->NewDirectory(path, options, directory, context); });
  }
  rocksdb::IOStatus NewLogger(const std::string& path, const rocksdb::IOOptions& options,
                              std::shared_ptr<rocksdb::Logger>* logger,
                              rocksdb::IODebugContext* context) override {
    return notes_.NewLogger(path, options, logger, context);
  }

 private:
  NotesFileSystem notes_;
};

}  // namespace

std::shared_ptr<rocksdb::FileSystem> make_patient(std::shared_ptr<rocksdb::FileSystem> below) {
  return std::make_shared<PatientFileSystem>(std::move(below));
}

namespace {

std::unique_ptr<rocksdb::Env>& env_of_test() {
  static std::unique_ptr<rocksdb::Env> env;
  return env;
}

}  // namespace

void set_rocks_files(std::shared_ptr<rocksdb::FileSystem> files) {
  env_of_test() = files ? rocksdb::NewCompositeEnv(make_patient(std::move(files))) : nullptr;
}

rocksdb::Env* patient_env() {
  if (env_of_test() != nullptr) return env_of_test().get();
  static rocksdb::Env* const env =
      rocksdb::NewCompositeEnv(make_patient(rocksdb::FileSystem::Default())).release();
  return env;
}

}  // namespace tarry::storage
