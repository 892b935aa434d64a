// Fetch (key 1), versions 4 to 17.  Waits for min_bytes, but not past max_wait_ms, nor when there
// is nothing to wait for: a partition has an error, all of them have as much as may be returned of
// them, or one has more that this answer could not bring (a read of old segments ends with one of
// them).
//
// Fetch sessions are declined: the session id is 0, the epoch is ignored and every answer is full,
// which every client accepts (KIP-227).  Records are never null (trap 4): librdkafka fails the
// whole response.  Whole batches are returned, beginning with the one that contains the offset,
// which may begin before it; clients skip what they did not ask for.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "broker/broker.h"
#include "broker/delayed_fetch.h"
#include "broker/handlers/all.h"
#include "broker/handlers/run.h"
#include "protocol/messages/fetch.h"
#include "records/record_batch.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

struct Item {
  TopicPartition id;
  Offset from = 0;
  std::size_t max_bytes = 0;
  std::int32_t leader_epoch = -1;
  protocol::FetchResponse::Partition* answer = nullptr;
  std::int64_t seen_bytes = 0;  // Partition::visible_bytes(), with the high watermark.
  bool from_disk = false;
};

struct Group {
  Shard* shard;
  std::vector<Item> items;
};

// What has been read so far, over all groups.
struct Read {
  std::size_t bytes = 0;
  bool any_error = false;
};

void refuse(Item& item, ErrorCode code, Read& read) {
  item.answer->error_code = code;
  item.answer->high_watermark = -1;
  item.answer->records.pieces.clear();
  read.any_error = true;
}

// On the item's shard.
asio::awaitable<void> read_item(Shard& shard, Item& item, std::size_t max_bytes, Read& read) {
  auto& answer = *item.answer;
  answer.error_code = ErrorCode::none;
  answer.records.pieces.clear();
  // One epoch for ever: there is one broker.
  if (item.leader_epoch > 0) co_return refuse(item, ErrorCode::unknown_leader_epoch, read);

  const auto opened = co_await shard.partition(item.id);
  if (!opened) co_return refuse(item, opened.error(), read);
  // Retention may be faster than a read of an old segment; then the second look says so.
  for (int tries = 0; tries < 2; ++tries) {
    Partition* const partition = shard.open_partition(item.id);
    if (partition == nullptr || partition->retired())
      co_return refuse(item, ErrorCode::unknown_topic_or_partition, read);
    if (partition->fenced()) co_return refuse(item, ErrorCode::kafka_storage_error, read);
    answer.high_watermark = answer.last_stable_offset = partition->high_watermark();
    answer.log_start_offset = partition->log_start();
    item.seen_bytes = partition->visible_bytes();
    item.from_disk = false;
    const bool at_least_one = read.bytes == 0;
    auto found = partition->read(item.from, std::min(item.max_bytes, max_bytes), at_least_one);
    if (std::holds_alternative<storage::OffsetOutOfRange>(found)) {
      answer.error_code = ErrorCode::offset_out_of_range;
      read.any_error = true;
      co_return;
    }
    if (auto* pieces = std::get_if<std::vector<SharedBytes>>(&found)) {
      answer.records.pieces = std::move(*pieces);
      break;
    }
    item.from_disk = true;
    auto work = [disk_read = std::move(std::get<storage::DiskRead>(found))]() mutable {
      return disk_read.run();
    };
    auto pieces = co_await shard.blocking(std::move(work));
    if (pieces) {
      answer.records.pieces = std::move(*pieces);
      break;
    }
    if (pieces.error().code == Errc::not_found) continue;
    if (Partition* const still = shard.open_partition(item.id))
      still->fence(pieces.error().message);
    co_return refuse(item, ErrorCode::kafka_storage_error, read);
  }
  read.bytes += answer.records.size();
}

asio::awaitable<Read> read_group(Group& group, std::size_t max_bytes, Read read) {
  for (auto& item : group.items) {
    co_await read_item(*group.shard, item, max_bytes - std::min(max_bytes, read.bytes), read);
  }
  co_return read;
}

