#include "timing/callback_timers.h"

#include <utility>

#include "base/assert.h"

namespace tarry::timing {

CallbackTimers::~CallbackTimers() {
  for (const auto& block : blocks_) {
    for (Node& node : *block) {
      node.cancel();
      node.life = 0;  // Objects that the callbacks hold may still use their handles as they go.
    }
  }
  for (const auto& block : blocks_) {
    for (Node& node : *block) node.callback = nullptr;
  }
}

CallbackTimers::Handle CallbackTimers::schedule(Tick deadline,
                                                std::move_only_function<void()> callback) {
  TARRY_ASSERT(callback != nullptr, "there is something to call");
  Node& node = take();
  node.callback = std::move(callback);
  wheel_.schedule(node, deadline);
  ++pending_;
  return {node.number, node.life};
}

bool CallbackTimers::reschedule(Handle handle, Tick deadline) {
  Node* const node = find(handle);
  return node != nullptr && wheel_.reschedule(*node, deadline);
}

bool CallbackTimers::cancel(Handle handle) {
  Node* const node = find(handle);
  if (node == nullptr) return false;
  wheel_.cancel(*node);
  --pending_;
  // Destroyed as the last thing, for what it holds may call us as it goes.
  const auto callback = std::exchange(node->callback, nullptr);
  release(*node);
  return true;
}

std::optional<Tick> CallbackTimers::deadline(Handle handle) const {
  const Node* const node = find(handle);
  return node != nullptr ? std::optional(node->deadline()) : std::nullopt;
}

std::size_t CallbackTimers::bytes() const {
  return sizeof(*this) + blocks_.size() * sizeof(Block) +
         blocks_.capacity() * sizeof(std::unique_ptr<Block>);
}

void CallbackTimers::Node::on_expired() {
  // Out of the node before it runs: it may take this node for another timer, or destroy us all.
  auto running = std::exchange(callback, nullptr);
  --owner->pending_;
  owner->release(*this);
  running();
}

CallbackTimers::Node* CallbackTimers::find(Handle handle) const {
  if (handle.life_ == 0 || handle.node_ / block_size >= blocks_.size()) return nullptr;
  Node& found = node(handle.node_);
  return found.life == handle.life_ ? &found : nullptr;
}

CallbackTimers::Node& CallbackTimers::take() {
  if (free_ == none) {
    const std::size_t count = blocks_.size() * block_size;
    TARRY_ASSERT(count + block_size < none, "a handle counts nodes in 32 bits");
    blocks_.push_back(std::make_unique<Block>());
    // Backwards, so that the free list begins with the block's first node.
    for (std::size_t i = block_size; i-- > 0;) {
      Node& fresh = (*blocks_.back())[i];
      fresh.owner = this;
      fresh.number = static_cast<std::uint32_t>(count + i);
      fresh.next_free = std::exchange(free_, fresh.number);
    }
  }
  Node& taken = node(free_);
  free_ = taken.next_free;
  return taken;
}

void CallbackTimers::release(Node& node) {
  if (++node.life == 0) return;  // Its handles would name other timers from here on.
  node.next_free = std::exchange(free_, node.number);
}

}  // namespace tarry::timing
