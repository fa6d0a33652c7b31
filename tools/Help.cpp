#include "Documents.h"

#include <fmt/format.h>

namespace fusion {

constexpr size_t lineWidth = 100, textColumn = 30;

/// The words of `text` in lines; `line` is the first one so far, `indent` of the others.
static std::string wrapped(std::string line, const std::string &text, size_t indent) {
  std::string all;
  llvm::SmallVector<llvm::StringRef> words;
  llvm::StringRef(text).split(words, ' ', -1, /*KeepEmpty=*/false);
  bool isFirst = true;
  for (llvm::StringRef word : words) {
    if (!isFirst && line.size() + 1 + word.size() > lineWidth) {
      all += line + "\n";
      line = std::string(indent, ' ');
      isFirst = true;
    }
    line += (isFirst ? "" : " ") + word.str();
    isFirst = false;
  }
  return all + line + "\n";
}

/// `head` in the first column, `text` in the second.
static std::string entry(const std::string &head, const std::string &text) {
  if (head.size() + 2 > textColumn)
    return head + "\n" + wrapped(std::string(textColumn, ' '), text, textColumn);
  return wrapped(fmt::format("{:<{}}", head, textColumn), text, textColumn);
}

static std::string textOf(const OptionFacts &option) {
  std::string text = option.text;
  if (!option.initial.empty())
    text += fmt::format(" (default {})", option.initial);
  return text;
}

static std::string headOf(const OptionFacts &option) {
  std::string head = "  " + option.spelled();
  if (!option.value.empty()) {
    const std::string value = (option.name.size() == 1 ? " " : "=") + option.value;
    head += option.isValueOptional ? "[" + value + "]" : value;
  }
  return head;
}

std::string helpText(const ToolFacts &tool) {
  std::string text = fmt::format("{}: {}\n\nusage: {} [OPTION...]", tool.name, tool.purpose, tool.name);
  const std::vector<ArgumentFacts> arguments = argumentTable();
  for (const ArgumentFacts &argument : arguments)
    text += argument.isOptional ? " [" + argument.name + "]" : " " + argument.name;
  text += "\n\n";
  for (const ArgumentFacts &argument : arguments)
    text += entry("  " + argument.name, argument.text);
  for (const OptionGroup &group : optionTable(tool.categories, /*openWords=*/false)) {
    text += "\n" + group.title + ":\n";
    for (const OptionFacts &option : group.options) {
      text += entry(headOf(option), textOf(option));
      for (const Word &word : option.words)
        text += word.meaning.empty() ? "" : entry("    " + word.text, word.meaning);
      if (!option.words.empty() && option.words.front().meaning.empty())
        text += entry("", "one of " + orList(option.words));
    }
  }
  text += "\nOther:\n" + entry("  --help", "Print this");
  text += entry("  --help-hidden",
                tool.others ? "Print the options of LLVM and MLIR too" : "Print the options of LLVM too");
  text += entry("  --version", "Print the versions of the tool and of LLVM");
  text += entry("  --completion=SHELL", "Print what completes command lines in " + orList(shells()));
  text += entry("  --man-page", "Print the manual page");
  text += "\nExit codes: 0 yes, 1 no, 2 bad input, 3 something lacks.\n";
  return text;
}

} // namespace fusion
