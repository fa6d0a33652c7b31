#include "Documents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>

namespace fusion {

static std::vector<std::string> extensionsIn(const std::string &text) {
  std::vector<std::string> extensions;
  for (size_t at = text.find('.'); at != std::string::npos; at = text.find('.', at + 1)) {
    size_t end = at + 1;
    while (end < text.size() && std::isalnum(static_cast<unsigned char>(text[end])))
      ++end;
    if (end > at + 1 && (at == 0 || text[at - 1] == ' ' || text[at - 1] == '('))
      extensions.push_back(text.substr(at + 1, end - at - 1));
  }
  return extensions;
}

ValueFiles filesOf(const std::string &valueName, const std::string &text) {
  if (valueName == "DIR")
    return {FileKind::Folder, {}};
  if (valueName == "FILE" || valueName == "INPUT" || valueName == "OUT") {
    std::vector<std::string> extensions = extensionsIn(text);
    return {extensions.empty() ? FileKind::Any : FileKind::Extensions, std::move(extensions)};
  }
  // "F.safetensors", but not "NAME=FILE.cu" and "ID,..."
  if (size_t dot = valueName.find('.');
      dot != std::string::npos && valueName.find_first_of("=,:") == std::string::npos)
    return {FileKind::Extensions, {valueName.substr(dot + 1)}};
  return {};
}

namespace {
using Table = std::vector<OptionFacts>;

/// With those that every tool has.
Table allOptions(const ToolFacts &tool) {
  Table all;
  for (OptionGroup &group : optionTable(tool.categories, /*openWords=*/true))
    for (OptionFacts &option : group.options)
      all.push_back(std::move(option));
  for (const auto &[name, text] : {std::pair("help", "Print the options"), {"version", "Print the versions"}})
    all.push_back({.name = name, .value = {}, .text = text, .initial = {}, .words = {}});
  all.push_back({.name = "completion",
                 .value = "SHELL",
                 .text = "Print what completes command lines",
                 .initial = {},
                 .words = shells()});
  return all;
}

std::string textsOf(const std::vector<Word> &words, const char *end = "") {
  std::vector<std::string> texts;
  for (const Word &word : words)
    texts.push_back(word.text + end);
  return fmt::format("{}", fmt::join(texts, " "));
}

/// "NAME=N": words are completed up to the equals sign.
const char *endOfWords(const OptionFacts &option) { return option.value.starts_with("NAME=") ? "=" : ""; }

std::string functionOf(const ToolFacts &tool) {
  std::string name = "_" + tool.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// What a shell function `bash` runs for a value: sets words, lead or files.
std::string bashValue(const std::vector<Word> &words, const char *end, bool isList, const ValueFiles &files) {
  if (!words.empty())
    return fmt::format("words='{}'{}", textsOf(words, end), isList ? " lead=${value%\"${value##*,}\"}" : "");
  switch (files.kind) {
  case FileKind::None:
    return "return";
  case FileKind::Any:
    return "files=any";
  case FileKind::Folder:
    return "files=folders";
  case FileKind::Extensions:
    return fmt::format("files='{}'", fmt::join(files.extensions, " "));
  }
  return {};
}

std::string bash(const ToolFacts &tool) {
  std::string names, cases;
  for (const OptionFacts &option : allOptions(tool)) {
    const bool takes = !option.value.empty();
    names += (names.empty() ? "" : " ") + option.spelled() +
             (takes && option.name.size() > 1 && !option.isValueOptional ? "=" : "");
    if (takes)
      cases += fmt::format(
          "  {}) {} ;;\n", option.spelled(),
          bashValue(option.words, endOfWords(option), option.isList, filesOf(option.value, option.text)));
  }
  std::string argument = "return";
  for (const ArgumentFacts &facts : argumentTable())
    argument = bashValue(facts.words, "", false, filesOf(facts.name, facts.text));
  return fmt::format(R"(# bash completion of {0}: written by {0} --completion=bash
{1}() {{
  local line=${{COMP_LINE:0:COMP_POINT}} current option value prefix= lead= words= files= extension
  current=${{line##*[[:space:]]}}
  COMPREPLY=()
  case $current in
  -*=*)
    option=${{current%%=*}} value=${{current#*=}}
    [[ $COMP_WORDBREAKS == *=* ]] || prefix=$option=
    ;;
  -*)
    mapfile -t COMPREPLY < <(compgen -W '{2}' -- "$current")
    [[ ${{#COMPREPLY[@]}} != 1 || ${{COMPREPLY[0]}} != *= ]] || compopt -o nospace
    return
    ;;
  *)
    value=$current option=${{line%"$current"}}
    option=${{option%"${{option##*[![:space:]]}}"}}
    option=${{option##*[[:space:]]}}
    ;;
  esac
  case $option in
{3}  *) {4} ;;
  esac
  if [[ -n $words ]]; then
    [[ $value != *=* || $words != *=* ]] || return
    mapfile -t COMPREPLY < <(compgen -P "$prefix$lead" -W "$words" -- "${{value#"$lead"}}")
    [[ ${{#COMPREPLY[@]}} != 1 || ${{COMPREPLY[0]}} != *= ]] || compopt -o nospace
    return
  fi
  compopt -o filenames
  case $files in
  any) mapfile -t COMPREPLY < <(compgen -P "$prefix" -f -- "$value") ;;
  folders) mapfile -t COMPREPLY < <(compgen -P "$prefix" -d -- "$value") ;;
  *)
    mapfile -t COMPREPLY < <(
      compgen -P "$prefix" -d -- "$value"
      for extension in $files; do compgen -P "$prefix" -f -X "!*.$extension" -- "$value"; done
    )
    ;;
  esac
}}
complete -F {1} {0}
)",
                     tool.name, functionOf(tool), names, cases, argument);
}

/// Inside of single quotes, in brackets of _arguments.
std::string zshText(const std::string &text) {
  std::string result;
  for (char c : text)
    result += c == '\''                                       ? "'\\''"
              : c == '[' || c == ']' || c == ':' || c == '\\' ? std::string("\\") + c
                                                              : std::string(1, c);
  return result;
}

std::string zshAction(const std::vector<Word> &words, const char *end, bool isList, const ValueFiles &files) {
  if (!words.empty() && isList)
    return fmt::format("_sequence compadd - {}", textsOf(words));
  if (!words.empty())
    return *end ? fmt::format("compadd -S \"\" - {}", textsOf(words, end))
                : fmt::format("({})", textsOf(words));
  switch (files.kind) {
  case FileKind::None:
    return " ";
  case FileKind::Any:
    return "_files";
  case FileKind::Folder:
    return "_files -/";
  case FileKind::Extensions:
    return fmt::format("_files -g \"*.({})\"", fmt::join(files.extensions, "|"));
  }
  return {};
}

std::string zsh(const ToolFacts &tool) {
  std::string text = fmt::format(
      "#compdef {0}\n# zsh completion of {0}: written by {0} --completion=zsh\n_arguments", tool.name);
  for (const OptionFacts &option : allOptions(tool)) {
    std::string spec = (option.isRepeatable ? "*" : "") + option.spelled();
    if (!option.value.empty())
      spec += option.name.size() == 1 ? "+" : option.isValueOptional ? "=-" : "=";
    spec += "[" + zshText(option.text) + "]";
    if (!option.value.empty())
      spec += fmt::format(
          "{}{}:{}", option.isValueOptional ? "::" : ":", zshText(option.value),
          zshAction(option.words, endOfWords(option), option.isList, filesOf(option.value, option.text)));
    text += " \\\n  '" + spec + "'";
  }
  for (const ArgumentFacts &facts : argumentTable())
    text += fmt::format(" \\\n  '{}{}:{}'", facts.isOptional ? "::" : ":", zshText(facts.name),
                        zshAction(facts.words, "", false, filesOf(facts.name, facts.text)));
  return text + "\n";
}

/// Inside of single quotes.
std::string fishText(const std::string &text) {
  std::string result;
  for (char c : text)
    result += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return result;
}

/// The words with their meanings, for `complete -a '…'`: fish reads that text as words of its own once more.
std::string fishWords(const std::vector<Word> &words, const char *end) {
  std::vector<std::string> all;
  for (const Word &word : words) {
    std::string text = word.text + end;
    if (!word.meaning.empty()) {
      text += "\\t\"";
      for (char c : word.meaning)
        text += c == '"' || c == '$' || c == '\\' ? std::string("\\") + c : std::string(1, c);
      text += '"';
    }
    all.push_back(fishText(text));
  }
  return fmt::format("{}", fmt::join(all, " "));
}

/// fish has no way to offer files of some extensions only that all its versions share.
std::string fishFiles(const ValueFiles &files) {
  // Its function takes "--option=" for a part of the name.
  if (files.kind == FileKind::Folder)
    return " -x -a '(__fish_complete_directories (commandline -ct | string replace -r \"^--[^=]*=\" \"\"))'";
  return files.kind == FileKind::None ? " -x" : " -r -F";
}

std::string fish(const ToolFacts &tool) {
  std::string text = fmt::format("# fish completion of {0}: written by {0} --completion=fish\n", tool.name);
  for (const ArgumentFacts &facts : argumentTable())
    text += facts.words.empty()
                ? ""
                : fmt::format("complete -c {} -f -a '{}'\n", tool.name, fishWords(facts.words, ""));
  for (const OptionFacts &option : allOptions(tool)) {
    text += fmt::format("complete -c {} -{} {} -d '{}'", tool.name, option.name.size() == 1 ? "s" : "l",
                        option.name, fishText(option.text));
    if (!option.words.empty() && option.isList)
      text += fmt::format(" -x -a '(__fish_append , {})'", textsOf(option.words));
    else if (!option.words.empty())
      text += fmt::format(" -x -a '{}'", fishWords(option.words, endOfWords(option)));
    else if (!option.value.empty() && !option.isValueOptional)
      text += fishFiles(filesOf(option.value, option.text));
    text += "\n";
  }
  return text;
}
} // namespace

std::vector<Word> shells() { return {{"bash", ""}, {"zsh", ""}, {"fish", ""}}; }

std::string completionOf(const ToolFacts &tool, const std::string &shell) {
  return shell == "bash" ? bash(tool) : shell == "zsh" ? zsh(tool) : shell == "fish" ? fish(tool) : "";
}

} // namespace fusion
