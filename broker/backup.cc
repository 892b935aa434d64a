#include "broker/backup.h"

#include <utility>

#include <boost/asio/post.hpp>

#include "base/log.h"
#include "broker/context/one_shot_event.h"

namespace tarry::broker {

namespace asio = boost::asio;

asio::awaitable<Result<std::unique_ptr<BackupRun>>> BackupRun::begin(Broker& broker, Shard& here,
                                                                     std::string target) {
  const auto& identity = broker.identity();
  storage::BackupSource source{identity.data_directory, identity.log_directory,
                               broker.shard_count(),
                               static_cast<std::uint64_t>(here.config().disk_reserve_bytes)};
  auto task = [&disk = broker.disk(), source = std::move(source), target = std::move(target)] {
    return storage::Backup::begin(disk, source, target);
  };
  auto begun = co_await here.blocking(std::move(task));
  if (!begun) {
    Result<std::unique_ptr<BackupRun>> failed = std::unexpected(begun.error());
    co_return failed;
  }
  std::unique_ptr<BackupRun> run(new BackupRun(broker, here));
  run->backup_ = std::move(*begun);
  log_info("broker", "backup to {} has started", run->target());
  // From here on the files that the checkpoints name stay, whatever a later checkpoint passes.
  run->keep_journals(true);
  Result<std::unique_ptr<BackupRun>> out = std::move(run);
  co_return out;
}

BackupRun::~BackupRun() {
  keep_journals(false);
  if (stage_ != Stage::done && backup_)
    log_warn("broker", "backup to {} was abandoned after {} bytes", target(), copied_bytes());
  // It removes files.
  here_.background().run([backup = std::exchange(backup_, nullptr)]() mutable { backup.reset(); },
                         [] {});
}

void BackupRun::keep_journals(bool keep) {
  if (std::exchange(keeps_journals_, keep) == keep) return;
  for (std::size_t i = 0; i < broker_.shard_count(); ++i) {
    auto& shard = broker_.shard(i);
    asio::post(shard.executor(), [&shard, keep] { shard.keep_journal_files(keep); });
  }
}

namespace {

// Shared by the shards while their journals stand still; the last one that does, or that has
// failed, lets all go on.
struct JournalsHeld {
  JournalsHeld(Broker& its_broker, Shard& asking, std::size_t shards)
      : broker(its_broker), here(asking), ends(shards), missing(shards) {}

  Broker& broker;
  Shard& here;
  std::vector<Lsn> ends;
  std::size_t missing;  // On the thread of `here`.
  bool any_failed = false;
  OneShotEvent all;

  static void hold(const std::shared_ptr<JournalsHeld>& held, Shard& shard) {
    asio::post(shard.executor(), [held, &shard] {
      shard.hold_journal_rounds([held, &shard] {
        // Both are read where the journal stands still, and counted on one thread.
        asio::post(held->here.executor(),
                   [held, index = shard.index(), end = shard.journal().durable_lsn(),
                    failed = shard.journal().has_failed()] {
                     held->ends[index] = end;
                     held->any_failed |= failed;
                     if (--held->missing > 0) return;
                     // All ends are known; a longer pause would only hold the producers up.
                     for (std::size_t i = 0; i < held->broker.shard_count(); ++i) {
                       auto& other = held->broker.shard(i);
                       asio::post(other.executor(), [&other] { other.release_journal_rounds(); });
                     }
                     held->all.fire();
                   });
      });
    });
  }
};

}  // namespace

// A client may have told one shard what another shard answered before this moment; so no shard
// answers anything until all stand still.
asio::awaitable<Result<std::vector<Lsn>>> BackupRun::ends_of_journals() {
  const auto held = std::make_shared<JournalsHeld>(broker_, here_, broker_.shard_count());
  for (std::size_t i = 0; i < broker_.shard_count(); ++i)
    JournalsHeld::hold(held, broker_.shard(i));
  if (!held->all.fired()) co_await held->all.wait();
  Result<std::vector<Lsn>> ends = held->ends;
  if (held->any_failed) ends = fail(Errc::io, "a journal of the broker has failed");
  co_return ends;
}

asio::awaitable<Result<>> BackupRun::hold_journals() {
  const auto ends = co_await ends_of_journals();
  Result<> held;
  if (!ends) held = std::unexpected(ends.error());
  if (held) {
    auto task = [backup = backup_, &ends] { return backup->hold_journals(*ends); };
    held = co_await here_.blocking(std::move(task));
  }
  co_return held;
}

asio::awaitable<Result<bool>> BackupRun::step() {
  Result<bool> more = fail(Errc::stopped, "the broker is stopping");
  if (!here_.stopping()) more = co_await work();
  // The pool might never do the next piece now, and nobody would come back here.
  if (more && *more && here_.stopping()) more = fail(Errc::stopped, "the broker is stopping");
  if (!more) {
    log_warn("broker", "backup to {} failed: {}", target(), more.error().message);
  } else if (!*more) {
    log_info("broker", "backup to {} is complete: {} files, {} bytes", target(), files(),
             copied_bytes());
  }
  co_return more;
}

asio::awaitable<Result<bool>> BackupRun::work() {
  const auto backup = backup_;
  Result<bool> more = true;
  switch (stage_) {
    case Stage::hold_state: {
      // Only a shard that has answered keeps its files by now.
      for (std::size_t i = 0; i < broker_.shard_count(); ++i) {
        auto nothing = []() -> asio::awaitable<void> { co_return; };
        co_await broker_.on(here_, broker_.shard(i), std::move(nothing));
      }
      auto task = [backup, &meta = broker_.meta(), &pending = broker_.pending()] {
        return backup->hold_state(meta, pending);
      };
      const auto held = co_await here_.blocking(std::move(task));
      if (!held) more = std::unexpected(held.error());
      if (held) stage_ = Stage::hold_logs;
      break;
    }
    case Stage::hold_logs: {
      auto task = [backup] { return backup->hold_logs(); };
      more = co_await here_.blocking(std::move(task));
      if (more && !*more) stage_ = Stage::hold_journals;
      break;
    }
    case Stage::hold_journals: {
      const auto held = co_await hold_journals();
      if (!held) more = std::unexpected(held.error());
      if (held) stage_ = Stage::copy_journals;
      break;
    }
    case Stage::copy_journals: {
      auto task = [backup] { return backup->copy_journals(); };
      more = co_await here_.blocking(std::move(task));
      if (more && !*more) {
        // Their files are copied, so the journals may use them again.
        keep_journals(false);
        stage_ = Stage::copy_files;
      }
      break;
    }
    case Stage::copy_files: {
      auto task = [backup] { return backup->copy_files(); };
      more = co_await here_.blocking(std::move(task));
      if (more && !*more) stage_ = Stage::finish;
      break;
    }
    case Stage::finish: {
      auto task = [backup] { return backup->finish(); };
      const auto finished = co_await here_.blocking(std::move(task));
      if (!finished) more = std::unexpected(finished.error());
      if (finished) stage_ = Stage::done;
      break;
    }
    case Stage::done:
      break;
  }
  if (more) more = stage_ != Stage::done;
  co_return more;
}

}  // namespace tarry::broker
