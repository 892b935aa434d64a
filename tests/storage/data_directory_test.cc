#include "storage/data_directory.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scratch.h"

namespace tarry::storage {
namespace {

namespace fs = std::filesystem;

struct DirectoryFixture {
  ScratchDirectory scratch;
  PosixDisk disk;
  SeededRandom random{1};
  std::string path = scratch.path("data");

  Result<DataDirectory> open() { return DataDirectory::open(disk, path, random); }
  void create() {
    auto made = open();
    REQUIRE(made.has_value());
    REQUIRE(made->is_new());
    REQUIRE(made->created().has_value());
  }
};

bool says(const Error& error, const std::string& text) {
  return error.message.find(text) != std::string::npos;
}

TEST_SUITE("data directory") {
  TEST_CASE("a new one is for its owner only and is the same one when opened again") {
    DirectoryFixture f;
    std::string cluster;
    {
      auto made = f.open();
      REQUIRE(made.has_value());
      CHECK(made->is_new());
      REQUIRE(made->created().has_value());
      CHECK_FALSE(made->is_new());
      cluster = made->cluster_id();
      CHECK(cluster.size() == 22);
      struct stat mode {};
      REQUIRE(::stat(f.path.c_str(), &mode) == 0);
      CHECK((mode.st_mode & 0777) == 0700);
    }
    auto again = f.open();
    REQUIRE(again.has_value());
    CHECK_FALSE(again->is_new());
    CHECK(again->cluster_id() == cluster);
    CHECK(again->node_id() == 1);
    CHECK(again->path() == f.path);
    CHECK_FALSE(fs::exists(f.path + "/.creating"));
  }

  TEST_CASE(
      "a directory that is emptied, moved away or replaced by a copy is noticed, and one that "
      "comes "
      "back as well") {
    DirectoryFixture f;
    f.create();
    const auto opened = f.open();
    REQUIRE(opened.has_value());
    const auto problem = [&] {
      const auto there = opened->check_in_place();
      if (there) return std::string();
      CHECK(there.error().code == Errc::not_found);
      return there.error().message;
    };
    CHECK(problem() == "");
    const auto copy = f.scratch.path("copy"), away = f.scratch.path("away");
    fs::copy(f.path, copy, fs::copy_options::recursive);
    fs::rename(f.path, away);
    CHECK(problem() == "data directory " + f.path + " was removed: .lock is not there");
    fs::rename(copy, f.path);
    CHECK(problem() == "data directory " + f.path + " was replaced: .lock is another file now");
    fs::rename(f.path, copy);
    fs::rename(away, f.path);
    CHECK(problem() == "");
    // As `rm -r DIR/*` does, which leaves .lock, and then `cp -r BACKUP/. DIR`.
    fs::remove(f.path + "/meta.properties");
    CHECK(problem().ends_with("was removed: meta.properties is not there"));
    fs::copy_file(copy + "/meta.properties", f.path + "/meta.properties");
    CHECK(problem().ends_with("was replaced: meta.properties is another file now"));
  }

  TEST_CASE("a new directory is in place before and after it is whole") {
    DirectoryFixture f;
    auto made = f.open();
    REQUIRE(made.has_value());
    CHECK(made->check_in_place().has_value());
    REQUIRE(made->created().has_value());
    CHECK(made->check_in_place().has_value());
    fs::remove(f.path + "/meta.properties");
    CHECK_FALSE(made->check_in_place().has_value());
  }

  TEST_CASE("a second broker is refused with the directory and the pid that holds it") {
    DirectoryFixture f;
    auto first = f.open();
    REQUIRE(first.has_value());
    const auto second = f.open();
    REQUIRE_FALSE(second.has_value());
    CHECK(second.error().code == Errc::in_use);
    CHECK(says(second.error(), f.path));
    CHECK(says(second.error(), "pid " + std::to_string(::getpid()) + ";"));
    CHECK_FALSE(says(second.error(), "\n"));
    { const auto gone = std::move(*first); }
    CHECK(f.open().has_value());
  }

  TEST_CASE("another version is refused and nothing is changed") {
    DirectoryFixture f;
    f.create();
    write_whole(f.path + "/meta.properties", "version=2\ncluster.id=abc\nnode.id=1\n");
    fs::remove(f.path + "/.lock");
    const auto opened = f.open();
    REQUIRE_FALSE(opened.has_value());
    CHECK(opened.error().code == Errc::unsupported);
    CHECK(says(opened.error(), f.path));
    CHECK(says(opened.error(), "'2'"));
    CHECK(read_whole(f.path + "/meta.properties") == "version=2\ncluster.id=abc\nnode.id=1\n");
    CHECK(contents(f.path).size() == 1);
  }

  TEST_CASE("a file in its place, or on the way to it, is refused with the path and with advice") {
    DirectoryFixture f;
    for (const std::string below : {"", "/data"}) {
      CAPTURE(below);
      write_whole(f.scratch.path("data"), "no directory");
      f.path = f.scratch.path("data") + below;
      const auto opened = f.open();
      REQUIRE_FALSE(opened.has_value());
      CHECK(says(opened.error(), "data directory " + f.path + " cannot be written"));
      CHECK(says(opened.error(), "--data"));
      CHECK(read_whole(f.scratch.path("data")) == "no directory");
    }
  }

  TEST_CASE("damaged properties are refused") {
    for (const char* text : {"", "version=1\n", "version=1\ncluster.id=abc\nnode.id=x\n",
                             "version=1\ncluster.id=\nnode.id=1\n"}) {
      CAPTURE(text);
      DirectoryFixture f;
      f.create();
      write_whole(f.path + "/meta.properties", text);
      const auto opened = f.open();
      REQUIRE_FALSE(opened.has_value());
      CHECK(opened.error().code == Errc::corrupt);
      CHECK(says(opened.error(), "data directory " + f.path + " has a damaged meta.properties"));
    }
  }

  TEST_CASE("a crash while a new directory is being filled leaves a directory that is new again") {
    DirectoryFixture f;
    {
      auto made = f.open();
      REQUIRE(made.has_value());
      fs::create_directories(made->meta_database());
    }
    auto again = f.open();
    REQUIRE(again.has_value());
    CHECK(again->is_new());
    REQUIRE(again->created().has_value());
  }

  TEST_CASE("a crash at the very end of the filling leaves a whole directory") {
    DirectoryFixture f;
    f.create();
    write_whole(f.path + "/.creating", "");
    auto again = f.open();
    REQUIRE(again.has_value());
    CHECK_FALSE(again->is_new());
    CHECK_FALSE(fs::exists(f.path + "/.creating"));
  }

  TEST_CASE("data without meta.properties is refused, not taken for a new directory") {
    for (const char* part : {"journal", "logs", "db"}) {
      CAPTURE(part);
      DirectoryFixture f;
      fs::create_directories(fs::path(f.path) / part);
      const auto opened = f.open();
      REQUIRE_FALSE(opened.has_value());
      CHECK(opened.error().code == Errc::corrupt);
      CHECK(says(opened.error(), std::string(part) + "/"));
      CHECK_FALSE(fs::exists(f.path + "/meta.properties"));
      CHECK_FALSE(fs::exists(f.path + "/.creating"));
    }
  }

  TEST_CASE("a directory that cannot be made is refused with advice") {
    DirectoryFixture f;
    write_whole(f.scratch.path("file"), "");
    f.path = f.scratch.path("file/data");
    const auto opened = f.open();
    REQUIRE_FALSE(opened.has_value());
    CHECK(says(opened.error(), f.path));
    CHECK(says(opened.error(), "--data"));
  }
}

}  // namespace
}  // namespace tarry::storage
