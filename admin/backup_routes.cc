#include "admin/backup_routes.h"

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/json.h"
#include "base/log.h"
#include "broker/backup.h"
#include "broker/broker.h"
#include "web/reply_stream.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::milliseconds line_every{250};

// A line comes also while one step takes longer: a reader gives up after some seconds without one.
constexpr std::chrono::seconds line_at_least_every{2};

// A backup, and what its last step told.
struct BackupWork {
  BackupWork(Context& context, std::unique_ptr<broker::BackupRun> its_run)
      : run(std::move(its_run)), target(run->target()), stepped(context.here.executor()) {}

  std::unique_ptr<broker::BackupRun> run;
  const std::string target;
  asio::steady_timer stepped;
  bool is_stepping = false;
  Result<bool> more = true;
  std::uint64_t files = 0, copied = 0, total = 0;
};

// Goes on when nobody waits for it any more.
asio::awaitable<void> step_backup(std::shared_ptr<void> owner, std::shared_ptr<BackupWork> work) {
  try {
    work->more = co_await work->run->step();
    work->files = work->run->files();
    work->copied = work->run->copied_bytes();
    work->total = work->run->total_bytes();
  } catch (const std::exception& error) {
    work->more = fail(Errc::io, error.what());
  }
  work->is_stepping = false;
  work->stepped.cancel();
  // In this order, because the run uses the state that `owner` keeps.
  work = nullptr;
  owner = nullptr;
}

class BackupLines final : public ReplyStream {
 public:
  BackupLines(Context& context, std::unique_ptr<broker::BackupRun> run)
      : context_(context),
        begun_(context.broker.clock().mono()),
        begun_at_(context.broker.clock().wall()),
        work_(std::make_shared<BackupWork>(context, std::move(run))) {}

  asio::awaitable<std::optional<std::string>> next() override {
    if (!work_) co_return std::nullopt;
    const auto& clock = context_.broker.clock();
    const auto until = clock.mono() + line_every;
    do {
      co_await step();
    } while (!work_->is_stepping && work_->more && *work_->more && clock.mono() < until);
    const auto& more = work_->more;
    Json body;
    if (!more) {
      body["error"] = more.error().message;
    } else {
      body["state"] = *more ? "copying" : "done";
      body["directory"] = work_->target;
      body["files"] = work_->files;
      body["copied"] = work_->copied;
      if (work_->total != 0) body["bytes"] = work_->total;
      body["took_ms"] =
          std::chrono::duration_cast<std::chrono::milliseconds>(clock.mono() - begun_).count();
    }
    if (more && !*more) context_.last_backup = begun_at_;
    // Behind the last line, so that the next call ends the stream.
    if (!more || !*more) work_ = nullptr;
    co_return text_of(body) + "\n";
  }

 private:
  // Until the step is over, or a line is due.
  asio::awaitable<void> step() {
    // The client may go, and this stream with it, while a step is under way.
    const auto work = work_;
    if (!std::exchange(work->is_stepping, true)) {
      asio::co_spawn(context_.here.executor(), step_backup(context_.owner.lock(), work),
                     asio::detached);
    }
    if (!work->is_stepping) co_return;
    boost::system::error_code ignored;
    work->stepped.expires_after(line_at_least_every);
    co_await work->stepped.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }

  Context& context_;
  const MonoTime begun_;
  const WallTime begun_at_;
  std::shared_ptr<BackupWork> work_;  // Null after its end.
};

std::string backup_target(const Call& call) {
  const Json body = parse_json(call.body);
  const auto found = body.is_object() ? body.find("directory") : body.end();
  // A misspelt key is refused, and not passed over.
  if (!body.is_object() || body.size() != 1 || found == body.end() || !found->is_string()) {
    throw Refused{400,
                  "the body has to name the directory of the backup, an absolute path on the "
                  R"(broker's machine, as in {"directory": "/srv/backups/2026-11-21"})"};
  }
  return found->get<std::string>();
}

unsigned backup_status(Errc code) {
  switch (code) {
    case Errc::invalid:
      return 400;
    case Errc::in_use:
      return 409;
    case Errc::no_space:
      return 507;
    default:
      return 500;
  }
}

}  // namespace

asio::awaitable<Reply> make_backup(Call& call) {
  auto& context = call.context;
  auto target = backup_target(call);
  auto run = co_await broker::BackupRun::begin(context.broker, context.here, std::move(target));
  if (!run) throw Refused{backup_status(run.error().code), run.error().message};
  Reply reply;
  reply.content_type = "application/x-ndjson";
  reply.stream = std::make_shared<BackupLines>(context, std::move(*run));
  co_return reply;
}

}  // namespace tarry::admin
