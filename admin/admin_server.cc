#include "admin/admin_server.h"

#include <atomic>
#include <optional>
#include <utility>

#include "admin/call.h"
#include "admin/due_picture.h"
#include "admin/event_feed.h"
#include "admin/routes.h"
#include "broker/broker.h"
#include "broker/context/pool_part.h"

namespace tarry::admin {

namespace asio = boost::asio;

// The handlers use this state.  The connections hold it, so it outlives the server until they have
// ended.
struct AdminServer::State {
  std::shared_ptr<Pauses> pauses;
  std::shared_ptr<EventFeed> events;
  std::optional<Context> context;
  std::atomic<bool> started = false;  // The others are constant then.
};

AdminServer::AdminServer(AdminOptions options, asio::any_io_executor executor,
                         std::unique_ptr<HttpServer> http)
    : options_(std::move(options)),
      executor_(std::move(executor)),
      http_(std::move(http)),
      state_(std::make_shared<State>()) {}

AdminServer::~AdminServer() {
  stop();
}

Result<std::unique_ptr<AdminServer>> AdminServer::open(asio::any_io_executor executor,
                                                       AdminOptions options) {
  options.option = "tarry.admin.listener";
  options.remedy = "choose another one with --admin HOST:PORT (or off)";
  const web::HttpOptions& for_http = options;
  // The port is taken before the broker recovers its data, which may take long: a port that is in
  // use is noticed at once.
  auto http = HttpServer::open(executor, for_http);
  if (!http) return std::unexpected(http.error());
  return std::unique_ptr<AdminServer>(
      new AdminServer(std::move(options), std::move(executor), std::move(*http)));
}

Result<> AdminServer::start(broker::Broker& broker, KafkaFacts kafka) {
  const std::string& data = broker.identity().data_directory;
  auto tokens = AccessTokens::open(data, broker.random());
  if (!tokens) return std::unexpected(tokens.error());
  State& state = *state_;
  state.pauses = std::make_shared<Pauses>(executor_);
  state.events =
      std::make_shared<EventFeed>(executor_, options_.event_streams, options_.event_interval);
  state.context.emplace(
      Context{broker,
              broker.shard(0),
              {std::move(kafka.address), std::move(kafka.listeners),
               std::move(kafka.open_listeners), std::move(kafka.wanted_connections),
               std::move(kafka.max_connections), http_->address(), std::move(kafka.advertised)},
              std::move(*tokens),
              Hosts({options_.host, http_->port(), http_->is_loopback(), options_.open_reads,
                     options_.allowed_hosts, options_.loopback_reads}),
              // A browser keeps one cookie for all ports of a host, and several
              // brokers may run there.
              "tarry_session_" + broker.identity().cluster_id,
              options_.wrong_login_delay,
              state.pauses,
              state.events,
              std::make_shared<DuePicture>(),
              state_});
  state.context->pending_changed = [&context = *state.context] {
    context.events->pending_changed(context);
  };
  state.started = true;
  http_->count_bodies([part = broker::PoolPart(broker.memory())](
                          std::size_t bytes) mutable -> std::shared_ptr<void> {
    auto held = part.try_take(bytes);
    if (!held) return nullptr;
    return std::make_shared<broker::PoolPart::Held>(std::move(held));
  });
  return http_->start(
      [state = state_](Question question) { return answer(*state->context, std::move(question)); });
}

void AdminServer::stop() {
  http_->stop();
  if (state_->pauses) state_->pauses->stop();
  if (state_->events) state_->events->stop();
}

void AdminServer::use_tls(std::shared_ptr<ssl_ctx_st> context) {
  http_->use_tls(std::move(context));
}

const std::string& AdminServer::address() const {
  return http_->address();
}

void AdminServer::second_passed(std::function<std::uint64_t()> turns) {
  if (state_->started) state_->events->second_passed(*state_->context, std::move(turns));
}

std::size_t AdminServer::event_streams() const {
  return state_->events ? state_->events->streams() : 0;
}

std::uint64_t AdminServer::event_rounds() const {
  return state_->events ? state_->events->rounds() : 0;
}

}  // namespace tarry::admin
