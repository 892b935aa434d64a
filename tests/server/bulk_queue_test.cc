// BulkQueue: those that move much, in turn, and what is ready in between.

#include "server/bulk_queue.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <doctest/doctest.h>

namespace tarry::server {
namespace {

namespace asio = boost::asio;

// Each letter of `did` is a move of a connection, or "." for something short.
struct BulkWorld {
  asio::io_context context;
  BulkQueue bulk{context.get_executor()};
  std::string did;

  // So many moves of so many bytes, one after the other.
  void begin(char name, std::size_t bytes, int moves) {
    bulk.add([this, name, bytes, moves] {
      did += name;
      if (moves > 1) begin(name, bytes, moves - 1);
      return bytes;
    });
  }
  void say() {
    asio::post(context, [this] { did += '.'; });
  }
};

TEST_SUITE("bulk_queue") {
  TEST_CASE("connections move their bytes in turn, and all come to their end") {
    BulkWorld world;
    world.begin('a', BulkQueue::bytes_a_round, 3);
    world.begin('b', BulkQueue::bytes_a_round, 1);
    world.begin('c', 1, 2);
    world.context.run();
    CHECK(world.did == "abcaca");
    CHECK(world.bulk.waiting() == 0);
    // And whoever comes later.
    world.begin('d', 1, 2);
    world.context.restart();
    world.context.run();
    CHECK(world.did == "abcacadd");
  }

  TEST_CASE("what becomes ready waits for a round, however many connections have much to move") {
    BulkWorld world;
    for (char name = 'a'; name <= 'z'; ++name) world.begin(name, BulkQueue::bytes_a_round / 2, 2);
    while (world.did.empty()) world.context.run_one();
    world.say();
    world.context.run();
    CHECK(world.did.starts_with("abcd."));
    CHECK(world.did.size() == 2 * 26 + 1);
  }

  TEST_CASE("a move of a few bytes, or of none, takes its part of a round too") {
    BulkWorld world;
    constexpr int many = 1000;
    for (int i = 0; i < many; ++i) world.begin('x', static_cast<std::size_t>(i % 2), 1);
    while (world.did.empty()) world.context.run_one();
    CHECK(world.did.size() <= 16);
    world.context.run();
    CHECK(world.did.size() == many);
  }
}

}  // namespace
}  // namespace tarry::server
