#pragma once

// The lines of golden/messages.txt, whose README says what they are.

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "tests/test_data.h"

namespace tarry::protocol {

struct GoldenMessage {
  std::string title;  // "0 q 9": key, direction, version.
  int key = 0;
  bool request = false;
  int version = 0;
  Buffer bytes;
  bool canonical = false;  // Encodes to the same bytes again.
  std::string json;
};

inline Buffer from_hex(const std::string& hex) {
  Buffer bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

inline std::string to_hex(Bytes bytes) {
  std::string hex;
  for (const std::uint8_t byte : bytes) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

inline const std::vector<GoldenMessage>& golden_messages() {
  static const std::vector<GoldenMessage> all = [] {
    std::vector<GoldenMessage> read;
    std::ifstream file(test_data("protocol/golden/messages.txt"));
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string direction, hex, sign;
      GoldenMessage message;
      words >> message.key >> direction >> message.version >> hex >> sign;
      message.request = direction == "q";
      message.canonical = sign == "=";
      message.bytes = from_hex(hex);
      message.json = line.substr(static_cast<std::size_t>(words.tellg()) + 1);
      message.title =
          std::to_string(message.key) + " " + direction + " " + std::to_string(message.version);
      read.push_back(std::move(message));
    }
    return read;
  }();
  return all;
}

}  // namespace tarry::protocol
