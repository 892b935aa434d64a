// The command line as it is read: words that are wrong end with status 2 before anything is asked.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "cli/io/exit_status.h"
#include "cli/wrong_words.h"
#include "tests/cli/program.h"

namespace tarry::cli {
namespace {

struct Ended {
  int status;
  std::string said;  // On stderr.
};

// As main() does it; both streams go to a file meanwhile.
Ended run(std::vector<std::string> words) {
  Program program;
  std::FILE* file = std::tmpfile();
  std::fflush(stdout);
  std::fflush(stderr);
  const int out = ::dup(STDOUT_FILENO), error = ::dup(STDERR_FILENO);
  ::dup2(::fileno(file), STDERR_FILENO);
  ::dup2(::open("/dev/null", O_WRONLY), STDOUT_FILENO);
  int status;
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());
    program.app.parse(reversed);
    status = program.chosen.run();
  } catch (const CLI::ParseError& wrong) {
    status = usage_error(parse_error_text(program.app, wrong));
  }
  std::fflush(stderr);
  std::fflush(stdout);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(error, STDERR_FILENO);
  ::close(out);
  ::close(error);
  std::string said(4096, '\0');
  std::rewind(file);
  said.resize(std::fread(said.data(), 1, said.size(), file));
  std::fclose(file);
  return {status, said};
}

void check_refused(std::vector<std::string> words, const std::string& word, int status = 2) {
  const auto ended = run(words);
  CAPTURE(ended.said);
  CHECK(ended.status == status);
  CHECK(ended.said.find(word) != std::string::npos);
  CHECK(std::ranges::count(ended.said, '\n') == 1);
}

TEST_SUITE_BEGIN("commands");

TEST_CASE("a wrong word is status 2, and the error names it") {
  check_refused({"topic"}, "create, list, describe, alter, delete");
  check_refused({"help", "frobnicate"}, "frobnicate");
  check_refused({"help", "topic", "frobnicate"}, "frobnicate");
  check_refused({"completion"}, "SHELL");
  check_refused({"completion", "tcsh"}, "tcsh");
  check_refused({"man", "frobnicate"}, "frobnicate");
  check_refused({"version", "more"}, "more");
  check_refused({"topic", "frobnicate"}, "frobnicate");
  for (const auto& [group, choice] : std::vector<std::pair<std::string, std::string>>{
           {"topic", "create, list, describe, alter, delete"},
           {"group", "list, describe, reset, delete"},
           {"user", "add, list, delete"},
           {"acl", "add, list, delete"},
           {"delayed", "list, get, count, trace, cancel, move, deliver, export, import"},
           {"dump", "segment, index, journal, pending, message"}}) {
    check_refused({group, "lst"}, "lst");
    check_refused({group, "lst"}, choice);
    check_refused({group, "lst", "list"}, "lst");
  }
  check_refused({"topic", "-b", "host:1", "list"}, "-b: options follow the command");
  check_refused({"topic", "--brokers=host:1", "list"}, "--brokers: options follow the command");
  check_refused({"topic", "--frobnicate", "list"}, "--frobnicate: there is no such option");
  check_refused({"topic", "list", "more"}, "more");
  check_refused({"topic", "list", "-b", ""}, "--brokers: the address is empty");
  check_refused({"topic", "list", "--frobnicate"}, "--frobnicate");
  check_refused({"topic", "list", "--timeout", "0"}, "--timeout");
  check_refused({"topic", "create"}, "NAME");
  check_refused({"topic", "create", "t", "--partitions", "many"}, "many");
  check_refused({"topic", "create", "t", "--partitions", "0"}, "--partitions");
  check_refused({"topic", "create", "t", "--config", "novalue"}, "novalue");
}

