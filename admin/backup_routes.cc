#include "admin/backup_routes.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "broker/backup.h"
#include "broker/broker.h"
#include "web/reply_stream.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::milliseconds line_every{250};

class BackupLines final : public ReplyStream {
 public:
  BackupLines(Context& context, std::unique_ptr<broker::BackupRun> run)
      : context_(context), begun_(context.broker.clock().mono()), run_(std::move(run)) {}

  asio::awaitable<std::optional<std::string>> next() override {
    if (!run_) co_return std::nullopt;
    const auto& clock = context_.broker.clock();
    const auto until = clock.mono() + line_every;
    Result<bool> more = true;
    while (more && *more && clock.mono() < until) more = co_await run_->step();
    Json body;
    if (!more) {
      body["error"] = more.error().message;
    } else {
      body["state"] = *more ? "copying" : "done";
      body["directory"] = run_->target();
      body["files"] = run_->files();
      body["copied"] = run_->copied_bytes();
      if (const auto total = run_->total_bytes(); total != 0) body["bytes"] = total;
      body["took_ms"] =
          std::chrono::duration_cast<std::chrono::milliseconds>(clock.mono() - begun_).count();
    }
    if (!more || !*more) run_ = nullptr;
    co_return text_of(body) + "\n";
  }

 private:
  Context& context_;
  const MonoTime begun_;
  std::unique_ptr<broker::BackupRun> run_;  // Null after its end.
};

std::string backup_target(const Call& call) {
  const Json body = parse_json(call.body);
  const auto found = body.is_object() ? body.find("directory") : body.end();
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
