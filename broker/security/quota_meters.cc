#include "broker/security/quota_meters.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "base/crc32c.h"

namespace tarry::broker {
namespace {

// Names may be as long as a client likes; two long ones that share this much and their CRC share
// a rate.
constexpr std::size_t max_kept_name = 256;

std::string kept_name(std::string_view name) {
  if (name.size() <= max_kept_name) return std::string(name);
  return fmt::format("{}{}{}/{}", name.substr(0, max_kept_name), '\0', name.size(),
                     crc32c(as_bytes(name)));
}

}  // namespace

std::shared_ptr<RateMeter> QuotaMeters::of(QuotaKind kind, bool by_user, std::string_view user,
                                           bool by_client, std::string_view client_id,
                                           MonoTime now) {
  const auto who = kept_name(by_user ? user : "");
  // The length keeps the user and the client id apart, whatever they contain.
  auto key = fmt::format("{}{}{}{}{}{}", static_cast<int>(kind), by_user ? 'u' : '-',
                         by_client ? 'c' : '-', who.size(), '\0', who);
  key += kept_name(by_client ? client_id : "");
  const std::lock_guard held(lock_);
  if (const auto found = meters_.find(key); found != meters_.end()) return found->second;
  if (meters_.size() >= room_made_at_) make_room(now);
  auto made = std::make_shared<RateMeter>(windows_);
  meters_.emplace(std::move(key), made);
  return made;
}

std::size_t QuotaMeters::size() const {
  const std::lock_guard held(lock_);
  return meters_.size();
}

void QuotaMeters::make_room(MonoTime now) {
  // A meter that a connection holds would go on counting beside a new one of the same name.
  const auto is_held = [](const auto& each) { return each.second.use_count() > 1; };
  std::erase_if(meters_,
                [&](const auto& each) { return !is_held(each) && each.second->is_idle(now); });
  // Half of them, so that the next newcomers do not look through all again.
  std::size_t excess = meters_.size() - std::min(meters_.size(), max_kept / 2);
  std::erase_if(meters_, [&](const auto& each) {
    if (excess == 0 || is_held(each)) return false;
    --excess;
    return true;
  });
  room_made_at_ = meters_.size() + max_kept / 2;
}

}  // namespace tarry::broker
