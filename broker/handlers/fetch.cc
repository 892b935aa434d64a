// Fetch (key 1), versions 4 to 17.  Waits for min_bytes, but not past max_wait_ms, nor when there
// is nothing to wait for: a partition has an error, all of them have as much as may be returned of
// them, or one has more that this answer could not bring (a read of old segments ends with one of
// them).
//
// Fetch sessions are declined: the session id is 0, the epoch is ignored and every answer is full,
// which every client accepts (KIP-227).  Records are never null: librdkafka fails the
// whole response.  Whole batches are returned, beginning with the one that contains the offset,
// which may begin before it; clients skip what they did not ask for.

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/core.h>

#include "broker/broker.h"
#include "broker/context/cancel_on_close.h"
#include "broker/context/yield_budget.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/delayed_fetch.h"
#include "broker/handlers/resolve.h"
#include "broker/handlers/run.h"
#include "broker/scatter.h"
#include "protocol/messages/fetch.h"
#include "records/record_batch.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

struct FetchItem {
  TopicPartition id;
  Offset from = 0;
  std::size_t max_bytes = 0;
  protocol::FetchResponse::Partition* answer = nullptr;
  std::int64_t seen_bytes = 0;  // Partition::visible_bytes(), with the high watermark.
  bool from_disk = false;
};

// The records read so far, on all shards.
struct Read {
  std::size_t bytes = 0;
  bool any_error = false;
  // The limit of one partition's bytes: small when clients hold much memory already.
  std::size_t fair_part = std::numeric_limits<std::size_t>::max();
};

// One read of the disk, whatever is asked for.
constexpr std::size_t max_disk_read = std::size_t{4} << 20;

void refuse_item(FetchItem& item, ErrorCode code, Read& read) {
  item.answer->error_code = code;
  item.answer->high_watermark = -1;
  item.answer->records.pieces.clear();
  read.any_error = true;
}

// Reads from memory; what is only on disk is returned, to be read by the pool.
std::optional<storage::DiskRead> read_memory(Partition& partition, FetchItem& item,
                                             std::size_t max_bytes, Read& read) {
  auto& answer = *item.answer;
  answer.error_code = ErrorCode::none;
  answer.records.pieces.clear();
  answer.high_watermark = answer.last_stable_offset = partition.high_watermark();
  answer.log_start_offset = partition.log_start();
  item.seen_bytes = partition.visible_bytes();
  item.from_disk = false;
  const std::size_t room = std::min(max_bytes - std::min(max_bytes, read.bytes), read.fair_part);
  const bool at_least_one = read.bytes == 0;
  auto found = partition.read(item.from, std::min(item.max_bytes, room), at_least_one);
  if (auto* disk = std::get_if<storage::DiskRead>(&found)) {
    item.from_disk = true;
    return std::move(*disk);
  }
  if (std::holds_alternative<storage::OffsetOutOfRange>(found)) {
    answer.error_code = ErrorCode::offset_out_of_range;
    read.any_error = true;
  } else {
    answer.records.pieces = std::move(std::get<std::vector<SharedBytes>>(found));
    read.bytes += answer.records.size();
  }
  return std::nullopt;
}

// Reads a partition that may have to be opened first, or be read from disk.  On its shard.
// `held` is charged for what comes from disk; without memory for it the partition brings nothing,
// and the client asks again.
asio::awaitable<void> read_item(Shard& shard, FetchItem& item, std::size_t max_bytes, Read& read,
                                Charge& held) {
  const auto opened = co_await shard.partitions().open(item.id);
  if (!opened) co_return refuse_item(item, opened.error(), read);
  // Retention may be faster than a read of an old segment; then the second look says so.
  for (int tries = 0; tries < 2; ++tries) {
    Partition* const partition = shard.partitions().find(item.id);
    if (partition == nullptr || partition->retired())
      co_return refuse_item(item, ErrorCode::unknown_topic_or_partition, read);
    if (partition->fenced()) co_return refuse_item(item, ErrorCode::kafka_storage_error, read);
    auto on_disk = read_memory(*partition, item, max_bytes, read);
    if (!on_disk) co_return;
    const auto wanted = std::min(std::min(item.max_bytes, read.fair_part), max_disk_read);
    if (!co_await held.grow(wanted)) co_return;
    auto work = [disk_read = std::move(*on_disk)]() mutable { return disk_read.run(); };
    auto pieces = co_await shard.blocking(std::move(work));
    if (pieces) {
      item.answer->records.pieces = std::move(*pieces);
      read.bytes += item.answer->records.size();
      co_return;
    }
    if (pieces.error().code == Errc::not_found) continue;
    // A lack of descriptors or memory passes, and says nothing about what is on the disk.
    if (pieces.error().code == Errc::exhausted)
      co_return refuse_item(item, ErrorCode::kafka_storage_error, read);
    // Damage stays, and the next reader would find it too.  A read that failed may succeed when the
    // client asks again, and what is appended meanwhile does not depend on it.
    Partition* const still = shard.partitions().find(item.id);
    if (still != nullptr && pieces.error().code == Errc::corrupt) {
      still->fence(pieces.error().message);
    } else {
      shard.log_failed_reads.error(
          shard.clock().mono(), "broker",
          fmt::format("a Fetch from partition {} of a topic could not be read, and the client is "
                      "told to ask again: {}",
                      item.id.partition, pieces.error().message));
    }
    co_return refuse_item(item, ErrorCode::kafka_storage_error, read);
  }
}

