#include "cli/completion.h"

#include <algorithm>
#include <optional>

#include "base/assert.h"
#include "cli/command_tree.h"
#include "cli/io/text.h"

namespace tarry::cli {
namespace {

const Parameter* option_named(const std::vector<Parameter>& parameters, std::string_view flag) {
  const auto found = std::ranges::find_if(parameters, [&](const Parameter& parameter) {
    return std::ranges::find(parameter.flags, flag) != parameter.flags.end();
  });
  return found == parameters.end() ? nullptr : &*found;
}

// The words of "minute|hour|day", and of "start|end|OFFSET|@TIME" the two that can be typed as they
// are.
std::vector<std::string> choices_in(std::string_view value) {
  std::vector<std::string> words;
  if (!value.contains('|')) return words;
  while (true) {
    const auto end = value.find('|');
    const auto word = value.substr(0, end);
    // Words in capitals stand for what the user puts in their place.
    if (std::ranges::none_of(word, [](char c) { return c >= 'A' && c <= 'Z'; }))
      words.emplace_back(word);
    if (end == value.npos) return words;
    value.remove_prefix(end + 1);
  }
}

class Completer {
 public:
  Completer(const CLI::App& program, const TypedWords& typed, NameSource& names)
      : program_(program),
        typed_(typed),
        names_(names),
        parameters_(parameters_of(*typed.command)) {}

  Completion run(const std::string& word) {
    if (const auto* open = option_named(parameters_, typed_.open_option)) {
      add_values(open->value, word);
    } else if (const auto equals = word.find('=');
               word.starts_with("--") && equals != word.npos && !typed_.only_positionals) {
      if (const auto* option = option_named(parameters_, word.substr(0, equals)))
        add_values(option->value, word.substr(equals + 1), word.substr(0, equals + 1));
      // A shell would complete a file's name without the option before it.
      completion_.kind = Completion::Kind::words;
    } else if (word.starts_with('-') && !typed_.only_positionals) {
      for (const auto& parameter : parameters_)
        for (const auto& flag : parameter.flags)
          // A short flag only where there is no long one, or everything would be listed twice.
          if (flag.starts_with("--") || parameter.flags.size() == 1)
            add(flag, word, parameter.help);
    } else {
      if (typed_.positionals.empty()) add_commands(*typed_.command, word);
      add_positional(word);
    }
    return std::move(completion_);
  }

 private:
  void add(const std::string& text, const std::string& word, const std::string& help = {},
           const std::string& before = {}) {
    // A word that a shell's script could not distinguish from its own lines is left out.
    if (text.starts_with(word) && cell(text) == text)
      completion_.words.push_back({before + text, help});
  }
  void add_all(const std::vector<std::string>& texts, const std::string& word,
               const std::string& before) {
    for (const auto& text : texts) add(text, word, {}, before);
  }

  void add_commands(const CLI::App& group, const std::string& word) {
    for (const auto* command : commands_of(group))
      add(command->get_name(), word, command->get_description());
  }

  void add_positional(const std::string& word) {
    std::size_t place = 0;
    for (const auto& parameter : parameters_) {
      if (!parameter.is_positional()) break;
      if (place++ < typed_.positionals.size() && !parameter.is_repeated) continue;
      const bool is_topic = parameter.value == "NAME" && above() == "topic";
      if (is_topic && typed_.command->get_name() == "create") return;  // A name that is new.
      if (parameter.value.starts_with("COMMAND")) return add_command(word);
      return add_values(is_topic ? "TOPIC" : parameter.value, word);
    }
  }

  std::string above() const {
    const auto* parent = typed_.command->get_parent();
    return parent == nullptr ? std::string() : parent->get_name();
  }

  // `tarry help topic cr`
  void add_command(const std::string& word) {
    const auto found = find_command(program_, typed_.positionals);
    if (found.used == typed_.positionals.size()) add_commands(*found.command, word);
  }

  void add_values(std::string_view value, const std::string& word, const std::string& before = {}) {
    // The names of values in the help also decide how they are completed.
    if (value.ends_with("...")) value.remove_suffix(3);
    if (value == "TOPIC") {
      add_all(names_.topics(), word, before);
    } else if (value == "GROUP") {
      add_all(names_.groups(), word, before);
    } else if (value == "ID" && !typed_.positionals.empty()) {
      add_all(names_.ids(typed_.positionals.front(), word), word, before);
    } else if (value == "FILE") {
      completion_.kind = Completion::Kind::files;
    } else if (value == "DIR") {
      completion_.kind = Completion::Kind::directories;
    } else if ((value == "KEY=VALUE" || value == "KEY") && !word.contains('=')) {
      // The value after the = is free text, so there is nothing to list for it.
      add_keys(word, value == "KEY=VALUE" ? "=" : "", before);
    } else {
      add_all(choices_in(value), word, before);
    }
  }

  // Keys of the configs of a topic or of a broker, wherever the command says which.
  void add_keys(const std::string& word, const std::string& after, const std::string& before) {
    std::optional<std::vector<std::string>> keys;
    if (above() == "topic" && typed_.command->get_name() == "alter" && !typed_.positionals.empty())
      keys = names_.topic_configs(typed_.positionals.front());
    if (above() == "config") {
      const auto topic = typed_.values.find("--topic");
      keys = topic == typed_.values.end() ? names_.broker_configs()
                                          : names_.topic_configs(topic->second);
    }
    // A topic that is being created has no configs that could be asked for.
    if (!keys) return;
    for (const auto& key : *keys) add(key + after, word, {}, before);
  }

