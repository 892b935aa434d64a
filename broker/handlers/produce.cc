// Produce (key 0), versions 3 to 12 (advertised from 0, see table.cc).
//
// Every partition's batch takes its place in that partition's order before the request waits for
// anything (broker/scatter.h); one with very many batches, which runs alone on its connection,
// waits in between until those before are durable.  Then the request waits, on each shard that has
// partitions of it, until what it appended there is durable.  acks=1 and acks=all are the same
// here, because there is one copy.  acks=0 is not answered, and an error ends its connection, as in
// Kafka.  Other acks are refused after everything else was checked and before anything is taken, so
// that a client can ask what is wrong with a batch (cli/kafka/dry_run.h).

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"
#include "broker/broker.h"
#include "broker/context/cancellation_token.h"
#include "broker/context/countdown.h"
#include "broker/context/durability_wait.h"
#include "broker/context/yield_budget.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/pending_terms.h"
#include "broker/handlers/resolve.h"
#include "broker/handlers/run.h"
#include "broker/partitions/dead_letters.h"
#include "broker/scatter.h"
#include "protocol/messages/produce.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

const purgatory::Kind produce_kind{"produce"};

// A producer sends one batch for each partition at a time.  A request with more batches than this
// would hold its shards for longer than their other clients should notice.
constexpr std::size_t max_batches = 50'000;
// With more batches than this a request works in steps of so many, and is not pipelined: those
// behind it on its connection wait until it is answered, so that they overtake it in no partition.
constexpr std::size_t max_pipelined_batches = 500;
// The batches of a request are checked on their shard's thread for so long in one turn, and the
// rest of them on the pool: each that is short may take a few milliseconds if its records recur.
constexpr std::chrono::milliseconds checked_here{2};
// The memory of a batch beside its records: decoded, on its way, and its answer.
constexpr std::size_t bytes_a_batch = 512;

// `tarry produce` asks with these what is wrong with a record (cli/kafka/dry_run.cc); no client
// sends them by mistake.
constexpr std::int16_t acks_of_dry_run = -2;

// One partition of a request, from its bytes to its answer.
struct ProduceItem {
  TopicPartition id;
  std::string_view topic;  // Its name, in the request.
  Bytes records;
  std::shared_ptr<void> memory;  // Keeps the records' bytes, where they are most of the request.
  Appended result;
  protocol::ProduceResponse::PartitionResponse* answer;
  bool may_schedule, may_cancel;
  // The operation on NAME.invalid that the user needs for a bad record, and has no right to.
  std::optional<AclOperation> no_dead_letters = std::nullopt;
};

struct Terms {
  std::int16_t acks;
  std::chrono::milliseconds timeout;
  bool zstd_allowed;
  delay::PendingTerms pending;
  bool in_steps;  // It has very many batches, and runs alone on its connection.

  bool are_acks_valid() const { return acks >= -1 && acks <= 1; }
};

Appended failed_append(ErrorCode code, std::string why = {}) {
  Appended failed;
  failed.error = code;
  failed.message = std::move(why);
  return failed;
}

// No partition is there to refuse the batch, so the refusal is counted and noted for it.
Appended refuse_unopened(Shard& shard, const TopicPartition& id, ErrorCode error,
                         const Terms& terms) {
  // The topic is not there, or not any more.
  if (error != ErrorCode::kafka_storage_error) return failed_append(error);
  const std::string* why = shard.partitions().unopened_reason(id);
  Appended out =
      failed_append(error, why != nullptr ? fmt::format("the partition cannot be opened: {}", *why)
                                          : std::string(ShardContext::lost_directory_text));
  out.reason = why != nullptr ? "cannot_be_opened" : "out_of_service";
  if (!terms.are_acks_valid()) return out;  // The client only asks what is wrong with the batch.
  shard.notes().count_refusal(out.reason);
  shard.notes().refused(id, {shard.clock().wall(), id.partition, out.reason, out.message});
  return out;
}

