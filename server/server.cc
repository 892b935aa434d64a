#include "server/server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <future>
#include <mutex>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "admin/admin_server.h"
#include "base/list_text.h"
#include "base/log.h"
#include "base/log_format.h"
#include "broker/broker.h"
#include "broker/security/token_logins.h"
#include "delay/time_zones.h"
#include "server/blocking_pool.h"
#include "server/config_values.h"
#include "server/connection_rates.h"
#include "server/listener.h"
#include "server/live_config.h"
#include "server/open_connections.h"
#include "server/open_files.h"
#include "server/pulse.h"
#include "server/sessions.h"
#include "server/system_clock.h"
#include "server/system_random.h"
#include "server/thread_name.h"
#include "server/tls_context.h"
#include "server/tls_handshakes.h"
#include "server/turns.h"
#include "server/wheel_driver.h"
#include "storage/file.h"

namespace tarry::server {
namespace {

namespace asio = boost::asio;

// How often the broker looks at the disk: another program may fill it within seconds.
constexpr std::chrono::seconds disk_look_interval{1};

using WorkGuard = asio::executor_work_guard<asio::io_context::executor_type>;

// Runs `work` on the context's thread and waits for it.
template <typename F>
auto run_on(asio::io_context& context, F work) {
  // Never called on that thread, which would wait for itself.
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto done = task.get_future();
  asio::post(context, std::move(task));
  return done.get();
}

std::vector<std::string_view> list_of(std::string_view value) {
  std::vector<std::string_view> list;
  for (auto rest = value; !rest.empty();) {
    const auto each = take_element(rest, ',');
    if (!each.empty()) list.push_back(each);
  }
  return list;
}

// Reads the file of keys.
Result<std::shared_ptr<broker::TokenLogins>> token_logins_of(const broker::ListenerInfo& info) {
  const auto setting = [&info](std::string_view name) {
    return info.sasl_setting("OAUTHBEARER", fmt::format("sasl.oauthbearer.{}", name));
  };
  constexpr std::string_view file_url = "file://";
  const auto url = setting("jwks.endpoint.url");
  if (!url.starts_with(file_url)) {
    return fail(Errc::invalid,
                fmt::format("listener {}: OAUTHBEARER needs the keys of the tokens' signers: "
                            "give sasl.oauthbearer.jwks.endpoint.url=file:///...",
                            info.name));
  }
  broker::TokenTerms terms;
  terms.issuer = setting("expected.issuer");
  for (const auto audience : list_of(setting("expected.audience")))
    terms.audiences.emplace_back(audience);
  if (const auto skew = parse_whole_number(setting("clock.skew.seconds")))
    terms.clock_skew = std::chrono::seconds{*skew};
  if (const auto claim = setting("sub.claim.name"); !claim.empty()) terms.user_claim = claim;
  if (const auto claim = setting("scope.claim.name"); !claim.empty()) terms.scope_claim = claim;
  auto logins = std::make_shared<broker::TokenLogins>(std::string(url.substr(file_url.size())),
                                                      std::move(terms));
  if (auto read = logins->read(true); !read) {
    return fail(read.error().code, fmt::format("listener {}: {}", info.name, read.error().message));
  }
  return logins;
}

Result<std::shared_ptr<const broker::ListenerInfo>> info_of(const ListenerConfig& listener,
                                                            const HostPort& advertised) {
  auto info = std::make_shared<broker::ListenerInfo>();
  info->name = listener.name;
  info->protocol = listener.protocol;
  info->advertised_host = advertised.host;
  info->advertised_port = advertised.port;
  if (!has_sasl(listener.protocol)) return info;
  for (const auto& [key, value] : listener.settings) {
    if (!key.starts_with("ssl.")) info->sasl_settings.emplace(key, value);
  }
  for (const auto name : list_of(listener.setting("sasl.enabled.mechanisms"))) {
    // Kafka's default, which Tarry does not have.
    if (name == "GSSAPI") continue;
    info->mechanisms.push_back(in_capitals(name));
    if (name != "OAUTHBEARER") continue;
    auto logins = token_logins_of(*info);
    if (!logins) return std::unexpected(logins.error());
    info->token_logins = std::move(*logins);
  }
  return info;
}

}  // namespace

// In the order in which they are made; destroyed in reverse.
struct Server::Parts {
  // Everything that one shard's thread runs.
  struct EventLoop {
    asio::io_context context{1};
    std::optional<WorkGuard> guard{asio::make_work_guard(context)};
    std::unique_ptr<Background> background;
    std::unique_ptr<Background> round_lane;
    std::atomic<std::uint64_t> turns{0};  // Counted by the thread.
    std::thread thread;
  };
  // The objects that use a shard and are destroyed before it.
  struct FrontEnd {
    FrontEnd(EventLoop& its_loop, broker::Broker& broker, broker::Shard& shard,
             SessionLimits limits)
        : loop(its_loop), wheel(its_loop.context, shard), sessions(broker, shard, limits) {}
    EventLoop& loop;
    WheelDriver wheel;
    Sessions sessions;
  };

