#pragma once

// PooledHeap: a binary min-heap of pointers to nodes that know their index, and a free list.
//
//    heap_   [ 20 | 35 | 20 | 90 | 40 ]        each node: deadline, callback, its index here
//              0    1    2    3    4           0's children are 1 and 2, 1's are 3 and 4
//
// Descends from the timer of goim (Go), made for the heartbeats of very many connections.  add, del
// and set are O(log n); set moves a deadline either way, or arms a node anew that has fired.  A
// node belongs to whoever added it until he calls del().  The earliest deadline is at the top, so a
// driver sleeps until then and nothing ticks.
//
// Mended: del() and set() know by the index whether the node is in the heap, and del() answers.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "bench/baselines/common.h"

namespace tarry::baselines {

class PooledHeap {
 public:
  class Node {
    friend class PooledHeap;
    friend class NodePool<Node>;
    static constexpr std::size_t outside = SIZE_MAX;

    Tick deadline = 0;
    std::size_t index = outside;
    Callback callback;
    Node* next = nullptr;
  };

  explicit PooledHeap(Tick now = 0) : now_(now) {}

  Node* add(Tick deadline, Callback callback) {
    Node* const node = pool_.take();
    node->callback = callback;
    node->deadline = deadline;
    heap_.push_back(node);
    up(heap_.size() - 1, node);
    return node;
  }

  // Takes it out if it is pending (the answer) and gives the node back: it is not to be used again.
  bool del(Node* node) {
    const bool pending = node->index != Node::outside;
    if (pending) leave(node);
    pool_.give_back(node);
    return pending;
  }

  void set(Node* node, Tick deadline) {
    if (node->index == Node::outside) {
      node->deadline = deadline;
      heap_.push_back(node);
      up(heap_.size() - 1, node);
      return;
    }
    const bool earlier = deadline < node->deadline;
    node->deadline = deadline;
    if (earlier) {
      up(node->index, node);
    } else {
      down(node->index, node);
    }
  }

  void advance(Tick now) {
    now_ = std::max(now_, now);
    while (!heap_.empty() && heap_.front()->deadline <= now_) {
      Node* const node = heap_.front();
      leave(node);
      const Callback callback = node->callback;
      callback();
    }
  }

  std::optional<Tick> next_due() const {
    return heap_.empty() ? std::nullopt : std::optional(heap_.front()->deadline);
  }
  std::size_t size() const { return heap_.size(); }

 private:
  void put(std::size_t index, Node* node) {
    heap_[index] = node;
    node->index = index;
  }
  void up(std::size_t index, Node* node) {
    while (index > 0) {
      const std::size_t parent = (index - 1) / 2;
      if (heap_[parent]->deadline <= node->deadline) break;
      put(index, heap_[parent]);
      index = parent;
    }
    put(index, node);
  }
  void down(std::size_t index, Node* node) {
    while (true) {
      std::size_t child = 2 * index + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && heap_[child + 1]->deadline < heap_[child]->deadline) ++child;
      if (node->deadline <= heap_[child]->deadline) break;
      put(index, heap_[child]);
      index = child;
    }
    put(index, node);
  }
  void leave(Node* node) {
    const std::size_t index = node->index;
    Node* const last = heap_.back();
    heap_.pop_back();
    node->index = Node::outside;
    if (last == node) return;
    // The last one may come from another subtree: it may have to go either way.
    down(index, last);
    up(last->index, last);
  }

  Tick now_;
  std::vector<Node*> heap_;
  NodePool<Node> pool_;
};

}  // namespace tarry::baselines
