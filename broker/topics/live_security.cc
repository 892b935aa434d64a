#include "broker/topics/live_security.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"
#include "broker/context/one_shot_event.h"
#include "broker/context/shard_context.h"

namespace tarry::broker {
namespace {

// All rows of a journal record are applied in one turn of the shard.
constexpr std::ptrdiff_t rows_of_record = 256;

}  // namespace

LiveSecurity::LiveSecurity(ShardContext& shard, SecurityHost& host, storage::Catalog& catalog)
    : shard_(shard), host_(host), catalog_(catalog), turns_(shard.executor()) {}

boost::asio::awaitable<Result<>> LiveSecurity::change(std::vector<Change> changes) {
  shard_.assert_on_shard();
  // A transaction without an operation would be a record for nothing.
  if (changes.empty()) co_return Result<>{};
  co_await turns_.take();
  const TurnQueue::Turn turn(turns_);
  Result<> made = co_await make(std::move(changes));
  co_return made;
}

boost::asio::awaitable<PrincipalId> LiveSecurity::number_principal(std::string name) {
  shard_.assert_on_shard();
  // The name becomes a key.
  if (name.size() > max_principal_bytes) co_return further_principals;
  unnumbered_.insert(name);
  co_await turns_.take();
  const TurnQueue::Turn turn(turns_);
  co_await write_numbers();
  const auto& rows = catalog_.security_rows();
  if (const auto row = rows.find(SecurityImage::principal_key(name)); row != rows.end())
    co_return SecurityImage::read_principal(row->second).value_or(further_principals);
  co_return numbers().count >= max_principals ? further_principals : unknown_principal;
}

// Every change makes an image of all rows, so one is made for all that wait: after a restart of
// many producers these are many.
boost::asio::awaitable<void> LiveSecurity::write_numbers() {
  auto changes = numbers_for_all_waiting();
  if (changes.empty()) co_return;
  const std::size_t more = changes.size();
  Numbers given = numbers();
  // They are counted again unless it is certain what is written: no number may be given twice.
  numbers_.reset();
  const auto made = co_await make(std::move(changes));
  if (made) {
    given.count += more;
    given.last += static_cast<PrincipalId>(more);
    numbers_ = given;
    co_return;
  }
  // The first of several records may be written already.
  if (more <= static_cast<std::size_t>(rows_of_record)) numbers_ = given;
  unnoted_.warn(shard_.clock().mono(), "broker",
                fmt::format("{} users that produce for the first time could not be noted: {}", more,
                            made.error().message));
}

LiveSecurity::Numbers& LiveSecurity::numbers() {
  if (numbers_) return *numbers_;
  numbers_.emplace();
  const auto& rows = catalog_.security_rows();
  for (auto row = rows.lower_bound(SecurityImage::principal_prefix);
       row != rows.end() && row->first.starts_with(SecurityImage::principal_prefix); ++row) {
    ++numbers_->count;
    numbers_->last =
        std::max(numbers_->last, SecurityImage::read_principal(row->second).value_or(0));
  }
  return *numbers_;
}

std::vector<LiveSecurity::Change> LiveSecurity::numbers_for_all_waiting() {
  std::vector<Change> changes;
  if (unnumbered_.empty()) return changes;
  const auto& rows = catalog_.security_rows();
  auto [count, last] = numbers();
  for (const auto& name : std::exchange(unnumbered_, {})) {
    auto key = SecurityImage::principal_key(name);
    if (rows.contains(key)) continue;
    if (count >= max_principals) {
      if (!std::exchange(is_limit_told_, true)) {
        log_warn("broker",
                 "more than {} users have produced; the pending records of all further users are "
                 "counted together (logged once)",
                 max_principals);
      }
      break;
    }
    ++count;
    changes.push_back({std::move(key), SecurityImage::principal_value(++last)});
  }
  return changes;
}

boost::asio::awaitable<Result<>> LiveSecurity::make(std::vector<Change> changes) {
  Result<> written;
  bool any_written = false;
  for (auto first = changes.begin(); first != changes.end();) {
    auto last = first + std::min(rows_of_record, changes.end() - first);
    while (last != changes.end() && last->with_previous) ++last;
    written = co_await write({first, last});
    if (!written) break;
    any_written = true;
    // Piece by piece, because to free many strings takes long, too.
    for (; first != last; ++first) *first = {};
  }
  if (any_written) co_await host_.publish_security();
  co_return written;
}

boost::asio::awaitable<Result<>> LiveSecurity::write(std::span<const Change> changes) {
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
  // A journal that failed has been reported already.
  if (is_ours) shard_.journal_failed(result.error());
  co_return result;
}

}  // namespace tarry::broker
