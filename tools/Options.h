// What a tool takes, as data: options that say what they take, and the table that --help, man pages and
// shells are written from.
#pragma once

#include "llvm/Support/CommandLine.h"

#include <fmt/format.h>

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace fusion {

/// A word that an option takes, and what it means.
struct Word {
  std::string text, meaning;
};

/// What LLVM's registry does not say of an option.
struct OptionExtra {
  std::string initial;                      ///< the default; empty if there is none
  std::function<std::vector<Word>()> words; ///< what its value may be; null if that cannot be listed
  bool otherWords = true;                   ///< whether the value may be another word than those
};

/// Notes `extra` for an option that lives as long as the process.
void noteExtra(const llvm::cl::Option &option, OptionExtra extra);

/// Says why a value was refused: parseOptions() prints the first one. Returns true, as parsers of LLVM do
/// then.
bool refuseValue(const std::string &message);
/// The first message of refuseValue(); empty if there was none.
std::string refusedValue();

/// An option whose value is one of a few words; parseOptions() refuses others.
class WordOption : public llvm::cl::opt<std::string> {
public:
  /// `accepted` tells the words that are taken though they are not listed; none if it is null.
  WordOption(const char *name, const char *text, const char *initial, llvm::cl::OptionCategory &category,
             std::vector<Word> words, bool (*accepted)(const std::string &) = nullptr);
};

/// The first value that is none of its option's words: "--emit takes mlir or cuda, not 'x'". Empty if there
/// is none.
std::string wrongWord();

/// "a, b or c".
std::string orList(const std::vector<Word> &words);

/// What a NumberOption holds.
template <class T>
struct Number {
  T number = T();
  operator T() const { return number; }
  T operator()() const { return number; }
};

template <class T>
struct NumberFacts {
  const char *unit = "N";                               ///< in --help
  const char *what = nullptr;                           ///< in errors, as "a number of ranks"
  std::optional<T> initial = {}, least = {}, bare = {}; ///< `bare`: of the option without a value
};

/// A number: getNumOccurrences() tells whether it was given. Without a default it is 0 until then.
template <class T>
class NumberOption : public llvm::cl::opt<Number<T>> {
public:
  NumberOption(const char *name, const char *text, llvm::cl::OptionCategory &category,
               const NumberFacts<T> &facts)
      : llvm::cl::opt<Number<T>>(
            llvm::StringRef(name), llvm::cl::desc(text), llvm::cl::value_desc(facts.unit),
            llvm::cl::init(Number<T>{facts.initial.value_or(T())}), llvm::cl::cat(category),
            facts.bare ? llvm::cl::ValueOptional : llvm::cl::ValueRequired) {
    this->getParser().facts = facts;
    if (facts.initial)
      noteExtra(*this, {.initial = fmt::format("{}", *facts.initial), .words = {}});
  }
};

/// One option of a tool.
struct OptionFacts {
  std::string name;  ///< without dashes
  std::string value; ///< "FILE", "N"; empty if it takes none
  bool isValueOptional = false, isRepeatable = false;
  bool isList = false; ///< of several words with commas between them
  std::string text, initial;
  std::vector<Word> words;
  /// "--name", or "-n" of a name that is a letter.
  std::string spelled() const { return (name.size() == 1 ? "-" : "--") + name; }
};
struct OptionGroup {
  std::string title;
  std::vector<OptionFacts> options;
};
/// What a tool reads beside options.
struct ArgumentFacts {
  std::string name, text;
  bool isOptional = false;
  std::vector<Word> words;
};

using Categories = std::vector<llvm::cl::OptionCategory *>;
/// The visible options of these categories, in their order; by name in each. `openWords`: with the words of
/// options that take others too, which may take a while to find.
std::vector<OptionGroup> optionTable(const Categories &categories, bool openWords);
std::vector<ArgumentFacts> argumentTable();

} // namespace fusion

template <class T>
class llvm::cl::parser<fusion::Number<T>> : public llvm::cl::basic_parser<fusion::Number<T>> {
public:
  using basic_parser<fusion::Number<T>>::basic_parser;
  bool parse(Option &, StringRef name, StringRef text, fusion::Number<T> &value) {
    T &number = value.number;
    bool bad;
    if (text.empty() && facts.bare) {
      number = *facts.bare;
      bad = false;
    } else if constexpr (std::is_integral_v<T>) {
      bad = text.getAsInteger(0, number);
    } else {
      bad = text.getAsDouble(number) || number != number;
    }
    if (!bad && number >= facts.least.value_or(std::numeric_limits<T>::lowest()))
      return false;
    const char *what = facts.what ? facts.what : std::is_integral_v<T> ? "a whole number" : "a number";
    return fusion::refuseValue("--" + name.str() + " takes " + what + ", not '" + text.str() + "'");
  }
  template <class V>
  void printOptionDiff(const Option &option, const fusion::Number<T> &, const V &, size_t width) const {
    this->printOptionNoValue(option, width);
  }
  void anchor() override {}

  fusion::NumberFacts<T> facts;
};
