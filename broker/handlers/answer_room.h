#pragma once

// reserve_charged(): reserves, and charges to the client, the memory of lists that have one element
// for each thing that a request names.
//
//   const bool room = co_await reserve_charged(context, request.topics.size(), response.topics);
//   if (!room) co_return response;
//
// They take it once, because a vector that grows moves all that it has in one turn of the shard.
// The request is charged for it before, because a thing of two bytes may be answered with some
// hundred.  If there is no memory, run() ends the connection, as for an AnswerMemory.

#include <cstddef>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "broker/context/request_context.h"

namespace tarry::broker {

// Smaller lists are not charged, so that small requests go on while others wait for memory.
inline constexpr std::size_t charged_room = std::size_t{256} << 10;

// False: nothing is reserved.
template <typename... Elements>
boost::asio::awaitable<bool> reserve_charged(RequestContext& context, std::size_t count,
                                             std::vector<Elements>&... lists) {
  const std::size_t bytes = count * (sizeof(Elements) + ...);
  if (bytes > charged_room) {
    const bool room = co_await context.charge.grow(bytes);
    if (!room) {
      context.out_of_memory = true;
      co_return false;
    }
  }
  (lists.reserve(count), ...);
  co_return true;
}

}  // namespace tarry::broker