TEST_CASE("a wrong word of tarry bench is status 2, and the error names it") {
  check_refused({"bench"}, "timers, produce, consume, e2e, delayed");
  check_refused({"bench", "timers", "--pending", "0"}, "--pending");
  check_refused({"bench", "timers", "--pending", "many"}, "many");
  check_refused({"bench", "timers", "--threads", "1000"}, "1000");
  check_refused({"bench", "delayed", "--rate", "fast"}, "fast");
  check_refused({"bench", "delayed", "--rate", "0"}, "--count");
  check_refused({"bench", "delayed", "--rate", "1", "--duration", "500ms"}, "--duration");
  check_refused({"bench", "delayed", "--rate", "1000000", "--duration", "1d"}, "--duration");
  check_refused({"bench", "delayed", "--size", "15"}, "15");
  check_refused({"bench", "delayed", "--clients", "65"}, "65");
  check_refused({"bench", "delayed", "--burst", "0"}, "--burst");
  check_refused({"bench", "delayed", "--burst", "9", "--count", "9"}, "--count");
  check_refused({"bench", "delayed", "--burst", "9", "--spread", "1s"}, "--spread");
  check_refused({"bench", "delayed", "--burst", "9", "--floor", "1s"}, "--floor");
  check_refused({"bench", "delayed", "--duration", "9s", "--count", "9"}, "--count");
  check_refused({"bench", "delayed", "--topic", "t", "--partitions", "2"}, "--partitions");
  check_refused({"bench", "delayed", "--delay", "99999d"}, "99999d");
  check_refused({"bench", "delayed", "--target", "t"}, "--topic");
  check_refused({"bench", "delayed", "--target", "t", "--topic", "t"}, "--target");
  check_refused({"bench", "delayed", "--target", "a/b", "--topic", "t"}, "a/b");
  check_refused({"bench", "produce", "--duration", "0"}, "--duration");
  check_refused({"bench", "produce", "--rate", "1", "--duration", "500ms"}, "--duration");
  check_refused({"bench", "produce", "--duration", "9s", "--count", "9"}, "--count");
  check_refused({"bench", "produce", "--bytes", "15"}, "15");
  check_refused({"bench", "produce", "--size", "1MiB"},
                "1MiB is not a size from 16 to 1000000 bytes");
  check_refused({"bench", "produce", "--size", "1kb"}, "64KiB");
  check_refused({"bench", "produce", "--acks", "two"}, "two");
  check_refused({"bench", "e2e", "--rate", "0"}, "--rate");
  check_refused({"bench", "consume"}, "--topic");
  check_refused({"bench", "consume", "--topic", "t", "--from", "7"}, "7");
  check_refused({"bench", "consume", "--topic", "t", "--from", "end"}, "--from end");
}

TEST_CASE("a wrong word of tarry explain or topic is status 2, and the error names it") {
  check_refused({"explain"}, "HEADER");
  check_refused({"explain", "x-delay"}, "x-delay=30m");
  check_refused({"explain", "x-delay=1s", "--at", "noon"}, "noon");
  check_refused({"explain", "x-delay=1s", "--topic-config", "retention.ms=1"}, "retention.ms");
  check_refused({"explain", "x-delay=1s", "--topic-config", "tarry.delay.ms"}, "tarry.delay.ms");
  check_refused({"topic", "alter", "t"}, "--config");
  check_refused({"topic", "alter", "t", "--partitions", "none"}, "none");
  check_refused({"topic", "describe", "a/b"}, "a/b");
  check_refused({"topic", "list", "--timeout", "soon"}, "soon");
  check_refused({"topic", "list", "-X", "no.such.key=1"}, "no.such.key");
  check_refused({"topic", "list", "-X", "nokey"}, "nokey");
}

