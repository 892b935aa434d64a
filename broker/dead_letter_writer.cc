#include "broker/dead_letter_writer.h"

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "broker/context/one_shot_event.h"
#include "broker/partitions/dead_letters.h"
#include "broker/shard.h"
#include "broker/topics/topics.h"

namespace tarry::broker {
namespace {

namespace asio = boost::asio;
using protocol::ErrorCode;

// Both are called on the shard of the partition.
struct Written {
  OneShotEvent event;
  Result<> result;
};

// On the thread of `there`.
asio::awaitable<Result<>> append_there(Shard& there, std::string name, TopicPartition to,
                                       Buffer batch) {
  const auto found = co_await there.partitions().open(to);
  if (!found) {
    co_return fail(Errc::fenced, fmt::format("partition {}-{} cannot be opened: {}", name,
                                             to.partition, protocol::name(found.error())));
  }
  // Only the partition's callback owns what is waited for: if the process ends first, this
  // coroutine is destroyed with it.
  auto owned = std::make_shared<Written>();
  Written& written = *owned;
  (*found)->append_dead_letters(std::move(batch), [owned](Result<> result) {
    owned->result = std::move(result);
    owned->event.fire();
  });
  // Kept until here, because the callback may be called, and be gone, within that call.
  const bool waits = !written.event.fired();
  Result<> at_once = waits ? Result<>{} : written.result;
  owned.reset();
  if (!waits) co_return at_once;
  co_await written.event.wait();
  co_return written.result;
}

// On the thread of shard 0.  The answer comes when every shard knows the topic.
asio::awaitable<Result<>> provide(Topics& topics, std::string name, std::int32_t partitions) {
  Topics::NewTopic wanted;
  wanted.name = name;
  wanted.partitions = partitions;
  auto made = co_await topics.create(wanted);
  // Another partition may have created it meanwhile, perhaps with fewer partitions than are needed.
  if (!made && made.error().code == ErrorCode::topic_already_exists) {
    const auto known = topics.image()->find(name);
    if (known && known->partitions >= partitions) co_return Result<>{};
    made = co_await topics.add_partitions(name, partitions, false);
  }
  if (!made) {
    co_return fail(Errc::invalid, fmt::format("topic {} cannot be created with {} partitions: {}",
                                              name, partitions, made.error().message));
  }
  co_return Result<>{};
}

asio::awaitable<Result<>> write(DeadLetterRoutes routes, Shard& here, TopicPartition from,
                                Buffer batch) {
  // The caller may hold the partition in the middle of a change.
  co_await asio::post(here.executor(), asio::use_awaitable);
  const auto source = here.topics().find(from.topic);
  if (!source) co_return fail(Errc::not_found, "the topic is deleted");
  const std::string name = dead_letter_topic(source->name);
  const auto target = [&] {
    const auto known = here.topics().find(name);
    return known && known->partitions > from.partition ? known : nullptr;
  };
  if (!target()) {
    auto creation = provide(routes.topics, name, source->partitions);
    auto made =
        co_await asio::co_spawn(routes.first.executor(), std::move(creation), asio::use_awaitable);
    if (!made) co_return made;
  }
  const auto topic = target();
  if (!topic) co_return fail(Errc::not_found, fmt::format("topic {} is deleted", name));
  const TopicPartition to{topic->id, from.partition};
  Shard& there = routes.shard_of(to);
  auto appending = append_there(there, name, to, std::move(batch));
  const Result<> result =
      co_await asio::co_spawn(there.executor(), std::move(appending), asio::use_awaitable);
  // This may run inside a completion of the journal, and what follows writes to it.
  co_await asio::post(here.executor(), asio::use_awaitable);
  co_return result;
}

}  // namespace

void write_dead_letters(DeadLetterRoutes routes, Shard& here, TopicPartition from, Buffer batch,
                        std::move_only_function<void(Result<>)> done) {
  asio::co_spawn(here.executor(), write(std::move(routes), here, from, std::move(batch)),
                 [done = std::move(done)](std::exception_ptr failed, Result<> result) mutable {
                   if (failed)
                     return done(fail(Errc::exhausted, "the broker has too little memory"));
                   done(std::move(result));
                 });
}

}  // namespace tarry::broker
