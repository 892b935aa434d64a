#include "broker/topics/live_security.h"

#include <utility>

#include "broker/context/one_shot_event.h"
#include "broker/context/shard_context.h"

namespace tarry::broker {

boost::asio::awaitable<Result<>> LiveSecurity::change(std::vector<Change> changes) {
  shard_.assert_on_shard();
  // A transaction without an operation would be a record for nothing.
  if (changes.empty()) co_return Result<>{};
  // With the disk's reserve: to lock somebody out must be possible when the disk is full.
  storage::JournalTransaction transaction(storage::Reserve::use);
  for (const auto& each : changes) {
    if (each.value) {
      transaction.add(storage::SecurityRowSet{each.key, *each.value});
    } else {
      transaction.add(storage::SecurityRowRemoved{each.key});
    }
  }
  OneShotEvent settled_event;
  Result<> result;
  bool is_ours = false;  // The catalog could not take what is in the journal.
  transaction.on_settled([&](const Result<>& safe) {
    result = safe;
    for (const auto& each : changes) {
      if (!result) break;
      result = each.value ? catalog_.apply(storage::SecurityRowSet{each.key, *each.value})
                          : catalog_.apply(storage::SecurityRowRemoved{each.key});
      is_ours = !result;
    }
    settled_event.fire();
  });
  if (const auto lsn = shard_.commit(std::move(transaction)); !lsn)
    co_return std::unexpected(lsn.error());
  co_await settled_event.wait();
  // A journal that failed has told of it already.
  if (is_ours) shard_.journal_failed(result.error());
  if (!result) co_return result;
  co_await host_.publish_security();
  co_return Result<>{};
}

}  // namespace tarry::broker