// The first offset that the answer does not have.
Offset next_offset(const Item& item) {
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

// What a first look without errors leaves to be waited for.
struct Wanting {
  std::vector<DelayedFetch::OnShard> seen;
  std::int64_t missing = 0;
  std::int64_t room = 0;
  bool more_is_there = false;

  bool worth_waiting() const { return missing > 0 && room > 0 && !more_is_there; }
};

Wanting what_is_missing(const std::vector<Group>& groups, std::size_t min_bytes) {
  Wanting out;
  out.missing = static_cast<std::int64_t>(min_bytes);
  for (const auto& group : groups) {
    auto& there = out.seen.emplace_back(DelayedFetch::OnShard{group.shard, {}});
    for (const auto& item : group.items) {
      const auto most = static_cast<std::int64_t>(item.max_bytes);
      const auto read = static_cast<std::int64_t>(item.answer->records.size());
      std::int64_t room = std::max<std::int64_t>(most - read, 0);
      out.missing -= read;
      if (next_offset(item) < item.answer->high_watermark) {
        if (item.from_disk) out.more_is_there = true;
        out.missing -= std::exchange(room, 0);  // It has them, the limits left them out.
      }
      out.room += room;
      there.partitions.push_back({item.id, item.from, item.seen_bytes, room});
    }
  }
  return out;
}

// The topic of a request, by its id or its name; what the answer calls it is filled in.
storage::TopicsImage::TopicPtr find_topic(const storage::TopicsImage& topics,
                                          const protocol::FetchRequest::Topic& asked, int version) {
  return version >= 13 ? topics.find(asked.topic_id) : topics.find(asked.topic);
}

asio::awaitable<protocol::FetchResponse> fetch(RequestContext& context,
                                               const protocol::FetchRequest& request) {
  Broker& broker = context.broker;
  protocol::FetchResponse response;
  Read unknown;
  std::vector<Group> groups;

  response.responses.reserve(request.topics.size());
  for (const auto& topic : request.topics) {
    auto& answers = response.responses.emplace_back();
    answers.topic = topic.topic;
    answers.topic_id = topic.topic_id;
    answers.partitions.reserve(topic.partitions.size());  // They are pointed to.
    const auto known = find_topic(context.shard.topics(), topic, context.version());
    for (const auto& partition : topic.partitions) {
      auto& answer = answers.partitions.emplace_back();
      answer.partition_index = partition.partition;
      answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = -1;
      if (!known || partition.partition < 0 || partition.partition >= known->partitions) {
        answer.error_code = !known && context.version() >= 13
                                ? ErrorCode::unknown_topic_id
                                : ErrorCode::unknown_topic_or_partition;
        unknown.any_error = true;
        continue;
      }
      const TopicPartition id{known->id, partition.partition};
      Shard* const shard = &broker.shard_of(id);
      auto group = std::ranges::find(groups, shard, &Group::shard);
      if (group == groups.end()) group = groups.insert(groups.end(), Group{shard, {}});
      group->items.push_back({id, partition.fetch_offset,
                              static_cast<std::size_t>(std::max(partition.partition_max_bytes, 0)),
                              partition.current_leader_epoch, &answer});
    }
  }

  const auto max_bytes =
      static_cast<std::size_t>(std::clamp(request.max_bytes, 0, broker.config().fetch_max_bytes));
  const auto min_bytes =
      std::min(static_cast<std::size_t>(std::max(request.min_bytes, 0)), max_bytes);
  const auto deadline =
      context.shard.tick_after(std::chrono::milliseconds(std::max(request.max_wait_ms, 0)));
  for (bool last_look = request.max_wait_ms <= 0 || groups.empty();; last_look = true) {
    Read read = unknown;
    for (auto& group : groups) {
      auto work = [&group, max_bytes, read] { return read_group(group, max_bytes, read); };
      read = co_await broker.on(context.shard, *group.shard, std::move(work));
    }
    if (read.bytes >= min_bytes || read.any_error || last_look) break;
    Wanting wanting = what_is_missing(groups, min_bytes);
    if (!wanting.worth_waiting() || context.connection.closed() || context.shard.stopping()) break;

    DelayedFetch waiting(context.shard, std::move(wanting.seen), wanting.missing);
    Connection::Parking parking(context.connection, waiting);
    co_await waiting.wait(deadline);
    if (context.connection.closed() || context.shard.stopping()) break;
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_fetch(RequestContext context) {
  return run<protocol::FetchRequest, fetch>(context);
}

}  // namespace tarry::broker
