#include "server/bulk_queue.h"

#include <algorithm>
#include <new>
#include <utility>

#include <boost/asio/post.hpp>

namespace tarry::server {
namespace {

// To move a few bytes, or to find that the connection has ended, takes its time too.
constexpr std::size_t min_bytes_counted = 16 * 1024;

}  // namespace

void BulkQueue::post_run() {
  boost::asio::post(executor_, [this] { run(); });
}

void BulkQueue::add(Move move) {
  waiting_.push_back(std::move(move));
  if (is_posted_) return;
  try {
    post_run();
    is_posted_ = true;
  } catch (const std::bad_alloc&) {
    waiting_.pop_back();
    throw;
  }
}

void BulkQueue::run() {
  for (std::size_t moved = 0; !waiting_.empty();) {
    if (moved >= bytes_a_round) {
      try {
        return post_run();
      } catch (const std::bad_alloc&) {
        // Nobody else would let those behind it in, so they have their turn at once.
      }
    }
    Move move = std::move(waiting_.front());
    waiting_.pop_front();
    moved += std::max(move(), min_bytes_counted);
  }
  is_posted_ = false;
}

}  // namespace tarry::server
