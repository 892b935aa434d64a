#include "base/read_small_file.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>

namespace tarry {
namespace {

class SmallFiles {
 public:
  SmallFiles() {
    std::string name = std::filesystem::temp_directory_path() / "tarry_small_file_test_XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~SmallFiles() { std::filesystem::remove_all(path_); }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;

  const std::string& path() const { return path_; }
  std::string with(const std::string& text) const {
    const std::string path = path_ + "/file";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

 private:
  std::string path_;
};

TEST_SUITE("read_small_file") {
  TEST_CASE("a file is read to its last byte, and one byte more than the limit is refused") {
    const SmallFiles files;
    const std::string five(
        "a\0\n\xff"
        "b",
        5);
    CHECK(read_small_file(files.with(five), 5) == five);
    CHECK(read_small_file(files.with(""), 5) == "");
    const auto refused = read_small_file(files.with(five), 4);
    REQUIRE(!refused);
    CHECK(refused.error().code == Errc::too_large);
    CHECK(refused.error().message == "the file is longer than 4 bytes, which is the limit");
  }

  TEST_CASE("a missing file and a directory are refused with the system's reason") {
    const SmallFiles files;
    const auto missing = read_small_file(files.path() + "/none", 5);
    REQUIRE(!missing);
    CHECK(missing.error().code == Errc::io);
    CHECK(missing.error().message == "the file cannot be read: No such file or directory");
    const auto directory = read_small_file(files.path(), 5);
    REQUIRE(!directory);
    CHECK(directory.error().message == "the file cannot be read: Is a directory");
  }
}

}  // namespace
}  // namespace tarry
