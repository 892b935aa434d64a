#include "broker/security/failed_logins.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "broker/security/client_address.h"

namespace tarry::broker {
namespace {

using std::chrono::milliseconds;

// A right password waits for what is queued beyond this, however long one failure takes.
constexpr milliseconds max_free = FailedLogins::max_wait / 2;

milliseconds delay_of(milliseconds base, int factor) {
  // A longer one is the setting's, and is obeyed as Kafka would.
  return std::min(base * factor, std::max(base, FailedLogins::max_wait));
}

}  // namespace

FailedLogins::Failed& FailedLogins::failed_at(std::string address) {
  if (const auto found = of_.find(address); found != of_.end()) {
    order_.splice(order_.end(), order_, found->second);
    return order_.back();
  }
  if (order_.size() >= max_addresses) {
    of_.erase(order_.front().address);
    order_.pop_front();
  }
  order_.push_back({.address = std::move(address)});
  const auto place = std::prev(order_.end());
  of_.emplace(place->address, place);
  return *place;
}

milliseconds FailedLogins::wait_of_failure(std::string_view host, MonoTime now, milliseconds base) {
  auto address = network_of(host);
  const std::lock_guard lock(mutex_);
  auto& failed = failed_at(std::move(address));
  if (now - failed.last > memory) failed.count = 0;
  failed.last = now;
  int factor = 1;
  for (unsigned i = 0; i < failed.count && factor < max_factor; ++i) factor *= 2;
  ++failed.count;
  failed.answered = std::min(std::max(failed.answered, now) + delay_of(base, factor),
                             now + std::max(base, max_wait));
  return std::chrono::ceil<milliseconds>(failed.answered - now);
}

milliseconds FailedLogins::wait_of_success(std::string_view host, MonoTime now,
                                           milliseconds base) const {
  const auto address = network_of(host);
  const std::lock_guard lock(mutex_);
  const auto found = of_.find(address);
  if (found == of_.end()) return milliseconds{0};
  // A delay that is as long as the whole queue would leave no part of it that a right password
  // waits for.
  const auto free = std::min(delay_of(base, max_factor), max_free);
  const auto ahead = std::chrono::ceil<milliseconds>(found->second->answered - now - free);
  return std::clamp(ahead, milliseconds{0}, max_wait);
}

std::size_t FailedLogins::addresses() const {
  const std::lock_guard lock(mutex_);
  return order_.size();
}

}  // namespace tarry::broker
