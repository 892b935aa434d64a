#include "relay/peers.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/log.h"
#include "relay/admin_json.h"
#include "relay/peer_client.h"

namespace tarry::relay {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using std::chrono::milliseconds;

// A stranger's request makes a new listing no more often.
constexpr milliseconds force_interval{1'000};
// A listing is used for so long.
constexpr milliseconds listing_age{500};

// Values nested deeper than members nest them could end the process.
bool is_flat(std::string_view text) {
  constexpr int max_depth = 64;
  int depth = 0;
  bool is_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_text) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        is_text = false;
    } else if (text[i] == '"') {
      is_text = true;
    } else if (text[i] == '[' || text[i] == '{') {
      if (++depth > max_depth) return false;
    } else if (text[i] == ']' || text[i] == '}') {
      --depth;
    }
  }
  return true;
}

awaitable<void> wait_for(asio::steady_timer& timer) {
  boost::system::error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

}  // namespace

// So many may be under way at once; the others wait.
struct Peers::Slots {
  Slots(asio::io_context& on, std::size_t count)
      : free(count), freed(on, asio::steady_timer::time_point::max()) {}

  std::size_t free;
  asio::steady_timer freed;

  class Slot {
   public:
    explicit Slot(std::shared_ptr<Slots> slots) : slots_(std::move(slots)) { --slots_->free; }
    ~Slot() {
      ++slots_->free;
      slots_->freed.cancel();
    }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;

   private:
    const std::shared_ptr<Slots> slots_;
  };
};

// The same question to all others.
struct Peers::Round {
  explicit Round(asio::io_context& on) : done(on, asio::steady_timer::time_point::max()) {}

  std::vector<Peer> to_ask;
  std::vector<PeerReply> told;
  std::size_t bytes = 0;  // The size of the answers that have come.
  std::size_t open = 0;   // Coroutines that still ask.
  asio::steady_timer done;
};

Peers::Peers(asio::io_context& io, Directory& directory, const Clock& clock, Random& random,
             PeerKey key, Peer self, const Limits& limits)
    : io_(io),
      directory_(directory),
      clock_(clock),
      random_(random),
      key_(std::move(key)),
      self_(std::move(self)),
      limits_(limits),
      questions_(std::make_shared<Slots>(io, limits.questions_at_once)),
      rounds_(std::make_shared<Slots>(io, limits.rounds_at_once)) {}

Peers::~Peers() {
  // A question that is under way uses the directory, which our owner destroys next.
  kafka_.join();
}

awaitable<void> Peers::sleep(milliseconds time) {
  asio::steady_timer timer(io_, time);
  co_await wait_for(timer);
}

awaitable<Result<Listing>> Peers::listing() {
  if (listed_at_ != MonoTime{} && clock_.mono() - listed_at_ < listing_age) co_return last_listing_;
  // Requests that come together share one question to Kafka.
  if (is_listing_) {
    const auto under_way = is_listing_;
    co_await wait_for(*under_way);
    co_return last_answer_;
  }
  is_listing_ = std::make_shared<asio::steady_timer>(io_, asio::steady_timer::time_point::max());
  // The directory is an argument, because a capture dies with the lambda and not with its
  // coroutine.
  auto question = [](Directory* from) -> awaitable<Result<Listing>> { co_return from->list(); };
  auto listed =
      co_await asio::co_spawn(kafka_.get_executor(), question(&directory_), asio::use_awaitable);
  if (listed) {
    last_listing_ = *listed;
    listed_at_ = clock_.mono();
  }
  last_answer_ = listed;
  is_listing_->cancel();
  is_listing_.reset();
  co_return listed;
}

