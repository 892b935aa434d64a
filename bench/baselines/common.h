#pragma once

// The parts that the baselines share: time, callbacks, nodes from a pool and lists through them.
//
// A baseline is an older design of a timer, built well and in its own terms, so that ours can be
// measured beside it.  All of them live in virtual time: ticks come in through advance(now), which
// fires everything that is due by then, and a deadline fires in the first advance() that reaches
// it. One that has passed already fires at the next tick at the latest.  Callbacks may add and
// cancel whatever they like.  One thread, unless a header says otherwise.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace tarry::baselines {

using Tick = std::uint64_t;

struct Callback {
  void (*function)(void* argument) = nullptr;
  void* argument = nullptr;

  void operator()() const { function(argument); }
};

// Nodes in slabs that double up to 4096, and a free list through their member `next`.  A step that
// costs an allocation in the language that a design comes from, costs a few instructions here.
template <class Node>
class NodePool {
 public:
  Node* take() {
    if (free_ == nullptr) grow();
    return std::exchange(free_, static_cast<Node*>(free_->next));
  }
  void give_back(Node* node) { node->next = std::exchange(free_, node); }

 private:
  void grow() {
    const std::size_t count = slabs_.size() < 7 ? std::size_t{64} << slabs_.size() : 4096;
    slabs_.push_back(std::make_unique<Node[]>(count));
    for (std::size_t i = count; i-- > 0;) give_back(&slabs_.back()[i]);  // The first one on top.
  }

  Node* free_ = nullptr;
  std::vector<std::unique_ptr<Node[]>> slabs_;
};

// A place in a doubly linked ring.  A list is a Link that belongs to no node; a node can leave
// whatever list it is in without knowing which.
struct Link {
  Link* next = this;
  Link* previous = this;

  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  bool empty() const { return next == this; }
  void push_back(Link* node) {
    node->previous = previous;
    node->next = this;
    previous->next = node;
    previous = node;
  }
  static void unlink(Link* node) {
    node->previous->next = node->next;
    node->next->previous = node->previous;
  }
};

}  // namespace tarry::baselines