// With more partitions, others have their turn after so many of them.
constexpr std::size_t partitions_looked_at = 1000;

// Partitions that are not open are opened side by side, so many ahead of the one that is read.
constexpr std::size_t opened_ahead = 32;

asio::awaitable<Read> read_all(OnShard<FetchItem>& there, std::size_t max_bytes, Read read) {
  Charge held(there.shard->ledger(), nullptr);
  YieldBudget budget(*there.shard, nullptr);
  std::size_t ahead = 0;
  for (std::size_t i = 0; i < there.items.size(); ++i) {
    for (; ahead < std::min(i + opened_ahead, there.items.size()); ++ahead)
      there.shard->partitions().with(there.items[ahead].id, [](const Partitions::Found&) {});
    if (budget.spend()) co_await budget.yield();
    read.fair_part = there.shard->ledger().fair_part();
    co_await read_item(*there.shard, there.items[i], max_bytes, read, held);
  }
  co_return read;
}

// The same for partitions that are open and in memory, as most are: nothing is waited for.  False:
// they are not so, and `read` is as it was.
bool read_at_once(OnShard<FetchItem>& there, std::size_t max_bytes, Read& read) {
  // Very many are read in steps.
  if (there.items.size() > partitions_looked_at) return false;
  const Read before = read;
  for (auto& item : there.items) {
    Partition* const partition = there.shard->partitions().find(item.id);
    const bool can_be = partition != nullptr && !partition->retired() && !partition->fenced();
    if (!can_be || read_memory(*partition, item, max_bytes, read)) {
      read = before;
      return false;
    }
  }
  return true;
}

// The first offset that the answer does not have.
Offset next_offset(const FetchItem& item) {
  if (item.answer->records.pieces.empty()) return item.from;
  Offset next = item.from;
  for (Bytes left = item.answer->records.pieces.back().view(); !left.empty();) {
    const auto batch = records::next_batch(left);
    if (!batch) break;
    next = batch->last_offset() + 1;
    left = left.subspan(batch->size());
  }
  return next;
}

// The bytes that are still missing after a first look without errors.
struct MissingBytes {
  ByShard<SeenPartition> seen;
  std::int64_t bytes = 0;
  std::int64_t room = 0;
  bool more_available = false;

  bool worth_waiting() const { return bytes > 0 && room > 0 && !more_available; }
};

void add_missing(MissingBytes& out, Shard& shard, const FetchItem& item) {
  // One batch is always returned, however little was asked for.
  const auto max_bytes = std::max<std::int64_t>(static_cast<std::int64_t>(item.max_bytes), 1);
  const auto read = static_cast<std::int64_t>(item.answer->records.size());
  std::int64_t room = std::max<std::int64_t>(max_bytes - read, 0);
  out.bytes -= read;
  if (next_offset(item) < item.answer->high_watermark) {
    if (item.from_disk) out.more_available = true;
    out.bytes -= std::exchange(room, 0);  // It has them, the limits left them out.
  }
  out.room += room;
  out.seen.add(shard, {item.id, item.from, item.seen_bytes, room});
}

