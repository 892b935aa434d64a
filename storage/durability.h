#pragma once

// Durability: what a producer's answer promises (tarry.durability).

#include <cstdint>

namespace tarry::storage {

enum class Durability : std::uint8_t {
  fsync,  // The record is there after a power cut.
  os,     // It is there after a kill of the process; a power cut may take it back.
};

}  // namespace tarry::storage