TEST_CASE("a wrong word of tarry produce or consume is status 2, and the error names it") {
  check_refused({"produce", "t", "--delay", "soon"}, "soon");
  check_refused({"produce", "t", "--delay", "-1"}, "-1");
  check_refused({"produce", "t", "--at", "12:00"}, "12:00");
  check_refused({"produce", "t", "--at", "2026-11-21T10:00:00"}, "2026-11-21T10:00:00");
  check_refused({"produce", "t", "--expire-at", "never"}, "never");
  check_refused({"produce", "t", "--delay", "1s", "--at", "0"}, "--delay");
  check_refused({"produce", "t", "--id", "@handle"}, "@handle");
  check_refused({"produce", "t", "--id", ""}, "--id");
  check_refused({"produce", "t", "--id", std::string(250, 'x')}, "250");
  check_refused({"produce", "t", "--id", "x", "-v", "a", "-v", "b"}, "--id");
  check_refused({"produce", "t", "--id", "x", "--whole", "a", "b"}, "--id");
  check_refused({"produce", "t", "-H", "x-delay:1h"},
                "x-delay:1h has no = after the name; write x-delay=1h");
  check_refused({"produce", "t", "-H", "x-schedule-id:a=b"}, "write x-schedule-id=a=b");
  check_refused({"produce", "t", "-H", "X-Schedule-Id: a:b"}, "write X-Schedule-Id=a:b");
  check_refused({"produce", "t", "-H", "=5s"}, "\"=5s\" has an empty name");
  check_refused({"produce", "t", "-H", ""}, "\"\" has an empty name");
  check_refused({"produce", "t", "--acks", "2"}, "2");
  check_refused({"produce", "t", "-p", "-1"}, "-1");
  check_refused({"produce", "t", "-v", "x", "file"}, "file");
  check_refused({"produce", "t", "--whole"}, "--whole");
  check_refused({"produce", "t", "-v", "x", "--key-separator", ":"}, "--key-separator");
  check_refused({"produce", "t", "--key-separator", "\\q"}, "--key-separator: \\q: known are \\n");
  check_refused({"produce"}, "TOPIC");
  check_refused({"consume", "t", "--from", "yesterday"}, "yesterday");
  check_refused({"consume", "t", "--from", "@yesterday"}, "yesterday");
  check_refused({"consume", "t", "--from", "-5"}, "-5");
  check_refused({"consume", "t", "--format", "%q"}, "%q");
  check_refused({"consume", "t", "--format", "%o \\t %q\\n"}, "%q in %o \\t %q\\n:");
  check_refused({"consume", "t", "-n", "0"}, "0");
  check_refused({"consume", "t", "--idle", "x"}, "x");
  check_refused({"consume", "t", "-g", ""}, "group");
  check_refused({"consume", "t", "-g", "g", "-p", "0"}, "-p");
  check_refused({"consume", "t", "-g", "g", "--from", "17"}, "17");
  check_refused({"consume", "t", "-g", "g", "--from", "@2026-11-21T10:00:00Z"}, "reset");
}

TEST_CASE(
    "a wrong word of tarry group, user, acl, delayed, status or dump is status 2, and the error "
    "names it") {
  check_refused({"group"}, "list, describe, reset, delete");
  check_refused({"group", "describe"}, "GROUP");
  check_refused({"user", "add", "a"}, "--password-file");
  check_refused({"user", "add", "a", "--password-file", "f", "--mechanism", "PLAIN"}, "PLAIN");
  check_refused({"user", "add", "a", "--password-file", "f", "--iterations", "1"}, "--iterations");
  check_refused({"acl", "add", "--principal", "a"}, "User:alice");
  check_refused({"acl", "add", "--operation", "fly"}, "fly");
  check_refused({"acl", "add", "--principal", "User:a", "--operation", "read"}, "--topic");
  check_refused({"acl", "delete"}, "--principal");
  check_refused({"group", "reset", "g", "t"}, "--to");
  check_refused({"group", "reset", "g", "t", "--to", "yesterday"}, "yesterday");
  check_refused({"group", "reset", "g", "t", "--to", "-1"}, "-1");
  check_refused({"group", "reset", "g", "a/b", "--to", "start"}, "a/b");
  check_refused({"group", "reset", "g", "t", "--to", "start", "-p", "x"}, "x");
  check_refused({"delayed", "list", "--from", "x"}, "x");
  check_refused({"delayed", "get", "t"}, "ID");
  check_refused({"delayed", "cancel", "t"}, "give ids");
  check_refused({"delayed", "get", "t", "a", "b"}, "b");
  check_refused({"delayed", "list", "--admin", "nowhere"}, "nowhere");
  check_refused({"status", "--admin", "host:99999"}, "host:99999");
  check_refused({"topic", "list", "-b", "127.0.0.1:abc"},
                "127.0.0.1:abc: the port is not a number");
  check_refused({"topic", "list", "-b", "127.0.0.1:1, host:0"}, "host:0: the port");
  check_refused({"topic", "list", "-b", "SSL://[::1]:99999"}, "[::1]:99999: the port");
  check_refused({"dump", "segment"}, "FILE");
}