  // One listener, with its socket and its settings.
  struct Entrance {
    HostPort address;  // With the port that was found.
    std::shared_ptr<const broker::ListenerInfo> info;
    std::unique_ptr<ConnectionRates> rates;
    std::unique_ptr<Listener> listener;
    // Null: plain text.  On shard 0's thread once it runs.
    std::shared_ptr<const TlsContext> tls;
  };

  Config config;
  std::function<void(const Error&)> on_failure;
  SystemClock clock;
  SystemRandom random;
  storage::PosixDisk disk;
  std::vector<std::unique_ptr<EventLoop>> loops;
  std::unique_ptr<BlockingPool> pool;
  std::optional<LiveConfig> live_config;
  std::unique_ptr<broker::Broker> broker;
  std::optional<Pulse> disk_watch;  // look_around(), while the threads run.
  std::vector<std::unique_ptr<FrontEnd>> front_ends;
  std::unique_ptr<OpenConnections> connections;
  std::vector<Entrance> entrances;  // One a listener, in their order; constant once it runs.
  std::vector<std::string> open_listeners;    // Addresses beyond loopback without a login.
  std::unique_ptr<admin::AdminServer> admin;  // Null: off.
  std::unique_ptr<TlsHandshakes> handshakes;  // Null: no listener has TLS.
  std::atomic<std::size_t> next_shard{0};     // The shard of the next connection.
  std::mutex listeners_mutex;
  std::vector<ListenerConfig> listeners_now;       // With what clients have changed.
  std::shared_ptr<ConnectionRates::Broker> rates;  // Null: there are no listeners yet.
  ConnectionRates::Limit rate_of_all;              // As it is now,
  std::vector<ConnectionRates::Limit> rate_of;     //   and of each listener.
  // The present value; `config` has that of the start.
  std::atomic<std::chrono::milliseconds> shutdown_timeout{};
  SessionLimits limits;
  // max.connections and max.connections.per.ip.
  std::atomic<std::size_t> wanted_connections = 0;
  std::size_t wanted_of_address = 0;
  bool running = false;
  std::vector<std::future<void>> ending;  // One a shard, once its sessions are closed.

