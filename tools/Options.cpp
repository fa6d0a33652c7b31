#include "Options.h"

#include <algorithm>
#include <map>

namespace cl = llvm::cl;

namespace fusion {

namespace {
std::map<const cl::Option *, OptionExtra> &extras() {
  static auto *all = new std::map<const cl::Option *, OptionExtra>; // options are static objects too
  return *all;
}

struct Words {
  const cl::opt<std::string> *option;
  std::vector<Word> words;
  bool (*accepted)(const std::string &);
};
std::vector<Words> &wordOptions() {
  static auto *all = new std::vector<Words>;
  return *all;
}

std::string &refused() {
  static auto *message = new std::string;
  return *message;
}
} // namespace

void noteExtra(const cl::Option &option, OptionExtra extra) { extras()[&option] = std::move(extra); }

bool refuseValue(const std::string &message) {
  if (refused().empty())
    refused() = message;
  return true;
}

std::string refusedValue() { return refused(); }

WordOption::WordOption(const char *name, const char *text, const char *initial, cl::OptionCategory &category,
                       std::vector<Word> words, bool (*accepted)(const std::string &))
    : opt(llvm::StringRef(name), cl::desc(text), cl::value_desc("WORD"), cl::init(initial),
          cl::cat(category)) {
  noteExtra(*this, {.initial = initial, .words = [words] { return words; }, .otherWords = false});
  wordOptions().push_back({this, std::move(words), accepted});
}

std::string orList(const std::vector<Word> &words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i].text;
  return text;
}

std::string wrongWord() {
  for (const auto &[option, words, accepted] : wordOptions()) {
    const std::string &value = option->getValue();
    auto isIt = [&](const Word &word) { return word.text == value; };
    if (option->getNumOccurrences() && !llvm::any_of(words, isIt) && !(accepted && accepted(value)))
      return "--" + option->ArgStr.str() + " takes " + orList(words) + ", not '" + value + "'";
  }
  return {};
}

static OptionFacts factsOf(const cl::Option &option, bool openWords) {
  OptionFacts facts;
  facts.name = option.ArgStr.str();
  facts.text = option.HelpStr.str();
  std::replace(facts.text.begin(), facts.text.end(), '\n', ' ');
  facts.value = option.ValueStr.str();
  facts.isValueOptional = option.getValueExpectedFlag() == cl::ValueOptional;
  facts.isList = option.getMiscFlags() & cl::CommaSeparated;
  facts.isRepeatable = option.getNumOccurrencesFlag() == cl::ZeroOrMore;
  if (auto found = extras().find(&option); found != extras().end()) {
    const OptionExtra &extra = found->second;
    facts.initial = extra.initial;
    if (extra.words && (openWords || !extra.otherWords))
      facts.words = extra.words();
  }
  return facts;
}

std::vector<OptionGroup> optionTable(const Categories &categories, bool openWords) {
  std::vector<OptionGroup> groups;
  for (cl::OptionCategory *category : categories) {
    OptionGroup group{category->getName().str(), {}};
    for (auto &entry : cl::getRegisteredOptions())
      if (const cl::Option *option = entry.second;
          llvm::is_contained(option->Categories, category) && option->getOptionHiddenFlag() == cl::NotHidden)
        group.options.push_back(factsOf(*option, openWords));
    std::sort(group.options.begin(), group.options.end(),
              [](const OptionFacts &a, const OptionFacts &b) { return a.name < b.name; });
    groups.push_back(std::move(group));
  }
  return groups;
}

std::vector<ArgumentFacts> argumentTable() {
  std::vector<ArgumentFacts> all;
  for (const cl::Option *option : cl::SubCommand::getTopLevel().PositionalOpts) {
    auto [name, text] = option->HelpStr.split(": "); // "INPUT: what it is", "[INPUT]: …"
    const bool isOptional = name.consume_front("[") && name.consume_back("]");
    all.push_back({name.str(), text.str(), isOptional, factsOf(*option, true).words});
  }
  return all;
}

} // namespace fusion