TEST_CASE("an unknown option names the command, the option that was meant, and where all stand") {
  for (const auto& [words, said] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"consume", "t", "-o", "end", "-c", "1"},
            "consume: -o: there is no such option; did you mean --from? (`tarry consume --help`"},
           {{"consume", "t", "-c1"}, "-c: there is no such option; did you mean -n?"},
           {{"consume", "t", "--limit", "1"}, "did you mean -n?"},
           {{"consume", "t", "--max-messages=1"}, "did you mean -n?"},
           {{"consume", "t", "--from-beginning"}, "did you mean --from start?"},
           {{"consume", "t", "--formt", "%o"}, "did you mean --format?"},
           {{"consume", "-t", "orders"}, "give the topic without an option: tarry consume TOPIC"},
           {{"consume", "--topic=orders"}, "give the topic without an option: tarry consume TOPIC"},
           {{"topic", "create", "t", "-p", "3"}, "did you mean --partitions?"},
           {{"topic", "create", "t", "-r", "1"}, "did you mean --replication-factor?"},
           {{"topic", "create", "t", "-c", "a=b"}, "did you mean --config?"},
           {{"topic", "list", "--bootstrap-server", "x"}, "topic list: --bootstrap-server: "},
           {{"topic", "list", "--bootstrap-server", "x"}, "did you mean -b?"},
           {{"topic", "list", "-t", "x"}, "-t: there is no such option (`tarry topic list --help`"},
           {{"delayed", "list", "-n", "5"}, "did you mean --limit?"},
           {{"delayed", "list", "--frobnicate"}, "option (`tarry delayed list --help` shows all)"},
           // Not that its value is a wrong argument.
           {{"config", "set", "a=b", "--data", "/srv"}, "config set: --data: there is no such opt"},
           {{"group", "reset", "g", "--data", "/srv"}, "group reset: --data: there is no such opt"},
           {{"topic", "list", "more"}, "topic list: more: unexpected argument; usage: "},
           // Behind -- nothing is an option.
           {{"consume", "--", "t", "-o"}, "consume: -o: unexpected argument; usage: "},
           {{"consume", "-o", "--", "t", "-c"}, "consume: -o: there is no such option"}}) {
    check_refused(words, said);
  }
}

TEST_CASE(
    "ids may stand behind --, and a word too many there is told with what the command takes") {
  const std::string nobody = "127.0.0.1:1";
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"delayed", "cancel", "t", "--admin", nobody, "--", "-x"},
           {"delayed", "deliver", "t", "--admin", nobody, "--", "-x"},
           {"delayed", "move", "t", "--by", "1h", "--admin", nobody, "--", "-x"}}) {
    check_refused(words, "-x: nothing listens at 127.0.0.1:1", 1);
  }
  // Also behind an id that stands before it: the error is that of the first, and no wrong usage.
  check_refused({"delayed", "cancel", "t", "a", "--admin", nobody, "--", "-x"},
                "a: nothing listens at 127.0.0.1:1", 1);
  check_refused({"delayed", "cancel", "t", "a", "b", "--admin", nobody, "--", "-x", "c"},
                "a: nothing listens at 127.0.0.1:1", 1);
  check_refused({"topic", "create", "t", "--", "-x"},
                "topic create: -x: unexpected argument; usage: tarry topic create NAME");
  check_refused({"topic", "list", "--", "-x"}, "topic list: -x: unexpected argument; usage: ");
  // A selection has no ids, so they are not required.
  check_refused({"delayed", "cancel", "t"}, "cancel: give ids, - to read them");
  check_refused({"delayed", "cancel", "t", "--id", "x*", "--admin", nobody},
                "nothing listens at 127.0.0.1:1", 1);
}

TEST_CASE("an unknown command names the one that was meant, also if another program calls it so") {
  const Program program;
  for (const auto& [word, said] : std::vector<std::pair<std::string, std::string>>{
           {"hlep", "hlep: there is no such command; did you mean help? `tarry --help` shows all"},
           {"topics", "did you mean topic list?"},
           {"ls", "did you mean topic list?"},
           {"groups", "did you mean group list?"},
           {"prodcue", "did you mean produce?"},
           {"frobnicate", "frobnicate: there is no such command; `tarry --help` shows all"},
           {"--frobnicate", "--frobnicate: there is no such option; `tarry --help` shows all"}}) {
    const auto text = unknown_command_text(program.app, word);
    CAPTURE(text);
    CHECK(text.contains(said));
  }
  check_refused({"topic", "lst"}, "did you mean list? create, list, describe");
  // `ls` is `list`: what is wrong here is its option, or that nobody listens.
  check_refused({"topic", "ls", "--timeout", "0"}, "--timeout");
  check_refused({"group", "ls", "-b", "127.0.0.1:1", "--timeout", "300ms"}, "127.0.0.1:1", 1);
  CHECK(run({"help", "topic", "ls"}).status == 0);
}

