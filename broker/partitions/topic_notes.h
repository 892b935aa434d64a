#pragma once

// TopicNotes: what the producers of a topic got wrong, for its owner to see.
//
//   Partition: refused(), slipped() ------+--> note of its topic --copied--> views/topic_note.h,
//   Produce handler: refused_client() ----'                                  over all shards
//
// A partition does not know the client, whose connection may be on another shard.  So the handler
// notes the refusal once more on the connection's shard, with the client, and the later of the two
// is shown.
//
// Several senders may be refused at the same time, so the handler's notes are also kept by sender
// and message: the latest of each topic, and of all topics of the shard together.
//
// A shard has a note for each topic of which one of its partitions had something to note, and drops
// it with the topic; a note is of bounded size.
//
// One a shard, on its thread.

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "broker/context/once_per_topic.h"
#include "delay/header_slips.h"
#include "records/batch_check.h"

namespace tarry::broker {

struct TopicNote {
  struct Client {
    std::string id;  // As it calls itself.
    std::string principal;
    std::string address;
  };
  struct Refusal {
    WallTime at{};
    PartitionIndex partition = 0;
    std::string_view reason;  // A literal.
    std::string message;
    std::optional<Client> client = std::nullopt;  // Empty: not known.
  };
  // Batches of one client id, principal and host that were refused with the same message.
  struct RefusedSender {
    Refusal last;
    std::uint64_t batches = 1;
  };
  static constexpr std::size_t max_senders = 16;
  std::uint64_t refused = 0;  // Batches.
  std::optional<Refusal> last_refusal;
  // The latest first, at most max_senders.  Batches whose client did not wait for the answer, and
  // those of senders that were dropped, count in `refused` only.
  std::vector<RefusedSender> refused_senders;
  std::uint64_t dead_letters = 0;           // Records.
  std::optional<Refusal> last_dead_letter;  // Without a reason.
  delay::HeaderSlips slips;                 // Slips in accepted batches.

  // Adds the note of another shard.
  void add(const TopicNote& other);
};

class TopicNotes {
 public:
  // The limits of a message, and of each text about a client, that are kept.
  static constexpr std::size_t max_message_bytes = 1000;
  static constexpr std::size_t max_client_bytes = 255;
  // The limit of senders of all topics: with their texts they take a quarter of a mebibyte.
  static constexpr std::size_t max_senders = 128;

  explicit TopicNotes(OncePerTopic& slips_logged) : slips_logged_(slips_logged) {}

  // The headers of an accepted batch; the first of a topic are logged.
  void slipped(const TopicPartition& partition, std::string_view topic_name,
               const delay::HeaderSlips& slips);
  std::uint64_t slips_total() const { return slips_total_; }

  // A partition refused a batch.  Reasons are literals, so there are few.
  void count_refusal(std::string_view reason) { ++refusals_[reason]; }
  const std::map<std::string_view, std::uint64_t>& refusals() const { return refusals_; }
  void refused(const TopicPartition& partition, TopicNote::Refusal refusal);
  // The same refusal, which its partition has counted, with its client.
  void refused_client(const TopicPartition& partition, TopicNote::Refusal refusal);

  // A batch was accepted without these, which are in the topic of dead letters.
  void dead_lettered(const TopicPartition& partition, WallTime now,
                     std::span<const records::BadRecord> records);
  std::uint64_t dead_letters_total() const { return dead_letters_total_; }

  // Null: there is nothing to note.
  const TopicNote* find(const TopicId& topic) const;
  // The same with the senders; empty: there is nothing to note.
  std::optional<TopicNote> copy(const TopicId& topic) const;
  // The topic is deleted.
  void forget(const TopicId& topic);

 private:
  struct Sender {
    TopicId topic;
    TopicNote::RefusedSender refused;
  };

  void note_sender(const TopicId& topic, const TopicNote::Refusal& refusal);

  OncePerTopic& slips_logged_;
  std::unordered_map<TopicId, TopicNote> notes_;  // Without their senders.
  std::list<Sender> senders_;                     // The latest first.
  std::uint64_t slips_total_ = 0;
  std::uint64_t dead_letters_total_ = 0;
  std::map<std::string_view, std::uint64_t> refusals_;  // By reason.
};

}  // namespace tarry::broker
