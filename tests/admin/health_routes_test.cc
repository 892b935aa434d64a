// Whether the broker is alive and takes work, over HTTP.

#include <filesystem>

#include <doctest/doctest.h>

#include "tests/admin/client.h"

namespace tarry::admin::test {
namespace {

using namespace std::chrono_literals;

TEST_SUITE("health routes") {
  TEST_CASE("a full disk is the broker's state, not ready, until there is room again") {
    Admin admin;
    CHECK(admin.get_json("/readyz")["status"] == "running");
    auto& shard = admin.world.shard();
    shard.set_has_room(false);
    CHECK(admin.get_json("/status")["state"] == "disk full");
    const auto answer = admin.get("/readyz");
    CHECK(answer.status == 503);
    CHECK(answer.json()["status"] == "disk full");
    CHECK(answer.error().starts_with("disk full"));
    CHECK(admin.get("/healthz").status == 200);
    shard.free_space().look();
    admin.world.run();
    CHECK(admin.get_json("/status")["state"] == "running");
    CHECK(admin.get("/readyz").status == 200);
  }

  TEST_CASE("a broker whose data directory was replaced is not ready, and says so") {
    Admin admin;
    const auto file = admin.world.directory() + "/data/meta.properties";
    std::filesystem::copy_file(file, file + ".copy");
    std::filesystem::rename(file + ".copy", file);
    admin.world.broker().look_at_disk();
    admin.world.run();
    CHECK(admin.get_json("/status")["state"] == "without its data directory");
    const auto answer = admin.get("/readyz");
    CHECK(answer.status == 503);
    CHECK(answer.error() == "the broker is without its data directory");
    CHECK(admin.get("/healthz").status == 200);
  }

  TEST_CASE("/healthz and /readyz say ok while all is well; /readyz 503 when we stop") {
    Admin admin;
    CHECK(admin.get("/healthz").status == 200);
    CHECK(admin.get("/readyz").status == 200);
    bool stopped = false;
    admin.world.broker().stop([&] { stopped = true; });
    const auto ready = admin.get("/readyz");
    CHECK(ready.status == 503);
    CHECK(ready.error().find("stopping") != std::string::npos);
    CHECK(admin.get("/healthz").status == 200);
    for (int i = 0; i < 1000 && !stopped; ++i) admin.world.pass(1ms);
    CHECK(stopped);
  }
}

}  // namespace
}  // namespace tarry::admin::test
