#include "cli/man_page.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "cli/command_tree.h"

namespace tarry::cli {
namespace {

// Text in a line: a dash that can be copied, and no word that roff reads as a request.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

// "topic create" is tarry-topic; the program itself is tarry.
std::string page_name(const CLI::App& command) {
  return command.get_parent() == nullptr
             ? command.get_name()
             : command.get_parent()->get_name() + "-" + command.get_name();
}

class Page {
 public:
  Page(const CLI::App& program, const CLI::App& command) : program_(program), command_(command) {}

  std::string text() {
    head();
    if (command_.get_parent() == nullptr) {
      commands();
    } else if (const auto below = commands_of(command_); below.empty()) {
      section("DESCRIPTION");
      sentence(command_.get_description());
      section("OPTIONS");
      options(parameters_of(command_));
    } else {
      // A group has one page for all of its commands, because most of their options are the same.
      group(below);
    }
    examples();
    exit_status();
    environment();
    see_also();
    return out_;
  }

 private:
  void line(const std::string& text) { out_ += text + "\n"; }
  void sentence(const std::string& text) {
    if (!text.empty()) line(roff(text) + ".");
  }
  void section(const char* title) { line(fmt::format(".SH {}", title)); }

  void head() {
    const std::string name = page_name(command_);
    std::string upper = name;
    // toupper() would follow the locale.
    std::ranges::transform(upper, upper.begin(), [](char c) {
      return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
    });
    const std::string version = program_.version();
    // Without a date, which would make two builds of one version differ.
    line(fmt::format(".TH {} 1 \"\" \"{}\" \"Tarry\"", roff(upper),
                     version.empty() ? "tarry" : roff(version)));
    section("NAME");
    line(fmt::format("{} \\- {}", roff(name), roff(command_.get_description())));
    section("SYNOPSIS");
    line(".nf");
    const auto below = commands_of(command_);
    if (below.empty() || command_.get_parent() == nullptr) {
      line(roff(synopsis_of(command_)));
    } else {
      for (const auto* each : below) line(roff(synopsis_of(*each)));
    }
    line(".fi");
  }

  void options(const std::vector<Parameter>& parameters) {
    for (const auto& parameter : parameters) {
      line(".TP");
      std::string term;
      for (const auto& flag : parameter.flags)
        term += (term.empty() ? "\\fB" : ", \\fB") + roff(flag) + "\\fR";
      if (!parameter.value.empty())
        term += (term.empty() ? "\\fI" : " \\fI") + roff(parameter.value) + "\\fR";
      line(term);
      sentence(parameter.help + (parameter.is_required ? " (required)" : ""));
    }
  }

  void commands() {
    section("DESCRIPTION");
    sentence(command_.get_description());
    section("COMMANDS");
    for (const auto* each : commands_of(command_)) {
      line(".TP");
      line("\\fB" + roff(each->get_name()) + "\\fR");
      sentence(each->get_description());
    }
    section("OPTIONS");
    options(parameters_of(command_));
  }

  // Options that all commands of a group have stand once, behind the commands.
  void group(const std::vector<const CLI::App*>& below) {
    section("DESCRIPTION");
    sentence(command_.get_description());
    // Begins with those of the first command, and loses what another one does not have in the same
    // words.
    std::vector<Parameter> shared = parameters_of(*below.front());
    for (const auto* each : below) {
      const auto own = parameters_of(*each);
      std::erase_if(shared, [&](const Parameter& one) {
        return one.is_positional() || std::ranges::find(own, one) == own.end();
      });
    }
    section("COMMANDS");
    for (const auto* each : below) {
      line(fmt::format(".SS \"{}\"", roff(path_of(*each))));
      sentence(each->get_description());
      auto own = parameters_of(*each);
      std::erase_if(own, [&](const Parameter& one) { return std::ranges::count(shared, one) > 0; });
      options(own);
    }
    section("OPTIONS OF EVERY COMMAND");
    options(shared);
  }

  void examples() {
    std::vector<std::string> lines = examples_of(command_);
    for (const auto* each : commands_of(command_)) {
      // The program's own page does not repeat the examples of all commands.
      if (command_.get_parent() == nullptr) break;
      for (const auto& example : examples_of(*each))
        if (std::ranges::find(lines, example) == lines.end()) lines.push_back(example);
    }
    if (lines.empty()) return;
    section("EXAMPLES");
    line(".nf");
    for (const auto& example : lines) line(roff(example));
    line(".fi");
  }

  void exit_status() {
    section("EXIT STATUS");
    line(".TP\n0\nSuccess.");
    line(".TP\n1\nFailure; one line on standard error gives the reason.");
    line(".TP\n2\nWrong usage; one line on standard error names the wrong word.");
  }

  void environment() {
    // A map sorts them and has each once, although most commands have the option.
    std::map<std::string, std::string> variables;
    const auto add = [&](const CLI::App& command) {
      for (const auto& parameter : parameters_of(command))
        if (!parameter.variable.empty())
          variables[parameter.variable] = "Stands for " + parameter.flags.back() + ".";
    };
    const auto add_all = [&](const auto& self, const CLI::App& command) -> void {
      add(command);
      for (const auto* each : commands_of(command)) self(self, *each);
    };
    add_all(add_all, command_);
    // The token is no option, as the command line of a process is no secret; so the tree lacks it.
    if (variables.contains("TARRY_ADMIN"))
      variables["TARRY_ADMIN_TOKEN"] = "The admin's token, if --data does not say where it is.";
    variables["NO_COLOR"] = "If it is set and not empty, the output has no colours.";
    section("ENVIRONMENT");
    for (const auto& [name, help] : variables) {
      line(".TP");
      line("\\fB" + roff(name) + "\\fR");
      line(roff(help));
    }
  }

  void see_also() {
    section("SEE ALSO");
    std::string all;
    const auto add = [&](const CLI::App& command) {
      // help and version have no page: that of the program describes them.
      if (&command == &command_ || command.get_name() == "help" || command.get_name() == "version")
        return;
      all += fmt::format("{}\\fB{}\\fR(1)", all.empty() ? "" : ", ", roff(page_name(command)));
    };
    add(program_);
    for (const auto* each : commands_of(program_)) add(*each);
    line(all);
  }

  const CLI::App& program_;
  const CLI::App& command_;
  std::string out_;
};

}  // namespace

std::string man_page(const CLI::App& program, const CLI::App& command) {
  return Page(program, command).text();
}

}  // namespace tarry::cli
