#include "storage/file.h"

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <set>
#include <string>

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/given.h"
#include "tests/memory_disk.h"

namespace tarry::storage {
namespace {

using Create = OpenOptions::Create;

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = std::filesystem::temp_directory_path() / "tarry_file_test_XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string read_all(Disk& disk, const std::string& path) {
  const auto bytes = read_file(disk, path, 1 << 20);
  return bytes ? std::string(as_text(*bytes)) : "no file";
}

// Both disks keep to the same rules while nothing goes wrong.
void check_disk(Disk& disk, const std::string& root) {
  REQUIRE(disk.make_directories(root + "/a/b"));
  REQUIRE(disk.make_directories(root + "/a/b"));
  const auto path = root + "/a/b/file";
  CHECK(disk.open(path, {}).error().code == Errc::not_found);
  CHECK(disk.open(root + "/none/file", {.write = true, .create = Create::must}).error().code ==
        Errc::not_found);
  CHECK(disk.list(root + "/none").error().code == Errc::not_found);
  {
    const auto file = disk.open(path, {.write = true, .create = Create::must});
    REQUIRE(file);
    CHECK(disk.open(path, {.write = true, .create = Create::must}).error().code == Errc::exists);
    REQUIRE((*file)->pwrite(3, as_bytes("three")));
    CHECK((*file)->size() == 8u);
    REQUIRE((*file)->preallocate(100));
    CHECK((*file)->size() == 100u);
    REQUIRE((*file)->preallocate(50));
    CHECK((*file)->size() == 100u);
    REQUIRE((*file)->truncate(10));
    REQUIRE((*file)->sync());
    Buffer into(20);
    const auto got = (*file)->pread(2, into);
    REQUIRE(got);
    CHECK(*got == 8);
    CHECK(std::string(as_text(Bytes(into).first(8))) == std::string("\0three\0\0", 8));
    CHECK((*file)->pread(10, into) == 0u);
    CHECK((*file)->pread(1000, into) == 0u);
    CHECK((*file)->path() == path);
    CHECK((*file)->close());
  }
  CHECK(read_file(disk, path, 9).error().code == Errc::too_large);
  REQUIRE(replace_file(disk, root + "/a/small", as_bytes("one")));
  REQUIRE(replace_file(disk, root + "/a/small", as_bytes("second")));
  CHECK(read_all(disk, root + "/a/small") == "second");
  const auto entries = disk.list(root + "/a");
  REQUIRE(entries);
  REQUIRE(entries->size() == 2);
  CHECK(entries->at(0).name == "b");
  CHECK(entries->at(0).is_directory);
  CHECK(entries->at(1).name == "small");
  CHECK_FALSE(entries->at(1).is_directory);
  REQUIRE(disk.rename(path, root + "/a/small"));
  CHECK(read_all(disk, root + "/a/small").size() == 10);
  CHECK_FALSE(disk.remove_directory(root + "/a"));
  REQUIRE(disk.rename(root + "/a", root + "/c"));
  CHECK(read_all(disk, root + "/c/small").size() == 10);
  CHECK(read_all(disk, root + "/a/small") == "no file");
  REQUIRE(disk.remove(root + "/c/small"));
  CHECK(disk.remove(root + "/c/small").error().code == Errc::not_found);
  REQUIRE(disk.remove_directory(root + "/c/b"));
  REQUIRE(disk.sync_directory(root));
  REQUIRE(disk.remove_directory(root + "/c"));
  CHECK(*disk.free_space(root) > 0);
}

// The disk's code in a process whose every open() fails with this error.
Errc code_of_open(int error) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{std::size(program), program};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
      ::_exit(255);
    }
    PosixDisk disk;
    const auto opened = disk.open("/dev/null", {});
    ::_exit(opened ? 254 : static_cast<int>(opened.error().code));
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) != 255);  // The kernel has no such filters.
  return static_cast<Errc>(WEXITSTATUS(status));
}

