#include "Documents.h"

#include <fmt/format.h>

namespace fusion {

/// Text that roff prints as it is.
static std::string plain(const std::string &text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\')
      result += "\\e";
    else if (c == '-')
      result += "\\-";
    else if ((c == '.' || c == '\'') && (i == 0 || text[i - 1] == '\n')) // else a request
      result += std::string("\\&") + c;
    else
      result += c;
  }
  return result;
}

static std::string headOf(const OptionFacts &option) {
  std::string head = "\\fB" + plain(option.spelled()) + "\\fR";
  if (option.value.empty())
    return head;
  const std::string value = (option.name.size() == 1 ? " " : "=") + ("\\fI" + plain(option.value) + "\\fR");
  return head + (option.isValueOptional ? "[" + value + "]" : value);
}

static std::string entryOf(const OptionFacts &option) {
  std::string text = ".TP\n" + headOf(option) + "\n" + plain(option.text);
  if (!option.initial.empty())
    text += plain(fmt::format(" (default {})", option.initial));
  text += ".\n";
  if (option.words.empty())
    return text;
  if (option.words.front().meaning.empty())
    return text + "One of " + plain(orList(option.words)) + ".\n";
  text += ".RS\n";
  for (const Word &word : option.words)
    text += fmt::format(".TP\n\\fB{}\\fR\n{}.\n", plain(word.text), plain(word.meaning));
  return text + ".RE\n";
}

static std::string entry(const std::string &head, const std::string &text) {
  return ".TP\n\\fB" + plain(head) + "\\fR\n" + plain(text) + ".\n";
}

std::string manPage(const ToolFacts &tool, const std::string &version) {
  std::string name = tool.name;
  for (char &c : name)
    c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  std::string text = fmt::format(".TH {} 1 \"\" \"fusion {}\" \"User Commands\"\n", name, version);
  text += fmt::format(".SH NAME\n{} \\- {}\n", plain(tool.name), plain(tool.purpose));
  text += fmt::format(".SH SYNOPSIS\n.B {}\n[\\fIOPTION\\fR...]", plain(tool.name));
  const std::vector<ArgumentFacts> arguments = argumentTable();
  for (const ArgumentFacts &argument : arguments)
    text += (argument.isOptional ? " [\\fI" : " \\fI") + plain(argument.name) +
            (argument.isOptional ? "\\fR]" : "\\fR");
  text += "\n.SH DESCRIPTION\n";
  llvm::SmallVector<llvm::StringRef> paragraphs;
  llvm::StringRef(tool.description).split(paragraphs, "\n\n");
  for (size_t i = 0; i < paragraphs.size(); ++i)
    text += (i > 0 ? ".PP\n" : "") + plain(paragraphs[i].trim().str()) + "\n";
  for (const ArgumentFacts &argument : arguments)
    text += fmt::format(".TP\n\\fI{}\\fR\n{}.\n", plain(argument.name), plain(argument.text));
  text += ".SH OPTIONS\n";
  for (const OptionGroup &group : optionTable(tool.categories, /*openWords=*/false)) {
    text += fmt::format(".SS {}\n", plain(group.title));
    for (const OptionFacts &option : group.options)
      text += entryOf(option);
  }
  text += ".SS Other\n";
  text += entry("--help", "Print the options") + entry("--help-hidden", "Print those of the libraries too");
  text += entry("--version", "Print the versions of the tool and of LLVM");
  text += entry("--completion=SHELL", "Print what completes command lines in " + orList(shells()));
  text += ".SH EXIT STATUS\n";
  text += entry("0", "The answer is yes, or the work is done");
  text += entry("1", "The answer is no: outputs differ, a requirement is not met");
  text += entry("2", "Bad input: an option, a graph, a tensor");
  text += entry("3", "The machine lacks something; the message says what to install or set");
  text += ".SH ENVIRONMENT\n";
  text += entry("FUSION_CACHE_DIR", "The folder for compiled kernels, plans and reports (default "
                                    "$XDG_CACHE_HOME/fusion or ~/.cache/fusion)");
  text += entry("FUSION_NVRTC", "The path of libnvrtc.so, the compiler of kernels");
  text += entry("FUSION_HOST_CXX", "The C++ compiler for --device=emulate");
  text += entry("FUSION_THREADS", "Threads of the host (default: one a core)");
  text += ".SH SEE ALSO\n";
  std::string others;
  for (const char *other : {"fusion-opt", "fusion-run", "fusion-compile", "fusion-cache"})
    if (tool.name != other)
      others += fmt::format("{}\\fB{}\\fR(1)", others.empty() ? "" : ",\n", plain(other));
  return text + others + "\n";
}

} // namespace fusion
