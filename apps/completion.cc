// `turbogr completion bash|zsh|man`: what packages install so that a shell completes words and `man
// turbogr` works. All three are made from the help texts.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "turbogr/core/version.h"

namespace turbogr::apps {
namespace {

// "data prepare" and what may follow it.
struct Words {
  std::string path;
  std::vector<std::string> next;
};

void collect(const Command& command, const std::string& path, std::vector<Words>& all) {
  Words words{.path = path, .next = {}};
  for (const Command* sub : command.subcommands()) words.next.push_back(sub->name());
  for (const Command::OptionText& option : command.options()) {
    for (const std::string& name : option.names) {
      if (name.starts_with("--")) words.next.push_back(name);
    }
  }
  all.push_back(std::move(words));
  for (const Command* sub : command.subcommands()) {
    collect(*sub, path.empty() ? sub->name() : path + " " + sub->name(), all);
  }
}

// The lines "path) choices" of a shell's case; commands are told from options by their first
// letter.
std::string cases(const Command& program) {
  std::vector<Words> all;
  collect(program, "", all);
  std::string text;
  for (const Words& words : all) {
    text += fmt::format("    '{}') choices='{}' ;;\n", words.path, fmt::join(words.next, " "));
  }
  return text;
}

std::string commands_pattern(const Command& program) {
  std::vector<Words> all;
  collect(program, "", all);
  std::vector<std::string> paths;
  for (const Words& words : all) {
    if (!words.path.empty()) paths.push_back("'" + words.path + "'");
  }
  return fmt::format("{}", fmt::join(paths, "|"));
}

std::string bash(const Command& program) {
  return fmt::format(R"(# bash completion of turbogr {}
_turbogr() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} path='' word choices
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "${{path:+$path }}$word" in
      {}) path="${{path:+$path }}$word" ;;
    esac
  done
  case $path in
{}    *) choices='' ;;
  esac
  COMPREPLY=($(compgen -W "$choices" -- "$current"))
}}
# Where no word fits bash completes names of files by itself, those with blanks too.
complete -o default -F _turbogr turbogr
)",
                     version(), commands_pattern(program), cases(program));
}

std::string zsh(const Command& program) {
  return fmt::format(R"(#compdef turbogr
# zsh completion of turbogr {}
local at='' word choices
for word in "${{(@)words[2,CURRENT-1]}}"; do
  case "${{at:+$at }}$word" in
    {}) at="${{at:+$at }}$word" ;;
  esac
done
case $at in
{}    *) choices='' ;;
esac
compadd -- ${{=choices}}
_files
)",
                     version(), commands_pattern(program), cases(program));
}

// Dots at the start of a line and backslashes mean something to troff.
std::string troff(const std::string& text) {
  std::string result;
  bool line_starts = true;
  for (const char c : text) {
    if (line_starts && (c == '.' || c == '\'')) result += "\\&";
    if (c == '\\' || c == '-') result += '\\';
    result += c;
    line_starts = c == '\n';
  }
  return result;
}

void add_manual(const Command& command, const std::string& path, std::string& text) {
  if (!path.empty()) {
    text += fmt::format(".SS \"turbogr {}\"\n{}\n", path, troff(command.description()));
  }
  for (const Command::OptionText& option : command.options()) {
    text +=
        fmt::format(".TP\n\\fB{}\\fR\n{}\n",
                    troff(fmt::format("{}", fmt::join(option.names, ", "))), troff(option.help));
  }
  for (const Command* sub : command.subcommands()) {
    add_manual(*sub, path.empty() ? sub->name() : path + " " + sub->name(), text);
  }
}

std::string manual(const Command& program) {
  std::string text = fmt::format(
      ".TH TURBOGR 1 \"\" \"turbogr {}\" \"User Commands\"\n"
      ".SH NAME\nturbogr \\- train generative recommenders on whole user histories\n"
      ".SH SYNOPSIS\n\\fBturbogr\\fR [\\fIoptions\\fR] \\fIcommand\\fR [\\fIoptions\\fR]\n"
      ".SH DESCRIPTION\n"
      "Raw logs in, recommendations out: \\fBdata prepare\\fR makes a sequence store, "
      "\\fBtrain\\fR a\n"
      "run folder with checkpoints, \\fBeval\\fR, \\fBrecommend\\fR and \\fBexport\\fR use one. "
      "\\fBturbogr demo\\fR does\nall of it on a small made-up world.\n"
      ".SH COMMANDS AND OPTIONS\n",
      version());
  add_manual(program, "", text);
  text +=
      ".SH EXIT STATUS\n0 when all went well, 1 when something went wrong, 2 for a wrong command "
      "line.\n";
  return text;
}

}  // namespace

void add_completion(Command& program) {
  Command* command = program.add_subcommand(
      "completion", "Print a shell's completion script (bash, zsh), or the manual (man)");
  auto kind = std::make_shared<std::string>();
  command->add_option("KIND", *kind, "bash, zsh or man")
      ->required()
      ->check(is_one_of({"bash", "zsh", "man"}));
  command->callback([&program, kind] {
    const std::string text = *kind == "bash"  ? bash(program)
                             : *kind == "zsh" ? zsh(program)
                                              : manual(program);
    fmt::print("{}", text);
  });
}

}  // namespace turbogr::apps
