// Produce (key 0), versions 3 to 12 (advertised from 0, see table.cc).
//
// Every partition's batch takes its place in that partition's order before the request waits for
// anything; then the request waits, on each shard it has partitions on, until what it appended
// there is durable.  acks=1 and acks=all are the same here: there is one copy.  acks=0 is not
// answered, and an error ends its connection, as in Kafka.  Other acks are refused after everything
// else was checked and before anything is taken, so that a client can ask what is wrong with a
// batch (cli/dry_run.h).

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>

#include "base/log.h"
#include "broker/broker.h"
#include "broker/context/cancel_on_close.h"
#include "broker/context/durability_wait.h"
#include "broker/handlers/all.h"
#include "broker/handlers/run.h"
#include "protocol/messages/produce.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

// A producer sends one batch a partition at a time; more cost their shard more than its producers
// notice.
constexpr std::size_t most_batches = 50'000;

// One partition of a request, from its bytes to its answer.
struct Item {
  TopicPartition id;
  Bytes records;
  std::shared_ptr<void> memory;  // What keeps them, where they are most of the request.
  Appended result;
  protocol::ProduceResponse::PartitionResponse* answer;
};

// The items of one shard.
struct Group {
  Shard* shard;
  std::vector<Item*> items;
  std::unique_ptr<CancelOnClose> cancel_on_close = nullptr;  // Of another shard's.
};

struct Terms {
  std::int16_t acks;
  std::chrono::milliseconds timeout;
  bool zstd_allowed;

  bool are_acks_valid() const { return acks >= -1 && acks <= 1; }
};

Appended failed_with(ErrorCode code, std::string why = {}) {
  Appended failed;
  failed.error = code;
  failed.message = std::move(why);
  return failed;
}

// Counts what is under way elsewhere; its OneShotEvent fires on the thread that the last one ends
// on.
struct Countdown {
  std::size_t left;
  OneShotEvent all_done;
  void one_done() {
    if (--left == 0) all_done.fire();
  }
};

// On the group's shard; one of the two, where its wait is cancelled from.
asio::awaitable<void> append_group(Group& group, const Terms& terms, Connection* connection,
                                   std::shared_ptr<CancellationToken> token) {
  Shard& shard = *group.shard;
  const auto deadline = shard.tick_after(terms.timeout);
  // No wait between the items: a partition that has to be opened first must not let a later
  // request overtake this one in the others.
  Countdown appended{group.items.size(), {}};
  for (Item* item : group.items) {
    const auto tell = [item, &appended](Appended result) {
      item->result = std::move(result);
      appended.one_done();
    };
    // Whoever throws does not tell; the others still point to what is here.
    try {
      shard.partitions().with(item->id,
                              [item, tell, &terms](std::expected<Partition*, ErrorCode> partition) {
                                if (!partition) return tell(failed_with(partition.error()));
                                try {
                                  (*partition)
                                      ->append(item->records, terms.zstd_allowed, tell,
                                               std::move(item->memory), !terms.are_acks_valid());
                                } catch (const std::exception& error) {
                                  tell(failed_with(ErrorCode::unknown_server_error, error.what()));
                                }
                              });
    } catch (const std::exception& error) {
      tell(failed_with(ErrorCode::unknown_server_error, error.what()));
    }
  }
  if (!appended.all_done.fired()) co_await appended.all_done.wait();
  if (terms.acks == 0) co_return;

  std::optional<Lsn> durable, written;
  for (const Item* item : group.items) {
    if (!item->result.wait_for) continue;
    auto& last = item->result.durability == storage::Durability::fsync ? durable : written;
    last = std::max(last.value_or(0), *item->result.wait_for);
  }
  if (!durable && !written) co_return;
  if (token ? token->cancelled() : connection->closed()) co_return;
  DurabilityWait waiting(shard, durable, written);
  std::optional<Connection::Parking> parking;
  std::optional<CancellationToken::Attached> attached;
  if (token) {
    attached.emplace(*token, waiting);
  } else {
    parking.emplace(*connection, waiting);
  }
  if (co_await waiting.wait(deadline) == purgatory::Outcome::satisfied) co_return;
  for (Item* item : group.items) {
    if (!item->result.wait_for) continue;
    const Lsn lsn = *item->result.wait_for;
    const bool there = item->result.durability == storage::Durability::fsync
                           ? waiting.is_durable(lsn)
                           : waiting.is_written(lsn);
    if (!there) {
      item->result.error = ErrorCode::request_timed_out;
      item->result.message = "the batch was not durable within the request's timeout";
    }
  }
}

