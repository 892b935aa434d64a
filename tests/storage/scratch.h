#pragma once

// A directory of a test's own on the real disk, gone when the test ends.  RocksDB and locks do not
// go through a Disk, so what uses them cannot be tested in memory.

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "base/ids.h"
#include "tests/given.h"

namespace tarry::storage {

class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "tarry-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  std::string path(const std::string& name = "") const {
    return name.empty() ? path_ : path_ + "/" + name;
  }

 private:
  std::string path_;
};

inline std::string read_whole(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_whole(const std::filesystem::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

// Every file below `directory` with its bytes.
inline std::map<std::string, std::string> contents(const std::string& directory) {
  std::map<std::string, std::string> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory))
    if (entry.is_regular_file()) out[entry.path().string()] = read_whole(entry.path());
  return out;
}

inline TopicId test_topic(std::uint8_t number) {
  TopicId id;
  id.bytes.fill(number);
  return id;
}

}  // namespace tarry::storage
