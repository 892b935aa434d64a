#pragma once

// on_each_shard(): does the same on the thread of each shard, one after the other.
//
//   const auto take = [&sum](Shard& shard) -> awaitable<void> { sum += ...; co_return; };
//   co_await on_each_shard(broker, here, take);
//
// So all of them may write to the same thing.  `work` outlives the call; it is named, because g++
// 12 destroys a temporary callable twice (GCC bug 99576).

#include <cstddef>
#include <utility>

#include <boost/asio/awaitable.hpp>

#include "broker/broker.h"

namespace tarry::broker {

template <typename Work>
boost::asio::awaitable<void> on_each_shard(Broker& broker, Shard& here, const Work& work) {
  for (std::size_t i = 0; i < broker.shard_count(); ++i) {
    Shard& shard = broker.shard(i);
    auto there = [&work, &shard] { return work(shard); };
    co_await broker.on(here, shard, std::move(there));
  }
}

}  // namespace tarry::broker
