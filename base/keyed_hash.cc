#include "base/keyed_hash.h"

#include <unistd.h>

#include "base/assert.h"

namespace tarry {

HashKey process_hash_key() {
  // One for the whole process, made once: a table whose key changed would lose its entries.
  static const HashKey key = [] {
    HashKey made;
    TARRY_ASSERT(::getentropy(&made, sizeof made) == 0, "sixteen random bytes are always there");
    return made;
  }();
  return key;
}

}  // namespace tarry
