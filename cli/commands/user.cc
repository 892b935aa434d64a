#include "cli/commands/user.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/base64.h"
#include "base/scram.h"
#include "cli/command_tree.h"
#include "cli/io/exit_status.h"
#include "cli/io/json.h"
#include "cli/io/output.h"
#include "cli/io/table.h"
#include "cli/io/text.h"
#include "cli/kafka/wire_client.h"
#include "cli/options.h"
#include "protocol/messages/alter_user_scram_credentials.h"
#include "protocol/messages/describe_user_scram_credentials.h"

namespace tarry::cli {
namespace {

using protocol::ErrorCode;

struct UserOptions {
  BrokerOptions broker;
  std::string name;
  std::string mechanism = "SCRAM-SHA-512";
  std::string password_file;
  std::int32_t iterations = min_scram_iterations;
};

// By a broker that runs.
bool is_locked(const std::filesystem::path& lock) {
  const int descriptor = ::open(lock.c_str(), O_RDWR | O_CLOEXEC);
  // Without a lock file no broker was ever started there.
  if (descriptor < 0) return false;
  // A broker holds this lock for as long as it runs.
  const bool locked = ::flock(descriptor, LOCK_EX | LOCK_NB) != 0;
  ::close(descriptor);
  return locked;
}

std::string is_mechanism(const std::string& word) {
  return scram_mechanism_named(word) ? "" : word + ": use SCRAM-SHA-256 or SCRAM-SHA-512";
}

// The first line of the file, or of standard input.
Result<std::string> read_password(const std::string& file) {
  std::string password;
  if (file == "-") {
    std::getline(std::cin, password);
  } else {
    std::ifstream in(file);
    if (!in) return fail(Errc::not_found, fmt::format("{}: it cannot be read", cell(file)));
    std::getline(in, password);
  }
  // The line end of a file from Windows is no part of the password.
  if (password.ends_with('\r')) password.pop_back();
  if (password.empty())
    return fail(Errc::invalid, fmt::format("{}: no password in it", cell(file)));
  return password;
}

// Reads the broker's answer for one user; the error is for people.
Result<> change_user(const UserOptions& options,
                     const protocol::AlterUserScramCredentialsRequest& request) {
  auto client = WireClient::open(options.broker.kafka());
  if (!client) return std::unexpected(client.error());
  const auto answer = client->ask<protocol::AlterUserScramCredentialsResponse>(request, 0);
  if (!answer) return std::unexpected(answer.error());
  for (const auto& result : answer->results) {
    if (result.error_code == ErrorCode::none) continue;
    return fail(Errc::invalid, fmt::format("{}: {} ({})", cell(result.user),
                                           cell(result.error_message.value_or("")),
                                           protocol::name(result.error_code)));
  }
  return {};
}

int say_user_done(const UserOptions& options, std::string_view what) {
  Output out;
  if (options.broker.json) {
    out.line(
        text_of(Json{{"user", options.name}, {"mechanism", options.mechanism}, {"result", what}}));
  } else {
    out.line(fmt::format("{} {} ({})", cell(options.name), what, options.mechanism));
  }
  return out.end(done);
}

// For the next start of the broker (broker/security/first_users.h).
Result<> leave_user(const UserOptions& options, const ScramCredential& kept) {
  const std::filesystem::path directory(*options.broker.data);
  const auto file = (directory / "users.add").string();
  const auto failed_at = [](const std::string& path, const std::string& why) {
    return fail(Errc::io, fmt::format("{}: {}", cell(path), why));
  };
  std::error_code error;
  if (std::filesystem::create_directories(directory, error))
    // No other user may look into it, as where the broker makes it.
    std::filesystem::permissions(directory, std::filesystem::perms::owner_all, error);
  if (error) return failed_at(directory.string(), error.message());
  // The broker reads the file at its start alone, so the user would not be there.
  if (is_locked(directory / ".lock"))
    return failed_at(directory.string(),
                     "a broker is using it; add the user over the protocol (-b)");
  const int descriptor =
      // A link that somebody else has put there would lead the write of a root user to any file.
      ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) return failed_at(file, std::strerror(errno));
  // Root may leave it for a broker of another user, who has to read it and to remove it.
  struct stat of_directory {};
  if (::geteuid() == 0 && ::stat(directory.c_str(), &of_directory) == 0 &&
      ::fchown(descriptor, of_directory.st_uid, of_directory.st_gid) != 0) {
    const std::string why = std::strerror(errno);
    ::close(descriptor);
    return failed_at(file, why);
  }
  const auto line =
      fmt::format("{} {} {} {} {} {}\n", options.mechanism, base64(options.name), kept.iterations,
                  base64(kept.salt), base64(kept.stored_key), base64(kept.server_key));
  const bool written =
      ::write(descriptor, line.data(), line.size()) == static_cast<ssize_t>(line.size()) &&
      // The command says that the user is added, which a power cut must not take back.
      ::fsync(descriptor) == 0;
  // Read before close(), which may set errno anew.
  const std::string why = std::strerror(errno);
  ::close(descriptor);
  return written ? Result<>() : failed_at(file, why);
}

int add_user(const UserOptions& options) {
  const auto password = read_password(options.password_file);
  if (!password) return failure(password.error().message);
  const auto mechanism = *scram_mechanism_named(options.mechanism);
  std::array<char, 24> salt;
  if (::getrandom(salt.data(), salt.size(), 0) != static_cast<ssize_t>(salt.size()))
    return failure("the system provides no random numbers");
  const std::string_view salt_text{salt.data(), salt.size()};
  // The slow part of SCRAM is done here, and never by a broker.
  const auto salted = scram_salted_password(mechanism, *password, salt_text, options.iterations);
  if (options.broker.data) {
    const auto kept = scram_credential(mechanism, salted, salt_text, options.iterations);
    if (const auto left = leave_user(options, kept); !left) return failure(left.error().message);
    return say_user_done(options, "added, from the broker's next start on");
  }
  protocol::AlterUserScramCredentialsRequest request;
  // As in Kafka, the broker gets the salted password and derives its keys from that.
  request.upsertions.push_back({options.name, static_cast<std::int8_t>(mechanism),
                                options.iterations, as_bytes(salt_text), as_bytes(salted)});
  if (const auto changed = change_user(options, request); !changed)
    return failure(changed.error().message);
  return say_user_done(options, "added");
}

int remove_user(const UserOptions& options) {
  const auto mechanism = *scram_mechanism_named(options.mechanism);
  protocol::AlterUserScramCredentialsRequest request;
  request.deletions.push_back({options.name, static_cast<std::int8_t>(mechanism)});
  if (const auto changed = change_user(options, request); !changed)
    return failure(changed.error().message);
  return say_user_done(options, "deleted");
}

int list_users(const UserOptions& options) {
  auto client = WireClient::open(options.broker.kafka());
  if (!client) return failure(client.error().message);
  const protocol::DescribeUserScramCredentialsRequest request;
  const auto answer = client->ask<protocol::DescribeUserScramCredentialsResponse>(request, 0);
  if (!answer) return failure(answer.error().message);
  if (answer->error_code != ErrorCode::none) {
    return failure(fmt::format("{} ({})", cell(answer->error_message.value_or("")),
                               protocol::name(answer->error_code)));
  }
  Output out;
  Table table({{"USER", false, true}, {"MECHANISM"}, {"ITERATIONS", true}});
  for (const auto& user : answer->results) {
    for (const auto& info : user.credential_infos) {
      const auto mechanism = std::string(scram_name(static_cast<ScramMechanism>(info.mechanism)));
      if (options.broker.json) {
        out.line(text_of(
            Json{{"user", user.user}, {"mechanism", mechanism}, {"iterations", info.iterations}}));
      } else {
        table.row({cell(user.user), mechanism, std::to_string(info.iterations)});
      }
    }
  }
  table.print(out);
  return out.end(done);
}

}  // namespace