TEST_SUITE("file") {
  TEST_CASE("the machine's disk and the disk of memory do the same") {
    const TemporaryDirectory directory;
    PosixDisk disk;
    check_disk(disk, directory.path());

    SeededRandom random(1);
    MemoryDisk memory(random);
    REQUIRE(memory.make_directories("/data"));
    check_disk(memory, "/data");
    check_disk(memory, "relative");
  }

  TEST_CASE("bytes written past the page cache are read back") {
    const TemporaryDirectory directory;
    PosixDisk disk;
    const auto path = directory.path() + "/direct";
    const auto file = disk.open(path, {.write = true, .create = Create::must, .direct = true});
    REQUIRE(file);
    AlignedBuffer out;
    while (out.size() < 3 * block_bytes) out.append(as_bytes("some bytes, "));
    out.pad_to_block();
    REQUIRE((*file)->pwrite(block_bytes, out.view()));
    REQUIRE((*file)->sync());
    AlignedBuffer in(16 * block_bytes);
    const auto got = (*file)->pread(block_bytes, in.span());
    REQUIRE(got);
    CHECK(*got == out.size());
    CHECK(std::ranges::equal(in.view().first(*got), out.view()));
    CHECK((*file)->pread(64 * block_bytes, in.span()) == 0u);
  }

  TEST_CASE("without a file descriptor nothing is done, and the error says that it may pass") {
    const TemporaryDirectory scratch;
    PosixDisk disk;
    const auto path = scratch.path() + "/new";
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    const int probe = ::dup(0);
    ::close(probe);
    rlimit none = before;
    none.rlim_cur = static_cast<rlim_t>(probe);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    const auto opened = disk.open(path, {.write = true, .create = OpenOptions::Create::must});
    const auto listed = disk.list(scratch.path());
    const auto synced = disk.sync_directory(scratch.path());
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    REQUIRE_FALSE(opened);
    CHECK(opened.error().code == Errc::exhausted);
    CHECK(opened.error().message == path + ": open: Too many open files");
    CHECK(listed.error().code == Errc::exhausted);
    CHECK(synced.error().code == Errc::exhausted);
    CHECK(disk.list(scratch.path())->empty());
  }

  TEST_CASE("an open that lacks memory, or descriptors of the whole machine, may pass too") {
    for (const int error : {EMFILE, ENFILE, ENOMEM}) CHECK(code_of_open(error) == Errc::exhausted);
    CHECK(code_of_open(EACCES) == Errc::io);
  }

  TEST_CASE("an error names path, call and reason") {
    PosixDisk disk;
    const auto opened = disk.open("/nowhere/at/all", {});
    REQUIRE_FALSE(opened);
    CHECK(opened.error().message == "/nowhere/at/all: open: No such file or directory");
    const auto full = disk.open("/dev/full", {.write = true});
    REQUIRE(full);
    const auto written = (*full)->pwrite(0, as_bytes("x"));
    REQUIRE_FALSE(written);
    CHECK(written.error().code == Errc::no_space);
    CHECK(written.error().message == "/dev/full: pwrite: No space left on device");
    CHECK(disk.open("/proc", {.write = true}).error().code == Errc::io);
  }

  TEST_CASE("an aligned buffer keeps its bytes as it grows, and new bytes are zero") {
    AlignedBuffer buffer;
    for (int i = 0; i < 3000; ++i) buffer.append_be32(static_cast<std::uint32_t>(i));
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % block_bytes == 0);
    for (int i = 0; i < 3000; ++i) REQUIRE(load_be<std::int32_t>(buffer.data() + 4 * i) == i);
    buffer.clear();
    buffer.append(as_bytes("x"));
    buffer.pad_to_block();
    CHECK(buffer.size() == block_bytes);
    for (std::size_t i = 1; i < buffer.size(); ++i) REQUIRE(buffer.data()[i] == 0);
    AlignedBuffer taken = std::move(buffer);
    CHECK(taken.size() == block_bytes);
  }

  TEST_CASE("a power cut may take any sectors that were not synced, and none that were") {
    std::set<std::string> seen;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      SeededRandom random(seed);
      MemoryDisk disk(random);
      const auto file = disk.open("f", {.write = true, .create = Create::must});
      REQUIRE((*file)->pwrite(0, Buffer(1024, 'o')));
      REQUIRE((*file)->sync());
      REQUIRE(disk.sync_directory("."));
      REQUIRE((*file)->pwrite(512, Buffer(1024, 'n')));
      disk.cut_power();
      CHECK((*file)->pwrite(0, as_bytes("x")).error().code == Errc::io);
      std::string now = read_all(disk, "f");
      REQUIRE((now.size() == 1024 || now.size() == 1536));
      CHECK(now.substr(0, 512) == std::string(512, 'o'));
      seen.insert(fmt::format("{}{}", now[512], now.size() > 1024 ? now[1024] : ' '));
      // Once the machine is up again it does not change its mind.
      disk.cut_power();
      CHECK(read_all(disk, "f") == now);
    }
    CHECK(seen == std::set<std::string>{"nn", "n ", "on", "o "});
  }

  TEST_CASE("a name is kept over a power cut only when its directory was synced") {
    bool kept = false, lost = false;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      SeededRandom random(seed);
      MemoryDisk disk(random);
      REQUIRE(disk.make_directories("d"));
      {
        const auto file = disk.open("d/f", {.write = true, .create = Create::must});
        REQUIRE((*file)->pwrite(0, as_bytes("synced")));
        REQUIRE((*file)->sync());
      }
      if (seed % 2 == 0) REQUIRE(disk.sync_directory("d"));
      disk.cut_power();
      const auto now = read_all(disk, "d/f");
      CHECK((now == "synced" || now == "no file"));
      if (seed % 2 == 0) CHECK(now == "synced");
      (now == "synced" ? kept : lost) = true;
    }
    CHECK(kept);
    CHECK(lost);
  }

  TEST_CASE("a rename happens wholly or not at all, and a kill takes nothing") {
    std::set<std::string> seen;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      SeededRandom random(seed);
      MemoryDisk disk(random);
      for (const char* name : {"old", "new"}) {
        const auto file = disk.open(name, {.write = true, .create = Create::must});
        REQUIRE((*file)->pwrite(0, as_bytes(name)));
        REQUIRE((*file)->sync());
      }
      REQUIRE(disk.sync_directory("."));
      REQUIRE(disk.rename("new", "old"));
      disk.kill();
      CHECK(read_all(disk, "old") == "new");
      CHECK(read_all(disk, "new") == "no file");
      disk.cut_power();
      seen.insert(read_all(disk, "old") + " " + read_all(disk, "new"));
    }
    CHECK(seen == std::set<std::string>{"old new", "new no file"});
  }

  TEST_CASE("a small file is replaced wholly or not at all, wherever a power cut falls") {
    for (std::uint64_t call = 1; call < 9; ++call)
      for (std::uint64_t seed = 0; seed < 20; ++seed) {
        SeededRandom random(seed);
        MemoryDisk disk(random);
        REQUIRE(replace_file(disk, "f", as_bytes("old")));
        disk.crash_call(call);
        bool done = false;
        try {
          done = replace_file(disk, "f", Buffer(3000, 'n')).has_value();
        } catch (const MemoryDisk::PowerCut&) {
        }
        disk.heal();
        disk.cut_power();
        const auto now = read_all(disk, "f");
        if (done)
          CHECK(now == std::string(3000, 'n'));
        else
          CHECK((now == "old" || now == std::string(3000, 'n')));
      }
  }

  TEST_CASE("a failed sync is never made good by the next one") {
    bool lost = false;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      SeededRandom random(seed);
      MemoryDisk disk(random);
      const auto file = disk.open("f", {.write = true, .create = Create::must});
      REQUIRE((*file)->pwrite(0, Buffer(512, 'o')));
      REQUIRE((*file)->sync());
      REQUIRE(disk.sync_directory("."));
      REQUIRE((*file)->pwrite(0, Buffer(512, 'n')));
      disk.fail_call(1, Errc::io);
      CHECK((*file)->sync().error().code == Errc::io);
      CHECK((*file)->sync());
      CHECK(read_all(disk, "f")[0] == 'n');
      disk.cut_power();
      lost = lost || read_all(disk, "f")[0] == 'o';
    }
    CHECK(lost);
  }

  TEST_CASE("a disk of memory is full where the test says") {
    SeededRandom random(1);
    MemoryDisk disk(random);
    disk.set_space(1000);
    const auto file = disk.open("f", {.write = true, .create = Create::must});
    CHECK((*file)->preallocate(1001).error().code == Errc::no_space);
    CHECK((*file)->preallocate(600));
    CHECK(disk.free_space(".") == 400u);
    CHECK((*file)->pwrite(500, Buffer(600)).error().code == Errc::no_space);
    CHECK((*file)->pwrite(500, Buffer(500)));
    REQUIRE(disk.remove("f"));
    CHECK(disk.free_space(".") == 1000u);
  }
}

}  // namespace
}  // namespace tarry::storage