// On the item's shard: its batch takes its place in its partition's order.  A partition that has to
// be opened first keeps the place for it.
void append_item(Shard& shard, ProduceItem& item, const Terms& terms, Countdown& appended,
                 bool on_pool) {
  const auto tell = [&item, &appended](Appended result) {
    item.result = std::move(result);
    appended.one_ended();
  };
  const auto append = [&shard, &item, tell, &terms, on_pool](Partitions::Found partition) {
    if (!partition) return tell(refuse_unopened(shard, item.id, partition.error(), terms));
    try {
      delay::PendingTerms pending = terms.pending;
      pending.may_schedule = item.may_schedule;
      pending.may_cancel = item.may_cancel;
      (*partition)
          ->append(item.records, terms.zstd_allowed, tell, std::move(item.memory),
                   // Only checked: with such acks nothing may be taken.
                   !terms.are_acks_valid(), pending, item.no_dead_letters.has_value(), on_pool);
    } catch (const std::exception& error) {
      tell(failed_append(ErrorCode::unknown_server_error, error.what()));
    }
  };
  // Only an item that did not throw is told its result later, so each is told once.
  try {
    shard.partitions().with(item.id, append);
  } catch (const std::exception& error) {
    tell(failed_append(ErrorCode::unknown_server_error, error.what()));
  }
}

// On the items' shard, without a wait in between, so that a later request overtakes this one in no
// partition.
void append_all(Shard& shard, std::span<ProduceItem> items, const Terms& terms,
                Countdown& appended) {
  const MonoTime begun = shard.clock().mono();
  for (ProduceItem& item : items)
    append_item(shard, item, terms, appended, shard.clock().mono() - begun > checked_here);
}

// The records that have to be durable, and written, before all of the items are answered.
struct LastRecords {
  std::optional<Lsn> durable, written;
};

LastRecords last_records_of(std::span<const ProduceItem> items) {
  LastRecords out;
  for (const ProduceItem& item : items) {
    if (!item.result.wait_for) continue;
    // The last one of each kind is enough, because a journal settles its records in order.
    auto& last = item.result.durability == storage::Durability::fsync ? out.durable : out.written;
    last = std::max(last.value_or(0), *item.result.wait_for);
  }
  return out;
}

// On the items' shard: appends, and waits until what was appended is durable.
asio::awaitable<void> produce_all(Shard& shard, std::span<ProduceItem> items, const Terms& terms,
                                  purgatory::Tick deadline, CancellationToken& token) {
  Countdown appended(items.size());
  append_all(shard, items, terms, appended);
  if (!appended.all_ended()) co_await appended.wait();
  // Nobody is told, so nothing has to be durable for it.
  if (terms.acks == 0) co_return;

  const auto [durable, written] = last_records_of(items);
  // Its client has gone; what it sent is taken all the same.
  if ((!durable && !written) || token.cancelled()) co_return;
  DurabilityWait waiting(shard, produce_kind, durable, written);
  const CancellationToken::Attached attached(token, waiting);
  if (co_await waiting.wait(deadline) == purgatory::Outcome::satisfied) co_return;
  for (ProduceItem& item : items) {
    if (!item.result.wait_for) continue;
    // Some may be safe although not all are: each is told what holds for itself.
    const Lsn lsn = *item.result.wait_for;
    const bool is_safe = item.result.durability == storage::Durability::fsync
                             ? waiting.is_durable(lsn)
                             : waiting.is_written(lsn);
    if (is_safe) continue;
    item.result.error = ErrorCode::request_timed_out;
    item.result.message = "the batch was not durable within the request's timeout";
  }
}

// The same for a request that runs alone on its connection.  A round of the journal settles all of
// its batches in one turn, so there are few of this request in each, even if nobody waits for it.
asio::awaitable<void> produce_in_steps(OnShard<ProduceItem>& there, const Terms& terms,
                                       purgatory::Tick deadline, CancellationToken& token) {
  std::span<ProduceItem> left(there.items.data(), there.items.size());
  while (!left.empty()) {
    const auto some = left.first(std::min(left.size(), max_pipelined_batches));
    left = left.subspan(some.size());
    co_await produce_all(*there.shard, some, terms, deadline, token);
    const auto [durable, written] = last_records_of(some);
    YieldBudget budget(*there.shard, nullptr);
    co_await budget.yield();
    if ((!durable && !written) || there.shard->stopping()) continue;
    DurabilityWait settled(*there.shard, produce_kind, durable, written);
    if (co_await settled.wait(purgatory::no_deadline) != purgatory::Outcome::satisfied) continue;
    // The deadline may have passed before; a producer that is told so would send them again.
    for (ProduceItem& item : some) {
      if (item.result.error != ErrorCode::request_timed_out) continue;
      item.result.error = ErrorCode::none;
      item.result.message.clear();
    }
  }
}

