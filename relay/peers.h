#pragma once

// Peers: the other members of the group, as the admin asks them: who they are, what each answers,
// and whether a request was signed by one of them.
//
//   listing()  the group as Kafka's coordinator knows it; asked again when the last answer is old
//   ask()      one member, with a signature that is good for this one request
//   ask_all()  the same of all others, several at a time
//
// Members' answers are bounded over all requests together, because anybody may listen at a
// member's address: each answer, the answers of one request, and the requests that ask at once.
//
// Belongs to the AdminServer; on its thread, but for questions to Kafka, which have one of their
// own.  Only for .cc files (base/json.h).

#include <chrono>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include "base/clock.h"
#include "base/json.h"
#include "base/random.h"
#include "base/result.h"
#include "relay/cluster.h"
#include "relay/directory.h"
#include "relay/peer_key.h"
#include "web/question.h"

namespace tarry::relay {

struct PeerTrust;

inline constexpr std::chrono::milliseconds peer_timeout{3'000};
inline constexpr std::string_view no_sense = "its answer is malformed";

// The answer of another member.  Errc::io: it is not known whether it has done what it was
// asked for; Errc::invalid: it has refused it.
struct PeerReply {
  Peer peer;
  Result<Json> json;
  std::size_t bytes = 0;  // The size of the answer.
};

class Peers {
 public:
  // So all answers together take 768 MiB at most, if every member lies as much as it can.
  struct Limits {
    std::size_t answer_bytes = 32u << 20;
    std::size_t round_bytes = 64u << 20;  // All answers to one request.
    std::size_t questions_at_once = 16;   // The bound for all requests together.
    std::size_t rounds_at_once = 4;       // Requests that ask all others.
  };

  // All references outlive it.  `self` is this member; `key` is its own.
  Peers(boost::asio::io_context& io, Directory& directory, const Clock& clock, Random& random,
        PeerKey key, Peer self, const Limits& limits);
  Peers(boost::asio::io_context& io, Directory& directory, const Clock& clock, Random& random,
        PeerKey key, Peer self)
      : Peers(io, directory, clock, random, std::move(key), std::move(self), Limits{}) {}
  ~Peers();

  // From now on others are asked over TLS.
  void use_tls(std::shared_ptr<PeerTrust> trust) { trust_ = std::move(trust); }

  bool is_us(const Peer& peer) const { return peer.key == self_.key; }

  boost::asio::awaitable<Result<Listing>> listing();
  // The next listing() asks Kafka: something has changed.
  void forget_listing() { listed_at_ = {}; }
  // Whether a member of the group has signed it, for this member.
  boost::asio::awaitable<bool> has_signed(const web::Question& question);

  boost::asio::awaitable<PeerReply> ask(Peer peer, std::string method, std::string target,
                                        std::string body, std::chrono::milliseconds timeout);
  // GET of all others that are listed.
  boost::asio::awaitable<std::vector<PeerReply>> ask_all(const Listing& known, std::string target);

  boost::asio::awaitable<void> sleep(std::chrono::milliseconds time);

 private:
  struct Round;
  struct Slots;

  // Asks one after the other until all are asked.
  boost::asio::awaitable<void> ask_some(std::shared_ptr<Round> round, std::string target);

  boost::asio::io_context& io_;
  Directory& directory_;
  const Clock& clock_;
  Random& random_;
  const PeerKey key_;
  const Peer self_;
  const Limits limits_;
  std::shared_ptr<PeerTrust> trust_;   // Null: plain HTTP.
  boost::asio::thread_pool kafka_{1};  // For questions to Kafka.
  PeerChecks checks_;
  Listing last_listing_;
  Result<Listing> last_answer_{};  // Kafka's, perhaps an error.
  MonoTime listed_at_{};
  MonoTime forced_at_{};
  // Requests wait on it for the listing that is under way; empty: none is.
  std::shared_ptr<boost::asio::steady_timer> is_listing_;
  // Shared with the coroutines that have taken one, which may outlive this.
  const std::shared_ptr<Slots> questions_, rounds_;
};

// The partitions that an answer covers.
std::set<Source> covered_by(const Json& answer);

}  // namespace tarry::relay