void fill_in(const Item& item, const Terms& terms) {
  auto& answer = *item.answer;
  const Appended& result = item.result;
  answer.error_code = result.error;
  answer.log_start_offset = result.log_start;
  const bool is_right = result.error == ErrorCode::none ||  // One that was there already.
                        result.error == ErrorCode::invalid_required_acks;
  if (is_right && !terms.are_acks_valid()) {
    answer.error_code = ErrorCode::invalid_required_acks;
    answer.error_message = fmt::format("acks={} is not allowed; use -1, 0 or 1", terms.acks);
    answer.base_offset = -1;
    return;
  }
  if (result.error == ErrorCode::none) {
    answer.base_offset = result.base_offset;
    answer.log_append_time_ms = result.log_append_time;
    return;
  }
  answer.base_offset = -1;
  if (!result.message.empty()) answer.error_message = result.message;
  for (const auto& bad : result.bad_records)
    answer.record_errors.push_back({bad.index, bad.message});
}

std::size_t batches_in(const protocol::ProduceRequest& request) {
  std::size_t count = request.topic_data.size();
  for (const auto& topic : request.topic_data) count += topic.partition_data.size();
  return count;
}

asio::awaitable<protocol::ProduceResponse> produce(RequestContext& context,
                                                   const protocol::ProduceRequest& request,
                                                   const Terms& terms) {
  Broker& broker = context.broker;
  protocol::ProduceResponse response;
  std::vector<Item> items;
  items.reserve(batches_in(request));  // They are pointed to.
  std::vector<Group> groups;

  response.responses.reserve(request.topic_data.size());
  for (const auto& topic : request.topic_data) {
    auto& answers = response.responses.emplace_back();
    answers.name = topic.name;
    answers.partition_responses.reserve(topic.partition_data.size());  // They are pointed to.
    const auto known = context.shard.topics().find(topic.name);
    for (const auto& partition : topic.partition_data) {
      auto& answer = answers.partition_responses.emplace_back();
      answer.index = partition.index;
      answer.base_offset = -1;
      if (!known || partition.index < 0 || partition.index >= known->partitions) {
        answer.error_code = ErrorCode::unknown_topic_or_partition;
        answer.error_message =
            known ? fmt::format("partition {} of topic {} does not exist; the last one is {}",
                                partition.index, printable(topic.name), known->partitions - 1)
                  : fmt::format("topic {} does not exist", printable(topic.name));
        continue;
      }
      const Bytes records = partition.records.value_or(Bytes{});
      // A log that keeps the request instead of a copy keeps at most twice what it counts.
      const bool is_most = records.size() >= context.frame_bytes / 2;
      items.push_back(
          {{known->id, partition.index}, records, is_most ? context.frame : nullptr, {}, &answer});
      Shard* const shard = &broker.shard_of(items.back().id);
      auto group = std::ranges::find(groups, shard, &Group::shard);
      if (group == groups.end()) group = groups.insert(groups.end(), Group{shard, {}});
      group->items.push_back(&items.back());
    }
  }

  context.connection.asked_of(groups.size() == 1 ? groups[0].shard : nullptr);
  // The other shards first, so that they work while this one does, and in the order of requests.
  Group* own = nullptr;
  Countdown elsewhere{0, {}};
  for (auto& group : groups) {
    if (group.shard == &context.shard) {
      own = &group;
    } else {
      ++elsewhere.left;
    }
  }
  std::exception_ptr failed;
  for (auto& group : groups) {
    if (&group == own) continue;
    try {
      group.cancel_on_close =
          std::make_unique<CancelOnClose>(context.connection, context.shard, *group.shard);
      asio::co_spawn(group.shard->executor(),
                     append_group(group, terms, nullptr, group.cancel_on_close->token()),
                     [&elsewhere, &failed, &home = context.shard](std::exception_ptr error) {
                       asio::post(home.executor(), [&elsewhere, &failed, error] {
                         if (error) failed = error;
                         elsewhere.one_done();
                       });
                     });
    } catch (...) {
      failed = std::current_exception();
      --elsewhere.left;
    }
  }
  const bool any_elsewhere = elsewhere.left > 0;
  const std::shared_ptr<CancellationToken> here;
  if (own != nullptr) {
    try {
      co_await append_group(*own, terms, &context.connection, here);
    } catch (...) {
      failed = std::current_exception();
    }
  }
  // Whatever became of the others: they work with what is here.
  if (any_elsewhere && !elsewhere.all_done.fired()) co_await elsewhere.all_done.wait();
  if (failed) std::rethrow_exception(failed);
  for (const auto& item : items) fill_in(item, terms);
  co_return response;
}

