// Texts that are read off the tree of commands: help, man pages and completions of a shell.

#include "cli/completion.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "cli/command_tree.h"
#include "cli/man_page.h"
#include "tests/cli/program.h"

namespace tarry::cli {
namespace {

using Words = std::vector<std::string>;

class FewNames : public NameSource {
 public:
  Words topics() override { return {"orders", "orders.invalid", "reports", "with\nbreak"}; }
  Words groups() override { return {"billing"}; }
  Words ids(const std::string& topic, const std::string& prefix) override {
    asked = topic + " " + prefix;
    return {"order-1", "order-2", "@7Vbc5R5U4gfFC5"};
  }
  Words topic_configs(const std::string&) override { return {"retention.ms", "tarry.delay.ms"}; }
  Words broker_configs() override { return {"log.retention.ms"}; }

  std::string asked;
};

// The words that can stand at the end of the line, without "tarry" before it.
Words completed(const std::string& line, FewNames names = {}) {
  const Program program;
  const auto split = split_line(line);
  const auto completion =
      complete(program.app, read_words(program.app, split.words), split.last, names);
  if (completion.kind != Completion::Kind::words) return {text_of(completion)};
  Words words;
  for (const auto& word : completion.words) words.push_back(word.text);
  return words;
}

bool has(const Words& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

void for_each_command(const CLI::App& above, const std::function<void(const CLI::App&)>& take) {
  take(above);
  for (const auto* command : commands_of(above)) for_each_command(*command, take);
}

TEST_SUITE_BEGIN("completion");

TEST_CASE("commands are completed by their names, below a group too") {
  CHECK(completed("pro") == Words{"produce"});
  CHECK(completed("topic ") == Words{"create", "list", "describe", "alter", "delete"});
  CHECK(completed("topic d") == Words{"describe", "delete"});
  CHECK(completed("nonsense ").empty());
  CHECK(!has(completed(""), "man"));
  CHECK(completed("help topic c") == Words{"create"});
  CHECK(completed("help topic create ").empty());
}

TEST_CASE("flags are completed once a dash is there, and never behind two dashes") {
  CHECK(completed("topic create orders --pa") == Words{"--partitions"});
  CHECK(has(completed("consume -"), "-X"));
  CHECK(!has(completed("consume -"), "-b"));  // --brokers says more.
  CHECK(completed("consume -- --fr").empty());
}

TEST_CASE("names come from the broker, wherever the command takes one") {
  CHECK(completed("consume ord") == Words{"orders", "orders.invalid"});
  CHECK(completed("topic describe rep") == Words{"reports"});
  CHECK(completed("topic create rep").empty());
  CHECK(completed("consume orders ").empty());
  CHECK(completed("consume orders -g ") == Words{"billing"});
  CHECK(completed("consume orders --group=b") == Words{"--group=billing"});
  CHECK(completed("group describe ") == Words{"billing"});
  CHECK(completed("group reset billing r") == Words{"reports"});
  CHECK(completed("delayed get orders order-") == Words{"order-1", "order-2"});
  CHECK(completed("delayed cancel orders order-1 @") == Words{"@7Vbc5R5U4gfFC5"});
  CHECK(completed("topic alter orders --config ret") == Words{"retention.ms="});
  CHECK(completed("topic alter orders --config retention.ms=1").empty());
  CHECK(completed("topic create orders --config ret").empty());
}

TEST_CASE("a name that would break its line is left out") {
  CHECK(completed("consume ") == Words{"orders", "orders.invalid", "reports"});
}

TEST_CASE("choices, files and directories are completed as such") {
  CHECK(completed("delayed count --by ") == Words{"minute", "hour", "day"});
  CHECK(completed("consume orders --from ") == Words{"start", "end"});
  CHECK(completed("completion z") == Words{"zsh"});
  CHECK(completed("produce orders ") == Words{"files\n"});
  CHECK(completed("dump segment one.log ") == Words{"files\n"});
  CHECK(completed("delayed list --data ") == Words{"directories\n"});
}

TEST_CASE("the words before the cursor say which broker is meant, in every way to give a flag") {
  const Program program;
  for (const Words& words :
       {Words{"consume", "-b", "host:1", "orders"}, Words{"consume", "-bhost:1", "orders"},
        Words{"consume", "--brokers=host:1", "orders"},
        Words{"consume", "orders", "--json", "--brokers", "host:1"}}) {
    const auto typed = read_words(program.app, words);
    CHECK(typed.values.at("--brokers") == "host:1");
    CHECK(typed.positionals == Words{"orders"});
    CHECK(typed.command->get_name() == "consume");
  }
  CHECK(read_words(program.app, {"consume", "-b"}).open_option == "--brokers");
}

TEST_CASE("a line is parted as a shell parts it, up to the cursor") {
  const auto line = split_line(R"(tarry produce 'a topic' -v "x\"y" ab\ c)");
  CHECK(line.words == Words{"tarry", "produce", "a topic", "-v", "x\"y"});
  CHECK(line.last == "ab c");
  CHECK(split_line("tarry ").last.empty());
  CHECK(split_line("tarry ''").last.empty());
  CHECK(split_line("tarry 'open qu").last == "open qu");
}

TEST_CASE("every command has two examples below its help, and the command line takes them") {
  const Program program;
  for_each_command(program.app, [](const CLI::App& command) {
    if (command.get_parent() == nullptr) return;
    CAPTURE(path_of(command));
    const auto examples = examples_of(command);
    CHECK(examples.size() >= 2);
    for (const auto& example : examples) {
      CAPTURE(example);
      CHECK(help_of(command).find("  " + example) != std::string::npos);
      auto words = split_line(example.substr(0, example.find_first_of("|<>")) + " ").words;
      // `echo ... | tarry` and `source <(tarry ...)` are the shell's.
      if (words.empty() || words[0] != "tarry") continue;
      words.erase(words.begin());
      std::ranges::reverse(words);
      Program fresh;
      if (!words.empty() && words.back().starts_with("--version")) continue;
      CHECK_NOTHROW(fresh.app.parse(words));
      CHECK(fresh.chosen.run);
    }
  });
}

TEST_CASE("a man page has the contents of the help, and no line that roff takes for a request") {
  const Program program;
  for_each_command(program.app, [&](const CLI::App& command) {
    if (command.get_parent() != nullptr && command.get_parent()->get_parent() != nullptr) return;
    CAPTURE(path_of(command));
    const std::string page = man_page(program.app, command);
    for (const char* section : {".TH ", "\n.SH NAME\n", "\n.SH SYNOPSIS\n", "\n.SH EXIT STATUS\n"})
      CHECK(page.find(section) != std::string::npos);
    for_each_command(command, [&](const CLI::App& each) {
      if (command.get_parent() == nullptr) return;
      for (const auto& parameter : parameters_of(each)) {
        if (parameter.is_positional()) continue;
        std::string flag = parameter.flags.back();
        for (std::size_t at = 0; (at = flag.find('-', at)) != flag.npos; at += 2)
          flag.replace(at, 1, "\\-");
        CAPTURE(flag);
        CHECK(page.find("\\fB" + flag + "\\fR") != std::string::npos);
      }
    });
    const std::string requests = ".TH .SH .SS .TP .nf .fi ";
    std::size_t begin = 0;
    for (std::size_t end; (end = page.find('\n', begin)) != page.npos; begin = end + 1) {
      const std::string line = page.substr(begin, end - begin);
      CAPTURE(line);
      CHECK(!line.starts_with('\''));
      if (line.starts_with('.'))
        CHECK(requests.find(line.substr(0, line.find(' ')) + " ") != std::string::npos);
    }
  });
}

TEST_CASE("text of a man page cannot become a roff request, and dashes can be copied") {
  CLI::App program{".hidden -x \\n", "tarry"};
  const std::string page = man_page(program, program);
  CHECK(page.find("\n\\&.hidden \\-x \\en.\n") != std::string::npos);
}

TEST_SUITE_END();
}  // namespace
}  // namespace tarry::cli