MissingBytes find_missing(const ByShard<FetchItem>& items, std::size_t min_bytes) {
  MissingBytes out;
  out.bytes = static_cast<std::int64_t>(min_bytes);
  for (const auto& there : items) {
    for (const auto& item : there.items) add_missing(out, *there.shard, item);
  }
  return out;
}

// The same of very many partitions.
asio::awaitable<MissingBytes> find_missing_in_steps(Shard& home, const ByShard<FetchItem>& items,
                                                    std::size_t min_bytes) {
  MissingBytes out;
  out.bytes = static_cast<std::int64_t>(min_bytes);
  YieldBudget budget(home, nullptr);
  for (const auto& there : items) {
    for (const auto& item : there.items) {
      if (budget.spend()) co_await budget.yield();
      add_missing(out, *there.shard, item);
    }
  }
  co_return out;
}

// The topic of a request, by its id or its name; what the answer calls it is filled in.
storage::TopicsImage::TopicPtr find_topic(const storage::TopicsImage& topics,
                                          const protocol::FetchRequest::Topic& asked, int version) {
  return version >= 13 ? topics.find(asked.topic_id) : topics.find(asked.topic);
}

// A request's partitions are looked at together and kept while it waits; consumers have some
// thousands of them at the most.
constexpr std::size_t max_fetch_partitions = 50'000;

// A request, taken apart.
struct FetchPlan {
  ByShard<FetchItem> items;
  Read refused;  // The error of the request itself.
  std::size_t max_bytes = 0;
  std::size_t min_bytes = 0;
  std::chrono::milliseconds max_wait{0};
};

// Takes a request apart, some of its partitions at a time.
class FetchPlanner {
 public:
  // The items point into `response`, which has a place for every partition that is asked for.
  FetchPlanner(const RequestContext& context, Shard& home, protocol::FetchResponse& response)
      : context_(context), home_(home), response_(response) {}

  Result<> decode() {
    auto decoded = decode_request<protocol::FetchRequest>(context_);
    if (!decoded) return std::unexpected(decoded.error());
    std::size_t partitions = 0;
    for (const auto& topic : decoded->topics) partitions += topic.partitions.size();
    if (partitions > max_fetch_partitions) {
      return fail(Errc::too_large,
                  fmt::format("a Fetch request names {} partitions; the limit is {}", partitions,
                              max_fetch_partitions));
    }
    request_ = std::move(*decoded);
    response_.responses.reserve(request_.topics.size());
    return {};
  }

  // Takes as many more partitions; true: there are more.
  bool take(std::size_t count) {
    for (; topic_ < request_.topics.size() && count > 0; ++topic_, partition_ = 0) {
      const std::size_t left = request_.topics[topic_].partitions.size() - partition_;
      const std::size_t taken = std::min(left, count);
      take_topic(taken);
      partition_ += taken;
      if (taken < left) return true;
      // The topic itself costs as much.
      count -= std::min(count, taken + 1);
    }
    return topic_ < request_.topics.size();
  }

  FetchPlan plan() {
    plan_.max_bytes = std::min(
        static_cast<std::size_t>(std::clamp(request_.max_bytes, 0, home_.config().fetch_max_bytes)),
        context_.fetch_limit);
    plan_.min_bytes =
        std::min(static_cast<std::size_t>(std::max(request_.min_bytes, 0)), plan_.max_bytes);
    plan_.max_wait = std::chrono::milliseconds(std::max(request_.max_wait_ms, 0));
    return std::move(plan_);
  }

 private:
  // Each time it is looked up again, because it may change between two steps.
  void take_topic(std::size_t count) {
    const auto& topic = request_.topics[topic_];
    if (partition_ == 0) {
      auto& begun = response_.responses.emplace_back();
      begun.topic = topic.topic;
      begun.topic_id = topic.topic_id;
      begun.partitions.reserve(topic.partitions.size());  // They are pointed to.
    }
    auto& answers = response_.responses.back();
    const auto known = find_topic(home_.topics(), topic, context_.version());
    // An id that nobody has names nothing that could be forbidden: it is answered as unknown.
    const bool may = (context_.version() >= 13 && !known) ||
                     authorize_on(home_, context_, AclOperation::read, AclResource::topic,
                                  known ? std::string_view(known->name) : topic.topic);
    for (std::size_t i = partition_; i < partition_ + count; ++i)
      take_partition(known, may, topic.partitions[i], answers.partitions.emplace_back());
  }