void add_user_commands(CLI::App& program, Chosen& chosen) {
  auto* group =
      add_group(program, chosen, "user", "Adds, lists and deletes users who log in by SCRAM");
  const auto add_one = [&](const char* name, const char* help, int (*run)(const UserOptions&)) {
    const auto [command, options] =
        add_broker_command<UserOptions>(*group, chosen, name, help, run);
    command->add_option("USER", options->name, "The user's name")->required();
    command->add_option("--mechanism", options->mechanism, "How the user logs in")
        ->option_text("SCRAM-SHA-256|SCRAM-SHA-512")
        ->check(is_mechanism)
        ->take_last();
    return std::pair(command, options);
  };
  {
    const auto [command, options] =
        add_one("add", "Adds a user, or gives a user another password", add_user);
    command
        ->add_option("--password-file", options->password_file,
                     "The file whose first line is the password; - reads standard input")
        ->option_text("FILE")
        ->required()
        ->take_last();
    command
        ->add_option("--iterations", options->iterations,
                     "How many times the password is hashed: more rounds make guessing slower")
        ->option_text("4096..16384")
        ->check(CLI::Range(min_scram_iterations, max_scram_iterations))
        ->take_last();
    command
        ->add_option("--data", options->broker.data,
                     "Adds the user at the next start of the broker with this data directory; the "
                     "broker must not be running, and the directory need not exist yet")
        ->option_text("DIR")
        ->take_last();
    add_examples(*command, {"tarry user add alice --password-file alice.password",
                            "tarry user add admin --password-file - --data ./tarry-data"});
  }
  add_examples(
      *add_broker_command<UserOptions>(*group, chosen, "list", "Lists all users", list_users).first,
      {"tarry user list", "tarry user list --json"});
  add_examples(*add_one("delete", "Deletes a user's login", remove_user).first,
               {"tarry user delete alice", "tarry user delete alice --mechanism SCRAM-SHA-256"});
  add_examples(*group, {"tarry user add alice --password-file alice.password", "tarry user list"});
}

}  // namespace tarry::cli