asio::awaitable<void> produce(OnShard<ProduceItem>& there, const Terms& terms,
                              CancellationToken& token) {
  const auto deadline = there.shard->tick_after(terms.timeout);
  if (terms.in_steps) return produce_in_steps(there, terms, deadline, token);
  const std::span<ProduceItem> items(there.items.data(), there.items.size());
  return produce_all(*there.shard, items, terms, deadline, token);
}

void fill_in(const ProduceItem& item, const Terms& terms) {
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

// A client could otherwise write through its bad records where it may not write.
void note_no_dead_letters(const RequestContext& context, const ProduceItem& item) {
  const auto name = dead_letter_topic(item.topic);
  note_denial(context.shard, context, *item.no_dead_letters, AclResource::topic, name);
  item.answer->error_message =
      fmt::format("{}: for dead letters the user also needs {} on the topic {}",
                  item.result.message, broker::name(*item.no_dead_letters), printable(name));
}

// A rule of the topic's own forbade it: it is counted and logged as any refusal, and the producer
// is told what it needs.
void note_forbidden(const RequestContext& context, const ProduceItem& item) {
  const std::string_view reason = item.result.reason;
  if (reason == may_not_dead_letter && item.no_dead_letters)
    return note_no_dead_letters(context, item);
  if (reason != delay::may_not_schedule && reason != delay::may_not_cancel) return;
  const auto name =
      resource_name_of(item.topic, reason == delay::may_not_cancel ? PendingAction::cancel
                                                                   : PendingAction::schedule);
  note_denial(context.shard, context, AclOperation::write, AclResource::topic, name);
  item.answer->error_message = fmt::format("{}: the user also needs WRITE on the topic {}",
                                           item.result.message, printable(name));
}

// The owner of the topic is shown whose batch was refused last.
void note_client(const RequestContext& context, const Terms& terms, const ProduceItem& item) {
  const Appended& result = item.result;
  if (result.error == ErrorCode::none || result.reason.empty() || !terms.are_acks_valid()) return;
  // The note of a deleted topic is dropped, and stays so.
  if (!context.shard.topics().find(item.id.topic)) return;
  context.shard.notes().refused_client(
      item.id,
      {context.shard.clock().wall(), item.id.partition, result.reason, result.refusal_text(),
       TopicNote::Client{std::string(context.header.client_id.value_or("")),
                         context.connection.principal(), context.connection.peer()}});
}

std::size_t read_count(protocol::Reader& reader, bool compact) {
  if (compact) return std::max<std::uint32_t>(reader.uvarint(), 1) - 1;
  std::int32_t count = 0;
  reader.number(count);
  return static_cast<std::size_t>(std::max(count, 0));
}

std::size_t batches_in(const protocol::ProduceRequest& request) {
  std::size_t count = request.topic_data.size();
  for (const auto& topic : request.topic_data) count += topic.partition_data.size();
  return count;
}

using ProduceTopic = protocol::ProduceRequest::TopicData;

// The operation on NAME.invalid that the user needs for a bad record, and has no right to.  Only
// topics with tarry.delay.invalid=dead-letter cost a look at the rules.
class DeadLetterRights {
 public:
  DeadLetterRights(const RequestContext& context, const storage::TopicsImage::TopicPtr& topic) {
    if (!topic || !context.shard.config().authorizer.enabled) return;
    // If another shard knows of a change of the config before this one, it refuses bad records.
    lacks_ = AclOperation::write;
    if (context.shard.config_of(*topic)->delay_invalid != InvalidRecords::dead_letter) return;
    const auto name = dead_letter_topic(topic->name);
    if (name.empty() || !is_allowed(context, AclOperation::write, AclResource::topic, name)) return;
    lacks_.reset();
    const auto known = context.shard.topics().find(name);
    partitions_ = known ? known->partitions : 0;
    const bool may_extend =
        known ? is_allowed(context, AclOperation::alter, AclResource::topic, name)
              : is_allowed(context, AclOperation::create, AclResource::cluster,
                           cluster_resource_name) ||
                    is_allowed(context, AclOperation::create, AclResource::topic, name);
    if (!may_extend) lacks_to_extend_ = known ? AclOperation::alter : AclOperation::create;
  }

  std::optional<AclOperation> lacks_for(PartitionIndex partition) const {
    return lacks_ || partition < partitions_ ? lacks_ : lacks_to_extend_;
  }

 private:
  std::optional<AclOperation> lacks_, lacks_to_extend_;
  std::int32_t partitions_ = 0;  // How many NAME.invalid has; 0: it does not exist yet.
};

// Looks up the batches of a topic from the place `from` on, at most so many, and adds those whose
// partition exists to `items`; the others get their error.  `answers` has a place for each.
void resolve_some(const RequestContext& context, const ProduceTopic& topic, std::size_t from,
                  std::size_t count, protocol::ProduceResponse::Response& answers,
                  ByShard<ProduceItem>& items) {
  // A client that may not write there is not told whether there is such a topic.
  const bool may = authorize_topic(context, AclOperation::write, topic.name);
  const auto known = may ? context.shard.topics().find(topic.name) : nullptr;
  const bool may_schedule = is_action_allowed(context, topic.name, PendingAction::schedule);
  const bool may_cancel = is_action_allowed(context, topic.name, PendingAction::cancel);
  const DeadLetterRights dead_letters(context, known);
  const std::size_t until = std::min(topic.partition_data.size() - from, count) + from;
  for (std::size_t i = from; i < until; ++i) {
    const auto& partition = topic.partition_data[i];
    auto& answer = answers.partition_responses.emplace_back();
    answer.index = partition.index;
    answer.base_offset = -1;
    const auto id = resolve(known, partition.index);
    if (!may) {
      answer.error_code = ErrorCode::topic_authorization_failed;
      continue;
    }
    if (!id) {
      answer.error_code = id.error();
      answer.error_message =
          known ? fmt::format("partition {} of topic {} does not exist; the last one is {}",
                              partition.index, printable(topic.name), known->partitions - 1)
                : fmt::format("topic {} does not exist", printable(topic.name));
      continue;
    }
    const Bytes records = partition.records.value_or(Bytes{});
    // A log that keeps the request instead of a copy keeps at most twice what it counts.
    const bool dominates_frame = records.size() >= context.frame_bytes / 2;
    items.add(context.broker.shard_of(*id), {*id,
                                             topic.name,
                                             records,
                                             dominates_frame ? context.frame : nullptr,
                                             {},
                                             &answer,
                                             may_schedule,
                                             may_cancel,
                                             dead_letters.lacks_for(partition.index)});
  }
}

protocol::ProduceResponse::Response& add_answers(protocol::ProduceResponse& response,
                                                 const ProduceTopic& topic) {
  auto& answers = response.responses.emplace_back();
  answers.name = topic.name;
  answers.partition_responses.reserve(topic.partition_data.size());  // The items point to them.
  return answers;
}

// The batches of a request by the shards of their partitions.  `response` gets a place for each,
// and the errors of those whose partition does not exist.
ByShard<ProduceItem> resolve_batches(const RequestContext& context,
                                     const protocol::ProduceRequest& request,
                                     protocol::ProduceResponse& response) {
  ByShard<ProduceItem> items;
  response.responses.reserve(request.topic_data.size());
  for (const auto& topic : request.topic_data) {
    auto& answers = add_answers(response, topic);
    resolve_some(context, topic, 0, topic.partition_data.size(), answers, items);
  }
  return items;
}

// The same of very many batches.
asio::awaitable<ByShard<ProduceItem>> resolve_in_steps(const RequestContext& context,
                                                       const protocol::ProduceRequest& request,
                                                       protocol::ProduceResponse& response,
                                                       YieldBudget& budget) {
  ByShard<ProduceItem> items;
  response.responses.reserve(request.topic_data.size());
  for (const auto& topic : request.topic_data) {
    if (budget.spend()) co_await budget.yield();
    auto& answers = add_answers(response, topic);
    for (std::size_t from = 0; from < topic.partition_data.size(); from += max_pipelined_batches) {
      if (budget.spend(max_pipelined_batches)) co_await budget.yield();
      resolve_some(context, topic, from, max_pipelined_batches, answers, items);
    }
  }
  co_return items;
}

// The text of an answer's error.  Names that a client chose are printable in it already.
std::string reason_of(const protocol::ProduceResponse::PartitionResponse& answer) {
  constexpr std::size_t longest = 1000;
  // The first bad record says more than "3 records are not valid".
  if (!answer.record_errors.empty() && answer.record_errors[0].batch_index_error_message)
    return answer.record_errors[0].batch_index_error_message->substr(0, longest);
  return answer.error_message.value_or("").substr(0, longest);
}

// Counts a batch if it failed, and logs it.
void note_error(RequestContext& context, const Terms& terms, const std::string& topic,
                const protocol::ProduceResponse::PartitionResponse& partition) {
  if (partition.error_code == ErrorCode::none) return;
  // A client that sends such acks asks what is wrong with its batch; it is told, and that is all.
  if (!terms.are_acks_valid() &&
      (partition.error_code != ErrorCode::invalid_required_acks || terms.acks == acks_of_dry_run))
    return;
  auto& errors = context.shard.produce_errors[partition.error_code];
  ++errors.batches;
  // With acks=0 an error ends the connection, and that end is logged.
  if (terms.acks == 0) return;
  // A request may have thousands of batches: a line is only made if it is written.
  const auto unwritten = errors.log.admit(context.shard.clock().mono());
  if (!unwritten) return;
  log_warn("broker", "a batch from {} (client id {}) for {}-{} failed: {}: {}{}",
           context.connection.peer(), printable(context.header.client_id.value_or("")),
           printable(topic), partition.index, protocol::name(partition.error_code),
           reason_of(partition),
           *unwritten == 0 ? "" : fmt::format(" ({} more since the last such line)", *unwritten));
}

// The producer's principal has no number, and none can be written down now.
void refuse_unnumbered(ByShard<ProduceItem>& items) {
  const Appended refused = failed_append(
      ErrorCode::kafka_storage_error,
      "the broker could not note the user of this batch, who produces for the first time "
      "(is the disk full?); try again");
  for (auto& there : items) {
    for (ProduceItem& item : there.items) item.result = refused;
  }
}

// Puts the results into the answer, and notes the errors.
void finish(RequestContext& context, const Terms& terms, const ByShard<ProduceItem>& items,
            const protocol::ProduceResponse& response) {
  for (const auto& there : items) {
    for (const ProduceItem& item : there.items) {
      fill_in(item, terms);
      note_forbidden(context, item);
      note_client(context, terms, item);
    }
  }
  for (const auto& topic : response.responses) {
    for (const auto& partition : topic.partition_responses)
      note_error(context, terms, topic.name, partition);
  }
}

// The same of very many batches.
asio::awaitable<void> finish_in_steps(RequestContext& context, const Terms& terms,
                                      const ByShard<ProduceItem>& items,
                                      const protocol::ProduceResponse& response,
                                      YieldBudget& budget) {
  for (const auto& there : items) {
    for (const ProduceItem& item : there.items) {
      if (budget.spend()) co_await budget.yield();
      fill_in(item, terms);
      note_forbidden(context, item);
      note_client(context, terms, item);
    }
  }
  for (const auto& topic : response.responses) {
    for (const auto& partition : topic.partition_responses) {
      if (budget.spend()) co_await budget.yield();
      note_error(context, terms, topic.name, partition);
    }
  }
}

}  // namespace

