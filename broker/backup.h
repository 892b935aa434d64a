#pragma once

// BackupRun: a backup of the running broker, over all shards (storage/backup.h has its order).
//
//   auto run = co_await BackupRun::begin(broker, here, "/srv/backups/today");
//   for (;;) {
//     const auto more = co_await (*run)->step();      // A few megabytes.
//     if (!more || !*more) break;
//   }
//
// Producers go on meanwhile.  Their rounds wait once, for as long as the rounds in flight on all
// shards take (Journal::hold_rounds()); the files are linked and copied on the pool.
//
// A run that is destroyed before its end gives the backup up: the files that it wrote are removed.
//
// On the shard `here`, from begin() to the end.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/ids.h"
#include "base/result.h"
#include "broker/broker.h"
#include "storage/backup.h"

namespace tarry::broker {

class BackupRun {
 public:
  static boost::asio::awaitable<Result<std::unique_ptr<BackupRun>>> begin(Broker& broker,
                                                                          Shard& here,
                                                                          std::string target);
  ~BackupRun();
  BackupRun(const BackupRun&) = delete;
  BackupRun& operator=(const BackupRun&) = delete;

  // True: there is more to do.  After false it is whole and durable; after an error nothing is left
  // of it.
  boost::asio::awaitable<Result<bool>> step();

  const std::string& target() const { return backup_->target(); }
  std::uint64_t copied_bytes() const { return backup_->copied_bytes(); }
  std::uint64_t total_bytes() const { return backup_->total_bytes(); }  // 0: not known yet.
  std::uint64_t files() const { return backup_->files(); }

 private:
  enum class Stage {
    hold_state,
    hold_logs,
    hold_journals,
    copy_journals,
    copy_files,
    finish,
    done
  };

  BackupRun(Broker& broker, Shard& here) : broker_(broker), here_(here) {}
  void keep_journals(bool keep);
  boost::asio::awaitable<Result<std::vector<Lsn>>> ends_of_journals();
  boost::asio::awaitable<Result<bool>> work();
  boost::asio::awaitable<Result<>> hold_journals();

  Broker& broker_;
  Shard& here_;
  Stage stage_ = Stage::hold_state;
  bool keeps_journals_ = false;
  std::shared_ptr<storage::Backup> backup_;  // Work on the pool holds it too.
};

}  // namespace tarry::broker