  const CLI::App& program_;
  const TypedWords& typed_;
  NameSource& names_;
  const std::vector<Parameter> parameters_;
  Completion completion_;
};

}  // namespace

TypedWords read_words(const CLI::App& program, const std::vector<std::string>& words) {
  // CLI11 would refuse a line that is not complete, so the words are read again here, with the same
  // rules.
  TypedWords typed{&program, {}, {}, {}, false};
  auto parameters = parameters_of(program);
  const Parameter* open = nullptr;
  const auto flag_of = [](const Parameter& parameter) { return parameter.flags.back(); };
  for (const auto& word : words) {
    if (open != nullptr) {
      typed.values[flag_of(*open)] = word;
      open = nullptr;
    } else if (typed.only_positionals || !word.starts_with('-') || word == "-") {
      // No command follows a positional word.
      const auto found = typed.positionals.empty() ? find_command(*typed.command, {word})
                                                   : FoundCommand{nullptr, 0};
      if (found.used == 1) {
        typed.command = found.command;
        parameters = parameters_of(*found.command);
      } else {
        typed.positionals.push_back(word);
      }
    } else if (word == "--") {
      typed.only_positionals = true;
    } else {
      const auto equals = word.find('=');
      const bool is_long = word.starts_with("--");
      const auto flag = is_long ? word.substr(0, equals) : word.substr(0, 2);
      const auto* option = option_named(parameters, flag);
      // Not known, or a flag without a value: the next word is not its value.
      if (option == nullptr || option->value.empty()) continue;
      if (is_long && equals != word.npos) {
        typed.values[flag_of(*option)] = word.substr(equals + 1);
      } else if (!is_long && word.size() > 2) {
        typed.values[flag_of(*option)] = word.substr(2);
      } else {
        open = option;
      }
    }
  }
  if (open != nullptr) typed.open_option = flag_of(*open);
  return typed;
}

Completion complete(const CLI::App& program, const TypedWords& typed, const std::string& word,
                    NameSource& names) {
  return Completer(program, typed, names).run(word);
}

std::string text_of(const Completion& completion) {
  if (completion.kind == Completion::Kind::files) return "files\n";
  if (completion.kind == Completion::Kind::directories) return "directories\n";
  std::string text = "words\n";
  for (const auto& [word, help] : completion.words) text += word + "\t" + cell(help) + "\n";
  return text;
}

std::string_view shell_script(std::string_view shell) {
  // bash parts words at = : and @ as well, and replaces only what follows the last of them.
  if (shell == "bash")
    return R"sh(# Bash completion for tarry, as printed by `tarry completion bash`.
_tarry() {
  local kind= reply help word cut=
  COMPREPLY=()
  word=${COMP_LINE:0:COMP_POINT}
  word=${word##*[[:blank:]]}
  if [[ $word == *[=:@]* && $COMP_WORDBREAKS == *[=:@]* ]]; then
    local breaks=${COMP_WORDBREAKS//[^=:@]/}
    cut=${word%"${word##*[$breaks]}"}
  fi
  while IFS=$'\t' read -r reply help; do
    if [[ -z $kind ]]; then
      kind=$reply
      continue
    fi
    [[ $reply == *= ]] && compopt -o nospace
    printf -v reply %q "$reply"
    COMPREPLY+=("${reply#"$cut"}")
  done < <("${COMP_WORDS[0]/#\~/$HOME}" __complete --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
  case $kind in
    files) compopt -o default ;;
    directories) compopt -o dirnames ;;
  esac
}
complete -F _tarry tarry
)sh";
  if (shell == "zsh")
    return R"sh(#compdef tarry
# Zsh completion for tarry, as printed by `tarry completion zsh`.
_tarry() {
  local -a lines texts shown before
  local kind line text help
  before=("${(@Q)words[2,CURRENT-1]}")
  lines=("${(@f)$("${(Q)words[1]/#\~/$HOME}" __complete -- "${before[@]}" "${(Q)PREFIX}" 2>/dev/null)}")
  kind=$lines[1]
  shift lines
  case $kind in
    files) _files ;;
    directories) _files -/ ;;
    words)
      for line in "${lines[@]}"; do
        text=${line%%$'\t'*}
        help=${line#*$'\t'}
        texts+=("$text")
        shown+=("$text${help:+  -- $help}")
      done
      if [[ $#texts == 1 && $texts[1] == *= ]]; then
        compadd -l -d shown -S '' -- "${texts[@]}"
      else
        compadd -l -d shown -- "${texts[@]}"
      fi
      ;;
  esac
}
if [[ $funcstack[1] == _tarry ]]; then
  _tarry "$@"
else
  compdef _tarry tarry
fi
)sh";
  TARRY_ASSERT(shell == "fish", "there are scripts for bash, zsh and fish");
  return R"sh(# Fish completion for tarry, as printed by `tarry completion fish`.
function __tarry_complete
    set -l before (commandline -opc)
    set -l program $before[1]
    set -e before[1]
    set -l lines ($program __complete -- $before (commandline -ct) 2>/dev/null)
    switch "$lines[1]"
        case files
            __fish_complete_path (commandline -ct)
        case directories
            __fish_complete_directories (commandline -ct)
        case words
            set -e lines[1]
            for line in $lines
                echo $line
            end
    end
end
complete -c tarry -f -a '(__tarry_complete)'
)sh";
}

}  // namespace tarry::cli
