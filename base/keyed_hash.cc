#include "base/keyed_hash.h"

#include <unistd.h>

#include "base/assert.h"

namespace tarry {

HashKey process_hash_key() {
  static const HashKey key = [] {
    HashKey made;
    TARRY_ASSERT(::getentropy(&made, sizeof made) == 0, "sixteen random bytes are always there");
    return made;
  }();
  return key;
}

}  // namespace tarry