  void take_partition(const storage::TopicsImage::TopicPtr& known, bool may,
                      const protocol::FetchRequest::Partition& partition,
                      protocol::FetchResponse::Partition& answer) {
    answer.partition_index = partition.partition;
    answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = -1;
    const auto id = resolve(known, partition.partition, partition.current_leader_epoch);
    if (!may) {
      answer.error_code = ErrorCode::topic_authorization_failed;
      plan_.refused.any_error = true;
    } else if (!id) {
      answer.error_code =
          !known && context_.version() >= 13 ? ErrorCode::unknown_topic_id : id.error();
      plan_.refused.any_error = true;
    } else {
      plan_.items.add(
          context_.broker.shard_of(*id),
          {*id, partition.fetch_offset,
           static_cast<std::size_t>(std::max(partition.partition_max_bytes, 0)), &answer});
    }
  }

  const RequestContext& context_;
  Shard& home_;
  protocol::FetchResponse& response_;
  protocol::FetchRequest request_;
  FetchPlan plan_;
  std::size_t topic_ = 0, partition_ = 0;  // The next one.
};

Result<FetchPlan> take_apart(const RequestContext& context, Shard& home,
                             protocol::FetchResponse& response) {
  FetchPlanner planner(context, home, response);
  if (auto decoded = planner.decode(); !decoded) return std::unexpected(decoded.error());
  planner.take(std::numeric_limits<std::size_t>::max());
  return planner.plan();
}

// The same of very many partitions.
asio::awaitable<Result<FetchPlan>> take_apart_in_steps(const RequestContext& context, Shard& home,
                                                       protocol::FetchResponse& response) {
  FetchPlanner planner(context, home, response);
  auto work = [&planner] { return planner.decode(); };
  auto decoded = co_await home.blocking(std::move(work));
  if (!decoded) co_return std::unexpected(std::move(decoded.error()));
  YieldBudget budget(home, nullptr);
  while (planner.take(partitions_looked_at)) co_await budget.yield();
  co_return planner.plan();
}

// A request of fewer bytes has no more than some thousand topics and partitions.
constexpr std::size_t min_bytes_of_many = partitions_looked_at * 16;

// A partition's own shard knows sooner than ours that its topic is gone, but not that the request
// named it by its id.
void answer_unknown_ids(ByShard<FetchItem>& items) {
  for (auto& there : items) {
    for (auto& item : there.items) {
      if (item.answer->error_code == ErrorCode::unknown_topic_or_partition)
        item.answer->error_code = ErrorCode::unknown_topic_id;
    }
  }
}

// With less in a log's tail it is not worth telling views from copies.
constexpr std::size_t min_view = std::size_t{16} << 10;

Answer fetch_answer(const RequestContext& context, const protocol::FetchResponse& response,
                    const ByShard<FetchItem>& items) {
  std::vector<SharedViews::View> views;
  for (const auto& there : items) {
    for (const auto& item : there.items) {
      const auto& records = item.answer->records;
      if (item.from_disk || records.pieces.empty()) continue;
      if (const auto bytes = records.size(); bytes >= min_view)
        views.push_back({records.pieces.front().data(), bytes});
    }
  }
  Answer answer = answer_with(context, response);
  answer.tail_views = std::move(views);
  return answer;
}

asio::awaitable<Answer> fetch_on(Shard& there, const RequestContext& context);

