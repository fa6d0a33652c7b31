// Reads what exporters print in dim_param: Python, sympy and ONNX spellings of integer expressions.
#include "ir/base/Dim.h"
#include "ir/base/PlainText.h"

#include <fmt/format.h>
#include <utility>

namespace fusion {

namespace {

constexpr size_t longestText = 8192;
constexpr int deepestNesting = 500;
constexpr size_t largestProduct = 4096; ///< terms of an expanded product

bool isLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool isDigit(char c) { return c >= '0' && c <= '9'; }

/// A fraction. The divisor is 1 except inside floor() and ceil(), where `/` divides exactly.
struct Ratio {
  Dim value;
  Dim divisor = 1;
  bool isWhole() const { return divisor == Dim(1); }
};

/// Recursive descent; the first failure is kept and everything after it returns quickly.
class Parser {
public:
  explicit Parser(std::string_view text) : text(text) {}

  Result<Dim> parse() {
    if (text.size() > longestText)
      return badInput(fmt::format("a dimension of {} characters is too long", text.size()));
    Ratio whole = sum();
    skipSpace();
    if (failure.empty() && at < text.size())
      fail(fmt::format("unexpected '{}'", text[at]));
    if (!failure.empty())
      return badInput(fmt::format("cannot read the dimension '{}': {}", plainText(text), plainText(failure)));
    return whole.value;
  }

private:
  Ratio fail(std::string reason) {
    if (failure.empty())
      failure = fmt::format("{} at character {}", reason, at + 1);
    at = text.size();
    return {};
  }

  void skipSpace() {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\t'))
      ++at;
  }

  bool accept(std::string_view token) {
    skipSpace();
    if (!text.substr(at).starts_with(token))
      return false;
    at += token.size();
    return true;
  }

  bool acceptTimes() {
    skipSpace();
    return !text.substr(at).starts_with("**") && accept("*");
  }

  Dim times(const Dim &a, const Dim &b) {
    if (a.termCount() * b.termCount() > largestProduct)
      fail("the product has too many terms");
    return failure.empty() ? a * b : Dim();
  }

  Ratio add(const Ratio &a, const Ratio &b, int sign) {
    if (a.divisor == b.divisor)
      return {a.value + Dim(sign) * b.value, a.divisor};
    return {times(a.value, b.divisor) + Dim(sign) * times(b.value, a.divisor), times(a.divisor, b.divisor)};
  }

  /// The exact quotient.
  Ratio ratio(const Ratio &a, const Ratio &b) {
    return {times(a.value, b.divisor), times(a.divisor, b.value)};
  }
  Ratio floorOf(const Ratio &a) { return {a.value.floorDiv(a.divisor)}; }
  Ratio ceilOf(const Ratio &a) { return {a.value.ceilDiv(a.divisor)}; }

  Ratio modulo(const Ratio &a, const Ratio &b) {
    if (!a.isWhole() || !b.isWhole())
      return fail("% of a fraction");
    return {a.value.mod(b.value)};
  }

  /// The larger (smaller) of two fractions.
  Ratio extremum(const Ratio &a, const Ratio &b, bool larger) {
    auto pick = [larger](const Dim &x, const Dim &y) { return larger ? Dim::max(x, y) : Dim::min(x, y); };
    if (a.isWhole() && b.isWhole())
      return {pick(a.value, b.value)};
    if (a.divisor.constant().value_or(0) <= 0 || b.divisor.constant().value_or(0) <= 0)
      return fail("max or min of fractions whose divisors are no positive numbers");
    return {pick(times(a.value, b.divisor), times(b.value, a.divisor)), times(a.divisor, b.divisor)};
  }

  Ratio sum() {
    Ratio total = product();
    while (failure.empty()) {
      if (accept("+"))
        total = add(total, product(), 1);
      else if (accept("-"))
        total = add(total, product(), -1);
      else
        break;
    }
    return total;
  }

  Ratio product() {
    Ratio result = unary();
    while (failure.empty()) {
      if (acceptTimes()) {
        Ratio factor = unary();
        result = {times(result.value, factor.value), times(result.divisor, factor.divisor)};
      } else if (accept("//")) {
        result = floorOf(ratio(result, unary()));
      } else if (accept("/")) {
        result = ratio(result, unary());
        if (!exact)
          result = floorOf(result);
      } else if (accept("%")) {
        result = modulo(result, unary());
      } else {
        break;
      }
    }
    return result;
  }

