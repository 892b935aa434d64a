#include "storage/disk_rows.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "scratch.h"

namespace tarry::storage {
namespace {

constexpr std::size_t rows_memory = 8u << 20;

std::unique_ptr<DiskRows> opened_rows(const std::string& directory, const std::string& version) {
  auto rows = DiskRows::open(directory, version, rows_memory);
  REQUIRE(rows.has_value());
  return std::move(*rows);
}

std::string keys_of(const SortedRows& rows, const std::string& from, const std::string& until) {
  std::string keys;
  for (auto at = rows.walk(from, until); at->valid(); at->next())
    keys += std::string(at->key()) + ' ';
  return keys;
}

}  // namespace

TEST_SUITE("sorted_rows") {
  TEST_CASE("rows are there again after a close, and another version finds none of them") {
    const ScratchDirectory scratch;
    const std::string directory = scratch.path("rows");
    auto rows = opened_rows(directory, "1");
    rows->write({{}, {{"a1", "x"}, {"a2", "y"}, {"b", "z"}, {"c", "w"}}});
    rows->write({{{"a", behind_all_of("a")}}, {{"a2", "new"}, {"c", std::nullopt}}});
    rows.reset();
    rows = opened_rows(directory, "1");
    CHECK(keys_of(*rows, "a", "z") == "a2 b ");
    CHECK(rows->get("a2") == "new");
    CHECK_FALSE(rows->get("a1").has_value());
    CHECK_FALSE(DiskRows::open(directory, "1", rows_memory).has_value());  // It is in use.
    rows.reset();
    CHECK(keys_of(*opened_rows(directory, "2"), "a", "z").empty());
    CHECK(keys_of(*opened_rows(directory, "1"), "a", "z").empty());
  }

  TEST_CASE("rows that are damaged are dropped, and the directory is used again") {
    const ScratchDirectory scratch;
    const std::string directory = scratch.path("rows");
    opened_rows(directory, "1")->write({{}, {{"a", "x"}}});
    std::filesystem::resize_file(directory + "/CURRENT", 3);
    auto rows = opened_rows(directory, "1");
    CHECK_FALSE(rows->get("a").has_value());
    rows->write({{}, {{"b", "y"}}});
    CHECK(rows->get("b") == "y");
  }

  TEST_CASE("rows in which damage was found later are dropped at the next start") {
    const ScratchDirectory scratch;
    const std::string directory = scratch.path("rows");
    opened_rows(directory, "1")->write({{}, {{"a", "x"}}});
    CHECK(opened_rows(directory, "1")->get("a") == "x");
    DiskRows::condemn(directory);
    CHECK_FALSE(opened_rows(directory, "1")->get("a").has_value());
    opened_rows(directory, "1")->write({{}, {{"b", "y"}}});
    CHECK(opened_rows(directory, "1")->get("b") == "y");
  }

  TEST_CASE("few rows survive a crash when they were flushed, and not otherwise") {
    const ScratchDirectory scratch;
    const std::string directory = scratch.path("rows"), left = scratch.path("left");
    auto rows = opened_rows(directory, "1");
    rows->write({{}, {{"a", "x"}}});
    rows->flush(true);
    rows->write({{}, {{"b", "y"}}});
    std::filesystem::copy(directory, left);
    const auto after = opened_rows(left, "1");
    CHECK(after->get("a") == "x");
    CHECK_FALSE(after->get("b").has_value());
  }

  TEST_CASE("the range of a prefix ends behind its last key") {
    CHECK(behind_all_of("ab") == "ac");
    CHECK(behind_all_of("a\xff") == "b");
  }
}

}  // namespace tarry::storage