// Looks, waits on `home` for what is missing, and looks again.  `given`: the client's token, where
// `home` is not its connection's shard; null: it is, and this has a token of its own.
//
// Thousands wait at a time, and their memory is in no cache when they go on.  So they wait in this
// one frame, with what has to be there alone: each look takes the request apart and makes an answer
// anew.  That of a long request is another, because it has steps in it.
template <bool is_long>
asio::awaitable<Answer> look_and_wait_for(Shard& home, RequestContext context,
                                          CancellationToken* given) {
  std::optional<CancelOnClose> own;
  CancellationToken& token =
      given != nullptr ? *given : *own.emplace(context.connection, home, home).token();
  const auto is_abandoned = [&] { return token.cancelled() || home.stopping(); };
  std::optional<purgatory::Tick> deadline;  // The deadline, counted from the first look.
  for (;;) {
    std::optional<DelayedFetch> waiting;
    Shard* elsewhere = nullptr;  // All of its partitions are there; null: here, or on several.
    {
      protocol::FetchResponse response;
      Result<FetchPlan> plan;
      if constexpr (is_long) {
        plan = co_await take_apart_in_steps(context, home, response);
      } else {
        plan = take_apart(context, home, response);
      }
      if (!plan) co_return undecodable(context, plan.error());
      const bool first_look = !deadline;
      if (first_look) deadline = home.tick_after(plan->max_wait);
      if (first_look && own) {
        Shard* const only = plan->items.only_shard();
        context.connection.note_shard(only);
        if (only != &home) elsewhere = only;
      }
      if (elsewhere == nullptr) {
        Read read = plan->refused;
        Charge brought(home.ledger(), nullptr);
        // One shard after the other, because what one returns is taken off what the next may
        // return.
        for (auto& there : plan->items) {
          if (there.shard == &home && read_at_once(there, plan->max_bytes, read)) continue;
          auto work = [&there, &plan, read] { return read_all(there, plan->max_bytes, read); };
          const std::size_t before = read.bytes;
          read = co_await context.broker.on(home, *there.shard, std::move(work));
          brought.add(read.bytes - before);
        }
        if (context.version() >= 13) answer_unknown_ids(plan->items);
        if (!first_look || plan->max_wait.count() == 0 || read.any_error ||
            read.bytes >= plan->min_bytes)
          co_return fetch_answer(context, response, plan->items);
        MissingBytes missing;
        if constexpr (is_long) {
          missing = co_await find_missing_in_steps(home, plan->items, plan->min_bytes);
        } else {
          missing = find_missing(plan->items, plan->min_bytes);
        }
        if (!missing.worth_waiting()) co_return fetch_answer(context, response, plan->items);
        if (is_abandoned()) co_return Answer{};
        waiting.emplace(home, std::move(missing.seen), missing.bytes);
      }
    }
    if (elsewhere != nullptr) co_return co_await fetch_on(*elsewhere, context);
    const CancellationToken::Attached attached(token, *waiting);
    waiting->begin(*deadline);
    co_await waiting->answered();
    if (is_abandoned()) co_return Answer{};
  }
}

// The size of a request tells before it is decoded.
asio::awaitable<Answer> look_and_wait(Shard& home, RequestContext context,
                                      CancellationToken* given) {
  return context.frame_bytes > min_bytes_of_many
             ? look_and_wait_for<true>(home, std::move(context), given)
             : look_and_wait_for<false>(home, std::move(context), given);
}

// All of its partitions are on another shard: it waits there, one hop away.
asio::awaitable<Answer> fetch_on(Shard& there, const RequestContext& context) {
  const CancelOnClose cancel_on_close(context.connection, context.shard, there);
  auto work = [&context, &there, token = cancel_on_close.token()] {
    RequestContext same{context.broker, context.shard, context.connection,
                        context.header, context.frame, context.frame_bytes};
    same.fetch_limit = context.fetch_limit;
    return look_and_wait(there, std::move(same), token.get());
  };
  co_return co_await context.broker.on(context.shard, there, std::move(work));
}

// For a client that has a quota.  An answer that exceeds it is not sent: the client gets an empty
// one, and asks again when it is read again.
asio::awaitable<Answer> fetch_metered(RequestContext context) {
  Shard& home = context.shard;
  RequestContext same{context.broker, context.shard, context.connection,
                      context.header, context.frame, context.frame_bytes};
  same.fetch_limit = context.fetch_limit = fetch_limit(context);
  Answer answer = co_await look_and_wait(home, std::move(same), nullptr);
  if (answer.frame.empty()) co_return answer;
  std::size_t bytes = 0;
  for (const auto& piece : answer.frame) bytes += piece.size();
  const auto wait = throttle_fetch(context, bytes);
  if (wait.count() == 0) co_return answer;
  protocol::FetchResponse empty;
  empty.throttle_time_ms = static_cast<std::int32_t>(wait.count());
  Answer throttled = answer_with(context, empty);
  throttled.mute = wait;
  co_return throttled;
}

}  // namespace

asio::awaitable<Answer> run_fetch(RequestContext context) {
  Shard& home = context.shard;
  if (is_metered(context)) return fetch_metered(std::move(context));
  return look_and_wait(home, std::move(context), nullptr);
}

}  // namespace tarry::broker