// What a client chose is printable in it already.
std::string reason_of(const protocol::ProduceResponse::PartitionResponse& answer) {
  constexpr std::size_t longest = 1000;
  // The first bad record says more than "3 records are not valid".
  if (!answer.record_errors.empty() && answer.record_errors[0].batch_index_error_message)
    return answer.record_errors[0].batch_index_error_message->substr(0, longest);
  return answer.error_message.value_or("").substr(0, longest);
}

// Counts the batches that failed, and logs them.
void note_errors(RequestContext& context, const Terms& terms,
                 const protocol::ProduceResponse& response) {
  // With acks=0 the end of the connection is logged.
  const bool logged = terms.acks != 0;
  for (const auto& topic : response.responses) {
    for (const auto& partition : topic.partition_responses) {
      if (partition.error_code == ErrorCode::none) continue;
      // The client wanted to know, and not to have it taken.
      if (!terms.are_acks_valid() && partition.error_code != ErrorCode::invalid_required_acks)
        continue;
      auto& errors = context.shard.produce_errors[partition.error_code];
      ++errors.batches;
      if (!logged) continue;
      // A request has thousands of batches, and lines that are not written are not made.
      const auto unwritten = errors.log.admit(context.shard.clock().mono());
      if (!unwritten) continue;
      log_warn(
          "broker", "a batch from {} (client id {}) for {}-{} failed: {}: {}{}",
          context.connection.peer(), printable(context.header.client_id.value_or("")),
          printable(topic.name), partition.index, protocol::name(partition.error_code),
          reason_of(partition),
          *unwritten == 0 ? "" : fmt::format(" ({} more since the last such line)", *unwritten));
    }
  }
}

}  // namespace

asio::awaitable<Answer> run_produce(RequestContext context) {
  const auto request = decode_request<protocol::ProduceRequest>(context);
  if (!request) co_return undecodable(context, request.error());
  if (const auto batches = batches_in(*request); batches > most_batches) {
    co_return Answer{{},
                     fmt::format("a Produce request has {} topics and batches; the limit is {}",
                                 batches, most_batches)};
  }
  const Terms terms{request->acks, std::chrono::milliseconds(std::max(request->timeout_ms, 0)),
                    context.version() >= 7};
  const auto response = co_await produce(context, *request, terms);
  note_errors(context, terms, response);
  if (request->acks != 0) co_return answer_with(context, response);
  for (const auto& topic : response.responses) {
    for (const auto& partition : topic.partition_responses) {
      if (partition.error_code == ErrorCode::none) continue;
      co_return Answer{{},
                       fmt::format("a Produce request with acks=0 failed for {}-{}: {}: {}",
                                   printable(topic.name), partition.index,
                                   protocol::name(partition.error_code), reason_of(partition))};
    }
  }
  co_return Answer{};
}

}  // namespace tarry::broker