awaitable<bool> Peers::has_signed(const web::Question& question) {
  const PeerRequest asked{question.method, question.target, question.body, self_.address,
                          self_.key};
  const auto signer = checks_.signer(question.authorization, asked, clock_.wall());
  if (!signer) co_return false;
  const auto is_signer = [&](const Peer& peer) { return peer.key == signer->key; };
  const auto known = co_await listing();
  bool is_known = known && std::ranges::any_of(known->peers, is_signer);
  if (!is_known && clock_.mono() - forced_at_ >= force_interval) {
    forced_at_ = clock_.mono();
    forget_listing();  // It may have joined just now.
    const auto again = co_await listing();
    is_known = again && std::ranges::any_of(again->peers, is_signer);
  }
  // Only a member's nonces are kept, so that no stranger fills the list.
  co_return is_known&& checks_.take(*signer, clock_.wall());
}

awaitable<PeerReply> Peers::ask(Peer peer, std::string method, std::string target, std::string body,
                                milliseconds timeout) {
  // Everyone that waits is woken for one free slot.
  while (questions_->free == 0) co_await wait_for(questions_->freed);
  const Slots::Slot slot(questions_);
  // Signed only now, because a signature grows old while it waits for a slot.
  const std::string nonce = fmt::format("{:016x}{:016x}", random_.u64(), random_.u64());
  std::string signature =
      key_.sign({method, target, body, peer.address, peer.key}, clock_.wall(), nonce);
  PeerCall asked{peer.address,         std::move(method), std::move(target),    std::move(body),
                 std::move(signature), timeout,           limits_.answer_bytes, trust_};
  const auto answered = co_await ask_peer(std::move(asked));
  PeerReply told{std::move(peer), Json()};
  if (!answered) {
    told.json = std::unexpected(answered.error());
    co_return told;
  }
  told.bytes = answered->body.size();
  Json json = is_flat(answered->body) ? parse_json(answered->body) : Json();
  if (answered->status == 200 && json.is_object()) {
    told.json = std::move(json);
  } else {
    const std::string error = text_in(json, "error");
    // A request that it refuses it has not begun.
    const bool is_refused = answered->status >= 400 && answered->status < 500;
    told.json = fail(is_refused ? Errc::invalid : Errc::io,
                     !error.empty()            ? error
                     : answered->status == 200 ? std::string(no_sense)
                                               : fmt::format("it answers {}", answered->status));
  }
  co_return told;
}

awaitable<void> Peers::ask_some(std::shared_ptr<Round> round, std::string target) {
  while (!round->to_ask.empty()) {
    Peer peer = std::move(round->to_ask.back());
    round->to_ask.pop_back();
    if (round->bytes >= limits_.round_bytes) {
      auto full = fail(Errc::too_large, fmt::format("it was not asked: the answers of others have "
                                                    "{} MiB already; ask for less",
                                                    round->bytes >> 20));
      round->told.push_back({std::move(peer), std::move(full)});
      continue;
    }
    PeerReply told{peer, fail(Errc::io, "the request failed")};
    try {
      told = co_await ask(std::move(peer), "GET", target, "", peer_timeout);
    } catch (const std::exception& failure) {
      log_error("relay", "the request to member {} at {} failed: {}", told.peer.instance,
                told.peer.address, failure.what());
    }
    round->bytes += told.bytes;
    round->told.push_back(std::move(told));
  }
}

awaitable<std::vector<PeerReply>> Peers::ask_all(const Listing& known, std::string target) {
  while (rounds_->free == 0) co_await wait_for(rounds_->freed);
  const Slots::Slot slot(rounds_);
  const auto round = std::make_shared<Round>(io_);
  for (const auto& peer : known.peers)
    if (!is_us(peer)) round->to_ask.push_back(peer);
  round->open = std::min(limits_.questions_at_once, round->to_ask.size());
  for (std::size_t i = round->open; i > 0; --i)
    asio::co_spawn(io_, ask_some(round, target), [round](const std::exception_ptr&) {
      if (--round->open == 0) round->done.cancel();
    });
  if (round->open > 0) co_await wait_for(round->done);
  co_return std::move(round->told);
}

std::set<Source> covered_by(const Json& answer) {
  std::set<Source> covered;
  for (const auto& each : field_of(answer, "covers")) covered.insert(source_in(each));
  return covered;
}

}  // namespace tarry::relay