TEST_CASE(
    "a schedule, a move or a selection that makes no sense is refused before anything is sent") {
  check_refused({"produce", "t", "--every", "soon"}, "soon");
  check_refused({"produce", "t", "--every", "1h", "--cron", "@daily"}, "--cron");
  check_refused({"produce", "t", "--every", "1h", "--times", "0"}, "--times");
  check_refused({"produce", "t", "--until", "+1h"}, "--until +1h: needs --every or --cron");
  check_refused({"produce", "t", "--times", "3"}, "--times 3: needs --every or --cron");
  check_refused({"produce", "t", "--tz", "UTC", "--every", "1h"}, "--tz UTC: needs --cron");
  check_refused({"produce", "t", "--delay", "999999999d"},
                "--delay 999999999d: the record would be");
  check_refused({"produce", "t", "-v", "x", "--until", "+1h", "-H", "X-Every=1h", "-b",
                 "127.0.0.1:1", "--timeout", "300ms"},
                "127.0.0.1:1", 1);
  // A broker may have other names for the headers.
  check_refused({"produce", "t", "-v", "x", "--times", "3", "-H", "my-every=1h", "-b",
                 "127.0.0.1:1", "--timeout", "300ms"},
                "127.0.0.1:1", 1);
  check_refused({"delayed", "move", "t", "id"}, "--at T or --by D");
  check_refused({"delayed", "move", "t", "id", "--at", "now", "--by", "1h"}, "--at T or --by D");
  check_refused({"delayed", "move", "t", "id", "--at", "yesterday"}, "yesterday");
  check_refused({"delayed", "deliver", "t", "id", "--id", "x*"}, "not both");
  check_refused({"delayed", "cancel", "t", "id", "--dry-run"}, "--dry-run");
  check_refused({"delayed", "count", "--by", "week"}, "week");
  for (const char* name : {"list", "count", "cancel", "move", "deliver", "export"}) {
    CAPTURE(name);
    for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
             {"+2h", "+1h"}, {"1795258800001", "2026-11-21T11:00:00Z"}}) {
      check_refused({"delayed", name, "t", "--from", from, "--to", to},
                    "--to: " + to + " is before --from " + from);
    }
    if (name == std::string_view("count")) continue;
    check_refused({"delayed", name, "t", "--id", ""}, "--id: it is empty");
    check_refused({"delayed", name, "t", "--key", ""}, "--key: it is empty");
  }
}

TEST_CASE(
    "an address where nobody listens is status 1, and the error has the address and the reason") {
  // Port 1 is nobody's.
  check_refused({"topic", "list", "-b", "127.0.0.1:1", "--timeout", "300ms"}, "127.0.0.1:1", 1);
  check_refused({"group", "list", "-b", "127.0.0.1:1", "--timeout", "300ms"}, "127.0.0.1:1", 1);
  check_refused({"group", "list", "-b", "PLAINTEXT://[::1]:1,127.0.0.1:1"}, "127.0.0.1:1", 1);
  check_refused({"consume", "t", "-g", "g", "-b", "127.0.0.1:1", "--timeout", "300ms"},
                "127.0.0.1:1", 1);
  check_refused({"status", "--admin", "127.0.0.1:1", "--timeout", "300ms"}, "127.0.0.1:1", 1);
  check_refused({"delayed", "cancel", "t", "a", "b", "--admin", "127.0.0.1:1"}, "127.0.0.1:1", 1);
  // A colon in the name of another header is allowed, and so is one in a value.
  check_refused({"produce", "t", "-v", "x", "-H", "x:note", "-H", "x-schedule-id=a:b", "-b",
                 "127.0.0.1:1", "--timeout", "300ms"},
                "127.0.0.1:1", 1);
  check_refused({"bench", "delayed", "-b", "127.0.0.1:1", "--timeout", "300ms"}, "127.0.0.1:1", 1);
  check_refused({"bench", "produce", "-b", "127.0.0.1:1"}, "127.0.0.1:1", 1);
  check_refused({"bench", "produce", "--topic", "t", "-b", "127.0.0.1:1"}, "127.0.0.1:1", 1);
  check_refused({"bench", "consume", "--topic", "t", "-b", "127.0.0.1:1"}, "127.0.0.1:1", 1);
  check_refused({"bench", "e2e", "-b", "127.0.0.1:1"}, "127.0.0.1:1", 1);
  check_refused({"dump", "segment", "/no/such/file"}, "/no/such/file", 1);
}

TEST_SUITE_END();
}  // namespace
}  // namespace tarry::cli