// Skims the request without decoding it, because it is asked of each before it begins.
bool has_many_batches(const RequestContext& context) {
  protocol::Reader reader(context.header.body);
  const bool compact = context.version() >= 9;
  std::optional<std::string_view> transactional_id;
  std::int16_t acks = 0;
  std::int32_t timeout_ms = 0;
  reader.nullable_string(compact, transactional_id);
  reader.number(acks);
  reader.number(timeout_ms);
  std::size_t batches = 0;
  const std::size_t topics = read_count(reader, compact);
  for (std::size_t topic = 0; topic < topics && reader.ok(); ++topic) {
    std::string_view name;
    reader.string(compact, name);
    const std::size_t partitions = read_count(reader, compact);
    // The count that a request claims is enough: one that lies is refused when it is decoded.
    batches += 1 + partitions;
    if (batches > max_pipelined_batches) return true;
    for (std::size_t partition = 0; partition < partitions && reader.ok(); ++partition) {
      std::int32_t index = 0;
      std::optional<Bytes> records;
      reader.number(index);
      reader.nullable_bytes(compact, records);
      if (compact) reader.skip_tagged_fields();
    }
    if (compact) reader.skip_tagged_fields();
  }
  return false;
}

asio::awaitable<Answer> run_produce(RequestContext context) {
  Result<protocol::ProduceRequest> request;
  // Another one takes its place in the order of its partitions before it waits for anything.
  if (has_many_batches(context)) {
    auto work = [&context] { return decode_request<protocol::ProduceRequest>(context); };
    request = co_await context.shard.blocking(std::move(work));
  } else {
    request = decode_request<protocol::ProduceRequest>(context);
  }
  if (!request) co_return undecodable(context, request.error());
  const std::size_t batches = batches_in(*request);
  if (batches > max_batches) {
    co_return Answer{{},
                     fmt::format("a Produce request has {} topics and batches; the limit is {}",
                                 batches, max_batches)};
  }
  context.charge.add(batches * bytes_a_batch);
  bool is_numbered = knows_principal(context);
  if (!is_numbered) is_numbered = co_await number_principal(context);
  std::string user;  // Named by the terms.
  const Terms terms{request->acks, std::chrono::milliseconds(std::max(request->timeout_ms, 0)),
                    context.version() >= 7, pending_terms(context, user),
                    batches > max_pipelined_batches};
  protocol::ProduceResponse response;
  YieldBudget budget(context.shard, nullptr);  // A batch is taken even if its client goes.
  ByShard<ProduceItem> items;
  if (terms.in_steps) {
    items = co_await resolve_in_steps(context, *request, response, budget);
  } else {
    items = resolve_batches(context, *request, response);
  }
  // A connection whose batches all go to one shard may move there.
  context.connection.note_shard(items.only_shard());
  const auto work = [&terms](OnShard<ProduceItem>& there, CancellationToken& token) {
    return produce(there, terms, token);
  };
  if (is_numbered) {
    co_await scatter(context.shard, &context.connection, items, work);
  } else {
    refuse_unnumbered(items);
  }
  if (terms.in_steps) {
    co_await finish_in_steps(context, terms, items, response, budget);
  } else {
    finish(context, terms, items, response);
  }
  // With acks=0 there is no answer that could tell the time, so it only mutes.
  const auto wait = throttle_produce(context, request->acks != 0);
  if (request->acks != 0) {
    response.throttle_time_ms = static_cast<std::int32_t>(wait.count());
    Answer answer = answer_with(context, response);
    answer.mute = wait;
    co_return answer;
  }
  for (const auto& topic : response.responses) {
    for (const auto& partition : topic.partition_responses) {
      if (partition.error_code == ErrorCode::none) continue;
      co_return Answer{{},
                       fmt::format("a Produce request with acks=0 failed for {}-{}: {}: {}",
                                   printable(topic.name), partition.index,
                                   protocol::name(partition.error_code), reason_of(partition))};
    }
  }
  Answer unanswered;
  unanswered.mute = wait;
  co_return unanswered;
}

}  // namespace tarry::broker
