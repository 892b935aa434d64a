#pragma once

// UserRights: root's process has the rights of another user for as long as one of these lives.
//
// To root every file is open, so only so it is seen which files the broker's user can read.
//
// Invariant: for everybody but root, and for root itself as the user, it changes nothing.
// The process has one thread.

#include <sys/types.h>

#include <vector>

namespace tarry::cli {

class UserRights {
 public:
  UserRights(uid_t user, gid_t group);
  ~UserRights();
  UserRights(const UserRights&) = delete;
  UserRights& operator=(const UserRights&) = delete;

 private:
  void restore();

  bool is_lent_ = false;
  bool is_grouped_ = false;  // The user's groups are set.
  gid_t own_group_;
  std::vector<gid_t> own_groups_;
};

}  // namespace tarry::cli
