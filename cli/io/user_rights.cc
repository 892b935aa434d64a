#include "cli/io/user_rights.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <cstddef>
#include <utility>

#include "base/assert.h"

namespace tarry::cli {

UserRights::UserRights(uid_t user, gid_t group) : own_group_(::getegid()) {
  if (::geteuid() != 0 || user == 0) return;
  const int count = ::getgroups(0, nullptr);
  if (count < 0) return;
  own_groups_.resize(static_cast<std::size_t>(count));
  if (::getgroups(count, own_groups_.data()) != count) return;
  // A user that only a container's host knows has no name here, and no further groups.
  const passwd* const known = ::getpwuid(user);
  is_grouped_ =
      (known != nullptr ? ::initgroups(known->pw_name, group) : ::setgroups(0, nullptr)) == 0;
  is_lent_ = true;
  // A system that does not allow a step leaves the rights as they were.
  if (!is_grouped_ || ::setegid(group) != 0 || ::seteuid(user) != 0) restore();
}

UserRights::~UserRights() {
  restore();
}

void UserRights::restore() {
  if (!std::exchange(is_lent_, false)) return;
  // The user goes first, because only root may change groups.
  TARRY_ASSERT(::seteuid(0) == 0, "root lends its rights and gets them back");
  TARRY_ASSERT(::setegid(own_group_) == 0, "root may be of every group");
  if (is_grouped_) {
    TARRY_ASSERT(::setgroups(own_groups_.size(), own_groups_.data()) == 0,
                 "the groups could be set a moment ago");
  }
}

}  // namespace tarry::cli