  Ratio unary() {
    if (++nesting > deepestNesting)
      return fail("nested too deeply");
    Ratio result;
    if (accept("-")) {
      result = unary();
      result.value = result.value * Dim(-1);
    } else if (accept("+")) {
      result = unary();
    } else {
      result = power();
    }
    --nesting;
    return result;
  }

  Ratio power() {
    Ratio base = primary();
    if (!failure.empty() || !accept("**"))
      return base;
    std::optional<int64_t> exponent = unary().value.constant();
    if (!exponent || *exponent < 0 || *exponent > 16)
      return fail("an exponent that is no number from 0 to 16");
    Ratio result{Dim(1)};
    for (int64_t i = 0; i < *exponent; ++i)
      result = {times(result.value, base.value), times(result.divisor, base.divisor)};
    return result;
  }

  Ratio primary() {
    skipSpace();
    if (at == text.size())
      return fail("something is missing");
    if (accept("(")) {
      Ratio inner = sum();
      return accept(")") ? inner : fail("expected ')'");
    }
    if (text[at] == '`')
      return {Dim::symbol(quotedName())};
    if (isDigit(text[at]))
      return number();
    if (!isLetter(text[at]))
      return fail(fmt::format("unexpected '{}'", text[at]));
    size_t begin = at;
    while (at < text.size() && (isLetter(text[at]) || isDigit(text[at])))
      ++at;
    std::string name(text.substr(begin, at - begin));
    return accept("(") ? call(name) : Ratio{Dim::symbol(name)};
  }

  std::string quotedName() {
    std::string name;
    for (++at; at < text.size(); ++at) {
      if (text[at] == '`') {
        ++at;
        if (at == text.size() || text[at] != '`')
          return name;
      }
      name += text[at];
    }
    fail("expected '`'");
    return name;
  }

  Ratio number() {
    int64_t value = 0, divisor = 1;
    bool fraction = false, tooLong = false;
    for (; at < text.size() && (isDigit(text[at]) || (text[at] == '.' && !fraction)); ++at) {
      if (text[at] == '.') {
        fraction = true;
        continue;
      }
      tooLong |= __builtin_mul_overflow(value, 10, &value) ||
                 __builtin_add_overflow(value, text[at] - '0', &value) ||
                 (fraction && __builtin_mul_overflow(divisor, 10, &divisor));
    }
    if (tooLong)
      return fail("a number that does not fit 64 bits");
    while (divisor > 1 && value % 10 == 0) {
      value /= 10;
      divisor /= 10;
    }
    if (divisor > 1 && !exact)
      return fail("a fraction outside of floor() and ceil()");
    return {Dim(value), Dim(divisor)};
  }

  /// After `name(`.
  Ratio call(std::string name) {
    for (char &c : name)
      c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    bool rounds = name == "floor" || name == "ceil" || name == "ceiling";
    bool before = std::exchange(exact, exact || rounds);
    std::vector<Ratio> arguments{sum()};
    while (failure.empty() && accept(","))
      arguments.push_back(sum());
    exact = before;
    if (failure.empty() && !accept(")"))
      fail("expected ')'");
    if (!failure.empty())
      return {};
    if (name == "max" || name == "min") {
      Ratio result = arguments[0];
      for (size_t i = 1; i < arguments.size(); ++i)
        result = extremum(result, arguments[i], name == "max");
      return result;
    }
    if (rounds && arguments.size() == 1)
      return name == "floor" ? floorOf(arguments[0]) : ceilOf(arguments[0]);
    if (arguments.size() == 2 && (name == "floordiv" || name == "cleandiv"))
      return floorOf(ratio(arguments[0], arguments[1]));
    if (arguments.size() == 2 && name == "ceildiv")
      return ceilOf(ratio(arguments[0], arguments[1]));
    if (arguments.size() == 2 && (name == "mod" || name == "pythonmod"))
      return modulo(arguments[0], arguments[1]);
    return fail(fmt::format("no function {} of {} arguments", name, arguments.size()));
  }

  std::string_view text;
  size_t at = 0;
  int nesting = 0;
  bool exact = false; ///< inside floor() or ceil()
  std::string failure;
};

} // namespace

Result<Dim> Dim::parse(std::string_view text) { return Parser(text).parse(); }

} // namespace fusion
