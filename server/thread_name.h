#pragma once

// The name of a thread in ps, top and a debugger: tarry-shard-0, tarry-io-3.  The kernel keeps 15
// bytes.

#include <pthread.h>

#include <string>

namespace tarry::server {

inline void name_this_thread(const std::string& name) {
  ::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
}

}  // namespace tarry::server