  Result<std::vector<BoundAddress>> bind();
  Result<> open();
  void make_listeners(std::vector<BoundAddress> bound);
  void read_rates(const Config& now);
  void set_rates();
  std::string listeners_text() const;
  std::string advertised_text() const;
  void settings_changed(const Config& now);
  std::size_t connection_limit() const;
  void look_around();
  void run_loop(EventLoop& loop, std::size_t index);
  void give(std::size_t index, ConnectionHandoff handoff);
  void accepted(const Entrance& entrance, ConnectionHandoff handoff);
  void give_next(ConnectionHandoff handoff);
  using TlsContexts = std::vector<std::shared_ptr<const TlsContext>>;
  TlsContexts read_certificates(const std::vector<ListenerConfig>& listeners) const;
  void use_certificates(const TlsContexts& contexts);
  Result<> read_admin_certificate();
  Result<> end_sessions();
  void end_threads();
};

Server::Server(Config config, std::function<void(const Error&)> on_failure)
    : parts_(std::make_unique<Parts>()) {
  parts_->config = std::move(config);
  parts_->wanted_connections = parts_->config.max_connections;
  parts_->wanted_of_address = parts_->config.max_connections_per_ip;
  parts_->on_failure = std::move(on_failure);
}

Server::~Server() {
  // stop() gives up after its timeout.  The threads use our members, so the destructor has to wait
  // until they have ended.
  while (!stop()) {
  }
}

HostPort Server::kafka() const {
  return parts_->entrances.front().address;
}
std::string Server::listeners() const {
  return parts_->listeners_text();
}
std::optional<HostPort> Server::admin() const {
  if (!parts_->admin) return std::nullopt;
  return *parse_host_port(parts_->admin->address());
}
const std::string& Server::data() const {
  return parts_->broker->identity().data_directory;
}
std::uint32_t Server::shards() const {
  return parts_->config.shards;
}
broker::Broker& Server::broker() {
  return *parts_->broker;
}

std::size_t Server::Parts::connection_limit() const {
  const auto open_files = open_files_limit();
  const std::size_t wanted = wanted_connections;
  const auto limit = connections_within(open_files, wanted, config.shards);
  if (limit < wanted) {
    log_warn("server",
             "at most {} connections are served, not max.connections={}: the limit of open files "
             "is {}, and the broker keeps some for its own files; raise the limit (`ulimit -n`, "
             "LimitNOFILE=)",
             limit, wanted, open_files);
  }
  return limit;
}

// Nothing where the admin has no TLS.  Before the threads run, or on the thread of reload().
Result<> Server::Parts::read_admin_certificate() {
  if (!admin || config.admin_tls.settings.empty()) return {};
  auto made = TlsContext::make(config.admin_tls, clock.wall());
  if (!made) return std::unexpected(made.error());
  // Points to OpenSSL's object, and keeps the TlsContext alive that owns it.
  const std::shared_ptr<ssl_ctx_st> context(*made, (*made)->get());
  // From the start of the threads on, the admin belongs to that of shard 0.
  if (running) {
    asio::post(loops[0]->context, [this, context] { admin->use_tls(context); });
  } else {
    admin->use_tls(context);
  }
  return {};
}

// Takes the addresses, and notes what clients are told of each.
Result<std::vector<BoundAddress>> Server::Parts::bind() {
  std::vector<BoundAddress> all;
  for (const auto& listener : config.listeners) {
    auto bound = BoundAddress::bind(listener.listen, "listeners");
    if (!bound) return std::unexpected(bound.error());
    HostPort advertised = listener.advertise.value_or(bound->advertised());
    // Clients are told the port that the kernel has chosen.
    if (advertised.port == 0) advertised.port = bound->address().port;
    std::shared_ptr<const TlsContext> tls;
    // At the start a certificate that cannot be used is an error, as a port in use is; later it
    // leaves the old one in use (read_certificates()).
    if (has_tls(listener.protocol)) {
      auto made = TlsContext::make(listener, clock.wall());
      if (!made) return std::unexpected(made.error());
      tls = std::move(*made);
    }
    auto info = info_of(listener, advertised);
    if (!info) return std::unexpected(info.error());
    entrances.push_back({bound->address(), std::move(*info), nullptr, nullptr, std::move(tls)});
    all.push_back(std::move(*bound));
  }
  return all;
}

void Server::Parts::make_listeners(std::vector<BoundAddress> bound) {
  rates = std::make_shared<ConnectionRates::Broker>(std::nullopt, broker->quota_meters());
  // Asked on shard 0's thread, which accepts: it reads its own image of the quotas, without a lock.
  rates->limit_of = [this](std::string_view ip) {
    return broker->security(broker->shard(0)).image->quotas().find_address(ip);
  };
  for (std::size_t i = 0; i < bound.size(); ++i) {
    Entrance& entrance = entrances[i];
    if (!bound[i].is_loopback() && !authenticates_clients(config.listeners[i])) {
      log_warn("server",
               "clients connect to {}, which is not loopback: anyone who can reach the port has "
               "full access",
               entrance.address.text());
      open_listeners.push_back(entrance.address.text());
    }
    for (const auto& warning : idle_mechanisms(config.listeners[i]))
      log_warn("server", "{}", warning);
    entrance.rates = std::make_unique<ConnectionRates>(std::nullopt, rates);
    entrance.listener = std::make_unique<Listener>(
        loops[0]->context, clock, std::move(bound[i]), *connections, *entrance.rates,
        [this, &entrance](int descriptor, asio::ip::tcp protocol, std::string peer) {
          ConnectionHandoff handoff{.descriptor = LooseDescriptor(descriptor),
                                    .protocol = protocol,
                                    .peer = std::move(peer)};
          handoff.origin.listener = entrance.info;
          accepted(entrance, std::move(handoff));
        });
  }
  if (rate_of.empty()) read_rates(config);
  set_rates();
}

void Server::Parts::read_rates(const Config& now) {
  const auto& general = now.listener_keys.settings;
  const auto all = general.find(connection_rate_key);
  rate_of_all = rate_limit(all == general.end() ? std::string_view() : all->second);
  rate_of.clear();
  for (const auto& listener : now.listeners)
    rate_of.push_back(rate_limit(listener.setting(connection_rate_key)));
}

void Server::Parts::set_rates() {
  rates->limit = rate_of_all;
  for (std::size_t i = 0; i < entrances.size(); ++i) entrances[i].rates->set_limit(rate_of[i]);
}

void Server::Parts::accepted(const Entrance& entrance, ConnectionHandoff handoff) {
  // The connection comes back through give_next() when its handshake is done.
  if (entrance.tls) return handshakes->begin(std::move(handoff), entrance.tls);
  give_next(std::move(handoff));
}

void Server::Parts::give_next(ConnectionHandoff handoff) {
  // Atomic: shard 0 comes here, and the threads of the handshakes.
  const auto next = next_shard.fetch_add(1, std::memory_order_relaxed);
  give(next % loops.size(), std::move(handoff));
}

// One for each listener; null where it has no TLS or its certificate cannot be used.
Server::Parts::TlsContexts Server::Parts::read_certificates(
    const std::vector<ListenerConfig>& listeners) const {
  TlsContexts contexts;
  for (const auto& listener : listeners) {
    auto& context = contexts.emplace_back();
    if (!has_tls(listener.protocol)) continue;
    auto made = TlsContext::make(listener, clock.wall());
    if (made) {
      context = std::move(*made);
    } else {
      log_error("server", "listener {} keeps its current certificate: {}", listener.name,
                made.error().message);
    }
  }
  return contexts;
}

void Server::Parts::use_certificates(const TlsContexts& contexts) {
  for (std::size_t i = 0; i < std::min(contexts.size(), entrances.size()); ++i) {
    // Certificates may change while the broker runs, a listener's protocol may not.
    if (!contexts[i] || !entrances[i].tls) continue;
    if (contexts[i]->description() != entrances[i].tls->description()) {
      log_info("server", "listener {} has a new certificate: {}", entrances[i].info->name,
               contexts[i]->description());
    }
    // For new connections; each that exists keeps the context that it began with.
    entrances[i].tls = contexts[i];
  }
}

std::string Server::Parts::listeners_text() const {
  std::vector<NamedAddress> all;
  for (const auto& entrance : entrances) all.push_back({entrance.info->name, entrance.address});
  return server::listeners_text(all);
}

// The addresses that clients are told.
std::string Server::Parts::advertised_text() const {
  std::vector<NamedAddress> all;
  for (const auto& entrance : entrances) {
    const auto& info = *entrance.info;
    all.push_back(
        {info.name, {info.advertised_host, static_cast<std::uint16_t>(info.advertised_port)}});
  }
  return server::listeners_text(all);
}

// Broker, sessions and wheels, on threads that have not begun.
Result<> Server::Parts::open() {
  pool = std::make_unique<BlockingPool>(BlockingPool::threads_for(loops.size()));

  broker::BrokerSetup setup;
  setup.config = config.broker;
  setup.disk = &disk;
  setup.clock = &clock;
  setup.random = &random;
  setup.on_failure = on_failure;
  live_config.emplace(
      config, [this](const Config& now) { settings_changed(now); },
      [this](const Config& now) -> Result<> {
        for (const auto& listener : now.listeners) {
          if (!has_tls(listener.protocol)) continue;
          // Made for the check alone: settings_changed() makes them again once the setting holds.
          if (const auto made = TlsContext::make(listener, clock.wall()); !made)
            return std::unexpected(made.error());
        }
        return {};
      });
  setup.settings = &*live_config;
  setup.config.advertised_host = entrances.front().info->advertised_host;
  setup.config.advertised_port = entrances.front().info->advertised_port;
  for (std::uint32_t i = 0; i < config.shards; ++i) {
    EventLoop& loop = *loops[i];
    loop.background = pool->background_for(loop.context);
    loop.round_lane = pool->dedicated_lane(loop.context, fmt::format("tarry-round-{}", i));
    setup.shards.push_back(
        {i, loop.context.get_executor(), loop.background.get(), loop.round_lane.get()});
  }
  // Before recovery and the threads, which read records by these names.
  delay::set_header_aliases(config.header_aliases);
  auto opened = broker::Broker::open(std::move(setup));
  if (!opened) return std::unexpected(opened.error());
  broker = std::move(*opened);

  const auto& recovery = broker->recovery();
  if (recovery.records > 0) {
    log_info("server", "recovery replayed {} records ({} bytes) from {} journals", recovery.records,
             recovery.bytes, recovery.journals);
  }
  log_info("server", "data directory {}: {} pending records", broker->identity().data_directory,
           broker->pending_counts().total());
  return {};
}

// The settings that the broker does not use itself.  On shard 0's thread, or before the threads
// run.
void Server::Parts::settings_changed(const Config& now) {
  set_log_level(now.log_level);
  set_log_format(now.log_format);
  shutdown_timeout = now.shutdown_timeout;
  limits = now.sessions;
  {
    const std::lock_guard lock(listeners_mutex);
    // A file that a client sets again is read again, even if the path is the same.
    listeners_now = now.listeners;
  }
  use_certificates(read_certificates(now.listeners));
  read_rates(now);
  if (rates) set_rates();
  const bool is_other_limit =
      wanted_connections.exchange(now.max_connections) != now.max_connections;
  wanted_of_address = now.max_connections_per_ip;
  if (connections) {
    // The limit of open files is looked at, and complained about, once for each change.
    connections->set_limits(is_other_limit ? connection_limit() : connections->max(),
                            wanted_of_address);
  }
  // There are none before the threads run; they are made with these limits.
  for (auto& front_end : front_ends) {
    asio::post(front_end->loop.context,
               [&sessions = front_end->sessions, limits = limits] { sessions.set_limits(limits); });
  }
}

Result<> Server::start() {
  Parts& parts = *parts_;
  // The addresses come first: a port in use is refused before anything on disk is touched.
  auto bound = parts.bind();
  if (!bound) return std::unexpected(bound.error());
  for (std::uint32_t i = 0; i < parts.config.shards; ++i)
    parts.loops.push_back(std::make_unique<Parts::EventLoop>());
  // Its address too is taken before the disk is touched.
  if (parts.config.admin) {
    admin::AdminOptions options;
    options.host = parts.config.admin->host;
    options.port = parts.config.admin->port;
    options.allowed_hosts = parts.config.admin_allowed_hosts;
    options.open_reads = parts.config.admin_open_reads;
    options.loopback_reads = parts.config.admin_loopback_reads;
    auto taken = admin::AdminServer::open(parts.loops[0]->context.get_executor(), options);
    if (!taken) return std::unexpected(taken.error());
    parts.admin = std::move(*taken);
    if (auto read = parts.read_admin_certificate(); !read) return read;
  }
  if (auto opened = parts.open(); !opened) {
    // Only the pool has threads yet.
    parts.end_threads();
    return opened;
  }
  // Everything that the threads use is made before they begin, so none of it needs a lock.
  for (std::size_t i = 0; i < parts.loops.size(); ++i) {
    parts.front_ends.push_back(std::make_unique<Parts::FrontEnd>(
        *parts.loops[i], *parts.broker, parts.broker->shard(i), parts.limits));
  }
  // With what clients have changed: the broker has recovered that above.
  parts.connections =
      std::make_unique<OpenConnections>(parts.connection_limit(), parts.wanted_of_address);
  parts.make_listeners(std::move(*bound));
  if (std::ranges::any_of(parts.entrances, [](const auto& entrance) { return !!entrance.tls; })) {
    parts.handshakes = std::make_unique<TlsHandshakes>(
        parts.clock, std::max<std::size_t>(1, parts.loops.size() / 2), TlsHandshakeLimits{},
        parts.broker->memory(),
        [&parts](ConnectionHandoff handoff) { parts.give_next(std::move(handoff)); },
        [&parts](const std::string& peer) { parts.connections->ended(peer); });
  }
  for (auto& front_end : parts.front_ends) {
    front_end->sessions.on_ended = [&parts](std::string_view peer) {
      parts.connections->ended(peer);
    };
    front_end->sessions.move_to = [&parts](broker::Shard& there, ConnectionHandoff handoff) {
      parts.give(there.index(), std::move(handoff));
    };
  }

  for (std::size_t i = 0; i < parts.loops.size(); ++i)
    parts.loops[i]->thread = std::thread([&parts, i] { parts.run_loop(*parts.loops[i], i); });
  // From here on stop() has threads to end.
  parts.running = true;
  const auto ready = std::make_shared<std::promise<void>>();
  parts.broker->start([ready] { ready->set_value(); });
  // Or the first record with x-cron-tz would hold up its shard.
  parts.loops[0]->background->run([] { delay::TimeZones::of_system().prepare(); }, [] {});
  for (auto& front_end : parts.front_ends)
    run_on(front_end->loop.context, [&front_end] { front_end->wheel.start(); });
  // A disk without space may delay the broker for ever; clients are served all the same.
  ready->get_future().wait_for(std::chrono::seconds{10});
  parts.disk_watch.emplace(
      disk_look_interval, [&parts] { parts.look_around(); }, "tarry-disk");
  const auto listening = run_on(parts.loops[0]->context, [&]() -> Result<> {
    if (parts.admin) {
      admin::KafkaFacts facts;
      facts.address = parts.entrances.front().address.text();
      facts.listeners = parts.listeners_text();
      facts.open_listeners = parts.open_listeners;
      facts.advertised = parts.advertised_text();
      facts.wanted_connections = [&parts] { return parts.wanted_connections.load(); };
      facts.max_connections = [&parts] { return parts.connections->max(); };
      if (auto begun = parts.admin->start(*parts.broker, std::move(facts)); !begun) return begun;
    }
    // Last, so that clients find everything else at work.
    for (auto& entrance : parts.entrances) {
      if (auto begun = entrance.listener->start(); !begun) return begun;
    }
    return {};
  });
  if (!listening) {
    // After an error nothing may run, however long the end takes.
    while (!stop()) {
    }
  }
  return listening;
}

// Each second, on a thread that is no shard's.
void Server::Parts::look_around() {
  broker->look_at_disk();
  if (!admin) return;
  admin->second_passed([this] {
    std::uint64_t turns = 0;
    for (const auto& loop : loops) turns += loop->turns.load(std::memory_order_relaxed);
    return turns;
  });
}

void Server::Parts::run_loop(EventLoop& loop, std::size_t index) {
  name_this_thread(fmt::format("tarry-shard-{}", index));
  try {
    auto& shard = broker->shard(index);
    run_turns(loop.context, broker->clock(), shard.turns, shard.busy_turns, thread_time,
              &loop.turns);
  } catch (const std::exception& e) {
    // An exception from a request ends its session.  This comes from the shard's own work, and no
    // other shard can take over its partitions.
    on_failure({Errc::io, fmt::format("shard {} ended: {}", index, e.what())});
  }
}

void Server::Parts::give(std::size_t index, ConnectionHandoff handoff) {
  Sessions& sessions = front_ends[index]->sessions;
  // Posted also to the thread that this runs on (shard 0 accepts): a connection begins in a turn of
  // its own.
  asio::post(front_ends[index]->loop.context, [&sessions, handoff = std::move(handoff)]() mutable {
    sessions.take(std::move(handoff));
  });
}

// Closes all sessions and waits until the last of their requests has ended.
Result<> Server::Parts::end_sessions() {
  // Only the first call closes the sessions; one after a timeout waits for the same futures.
  if (ending.empty()) {
    for (auto& front_end : front_ends) {
      auto ended = std::make_shared<std::promise<void>>();
      ending.push_back(ended->get_future());
      asio::post(front_end->loop.context, [&sessions = front_end->sessions, ended] {
        sessions.end("the broker is stopping", [ended] { ended->set_value(); });
      });
    }
  }
  const auto timeout = shutdown_timeout.load();
  // One deadline for all shards together.
  const auto until = std::chrono::steady_clock::now() + timeout;
  for (auto& ended : ending) {
    if (ended.wait_until(until) == std::future_status::ready) continue;
    return fail(
        Errc::stopped,
        fmt::format(
            "requests of {} connections are still running after tarry.shutdown.timeout.ms={}",
            connections->count(), timeout.count()));
  }
  return {};
}

void Server::Parts::end_threads() {
  if (pool) pool->stop();
  // The guards go after the pool: its last results are still posted to the shards.
  for (auto& loop : loops) loop->guard.reset();
  for (auto& loop : loops) {
    if (loop->thread.joinable()) loop->thread.join();
  }
}

void Server::reload() {
  Parts& parts = *parts_;
  std::vector<ListenerConfig> listeners;
  {
    const std::lock_guard lock(parts.listeners_mutex);
    listeners = parts.listeners_now;
  }
  // Files are read on this thread, so that no shard waits for them.
  auto contexts = parts.read_certificates(listeners);
  asio::post(parts.loops[0]->context,
             [&parts, contexts = std::move(contexts)] { parts.use_certificates(contexts); });
  for (const auto& entrance : parts.entrances) {
    if (entrance.info->token_logins) entrance.info->token_logins->read_again(true);
  }
  if (const auto read = parts.read_admin_certificate(); !read)
    log_error("server", "the admin keeps its current certificate: {}", read.error().message);
}

void Server::ask_shards(std::function<void()> all_answered) {
  const auto left = std::make_shared<std::atomic<std::size_t>>(parts_->loops.size());
  const auto last = std::make_shared<std::function<void()>>(std::move(all_answered));
  for (auto& loop : parts_->loops) {
    asio::post(loop->context, [left, last] {
      if (left->fetch_sub(1) == 1) (*last)();
    });
  }
}

Result<> Server::stop() {
  Parts& parts = *parts_;
  if (!parts.running) return {};
  // New clients first: otherwise the sessions below would never become fewer.
  run_on(parts.loops[0]->context, [&] {
    for (auto& entrance : parts.entrances) entrance.listener->stop();
    if (parts.admin) parts.admin->stop();
  });
  // A handshake that succeeds now would bring a shard another connection.
  if (parts.handshakes) parts.handshakes->stop();
  if (auto ended = parts.end_sessions(); !ended) return ended;
  // Nothing below can fail, so a second stop() has nothing left to do.
  parts.running = false;
  parts.disk_watch.reset();
  std::promise<void> stopped;
  parts.broker->stop([&] { stopped.set_value(); });
  stopped.get_future().wait();
  // The wheels turn until here, because the end of a shard may wait for a deadline (StopDrain).
  for (auto& front_end : parts.front_ends)
    run_on(front_end->loop.context, [&] { front_end->wheel.stop(); });
  parts.end_threads();
  return {};
}

}  // namespace tarry::server
