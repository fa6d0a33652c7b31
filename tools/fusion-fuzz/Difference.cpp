#include "Difference.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <string>

namespace fusion::fuzz {
namespace {

/// NaN, an infinity, or finite.
int kindOf(double value) { return std::isnan(value) ? 2 : std::isinf(value) ? (value > 0 ? 1 : -1) : 0; }

std::string differenceOfIntegers(const Tensor &actual, const Tensor &expected, const Agreement &rule,
                                 const Evidence &evidence) {
  const std::vector<int64_t> a = actual.toInts(), e = expected.toInts();
  std::vector<std::vector<int64_t>> others;
  for (const Tensor &tensor : evidence.shaken)
    others.push_back(tensor.toInts());
  const bool hasWide = evidence.wide.data() && evidence.wide.size() == expected.size();
  const std::vector<int64_t> wide = hasWide ? evidence.wide.toInts() : std::vector<int64_t>();
  const int64_t steps = byteSize(expected.type()) == 1 && expected.type() != DType::Bool ? rule.steps : 0;
  double error = 0, norm = 0;
  size_t ties = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::ranges::all_of(others, [&](const auto &other) { return other[i] == e[i]; }))
      continue;
    if (i < wide.size() && wide[i] != e[i] && std::abs(a[i] - wide[i]) <= steps)
      continue;
    if (std::abs(a[i] - e[i]) > steps)
      return fmt::format("element {} is {} instead of {}", i, a[i], e[i]);
    ties += a[i] != e[i];
    error += std::pow(static_cast<double>(a[i] - e[i]), 2);
    norm += std::pow(static_cast<double>(e[i]), 2);
  }
  if (ties <= 1 + a.size() / 32 || std::sqrt(error) <= rule.tolerance * std::sqrt(norm))
    return "";
  return fmt::format("{} of {} quantised values differ", ties, a.size());
}

/// A row of which one step of the inputs changes this part is what roundings have left over.
constexpr double noise = 0.1;

/// Squares of the finite elements of a row.
struct Row {
  double norm = 0, error = 0; ///< of what was expected, and of the distances from it
  double wideError = 0,
         writtenError = 0; ///< from the wide computation: of this one, and of the one as written
  size_t count = 0;
  std::vector<double> moved; ///< of each shaken computation

  std::string verdict(const Agreement &rule, bool hasWide) const {
    double most = 0;
    for (double each : moved)
      most = std::max(most, each);
    if (rule.byRows && most > noise * noise * norm)
      return "";
    const double floor = rule.smallest * std::sqrt(static_cast<double>(count));
    const double allowed = rule.tolerance * std::sqrt(norm) + 8 * std::sqrt(most) + floor;
    if (std::sqrt(error) <= allowed ||
        (hasWide && std::sqrt(wideError) <= 1.5 * std::sqrt(writtenError) + floor))
      return "";
    return fmt::format("relative L2 distance {:.3g}, {:.3g} is allowed",
                       std::sqrt(error / std::max(norm, 1e-300)),
                       allowed / std::max(std::sqrt(norm), 1e-300));
  }
};

class FloatDifference {
public:
  FloatDifference(const Tensor &actual, const Tensor &expected, const Agreement &rule,
                  const Evidence &evidence)
      : rule(rule), a(actual.toFloats()), e(expected.toFloats()) {
    for (const Tensor &tensor : evidence.shaken)
      others.push_back(tensor.toFloats());
    if (evidence.wide.data() && evidence.wide.size() == expected.size())
      wide = evidence.wide.convertedTo(expected.type()).toFloats();
  }

  std::string ofRow(size_t begin, size_t end) const {
    Row row;
    row.moved.resize(others.size());
    for (size_t i = begin; i < end; ++i) {
      const int kind = kindOf(e[i]);
      if (!std::ranges::all_of(others, [&](const auto &other) { return kindOf(other[i]) == kind; }))
        continue;
      if (!wide.empty() && kindOf(wide[i]) != kind)
        continue;
      if (kindOf(a[i]) != kind)
        return fmt::format("element {} is {} instead of {}", i, a[i], e[i]);
      if (kind == 0)
        add(row, i);
    }
    return row.verdict(rule, !wide.empty());
  }

private:
  void add(Row &row, size_t i) const {
    auto square = [](double x, double y) { return (x - y) * (x - y); };
    ++row.count;
    row.norm += square(e[i], 0);
    row.error += square(a[i], e[i]);
    for (size_t other = 0; other < others.size(); ++other)
      row.moved[other] += square(others[other][i], e[i]);
    if (!wide.empty()) {
      row.wideError += square(a[i], wide[i]);
      row.writtenError += square(e[i], wide[i]);
    }
  }

  const Agreement &rule;
  const std::vector<float> a, e;
  std::vector<std::vector<float>> others;
  std::vector<float> wide; ///< in the result's type; empty where it is not known
};

} // namespace

std::string difference(const Tensor &actual, const Tensor &expected, const Agreement &rule,
                       const Evidence &evidence) {
  if (actual.type() != expected.type() || actual.shape() != expected.shape())
    return fmt::format("{} {} instead of {} {}", shapeString(actual.shape()), name(actual.type()),
                       shapeString(expected.shape()), name(expected.type()));
  if (!isFloat(expected.type()))
    return differenceOfIntegers(actual, expected, rule, evidence);
  const auto size = static_cast<size_t>(expected.size());
  const FloatDifference all(actual, expected, rule, evidence);
  const size_t length =
      rule.byRows && expected.rank() > 0 ? static_cast<size_t>(expected.shape().back()) : size;
  for (size_t begin = 0; begin < size; begin += length)
    if (std::string text = all.ofRow(begin, begin + length); !text.empty())
      return rule.byRows ? fmt::format("row {}: {}", begin / length, text) : text;
  return "";
}

} // namespace fusion::fuzz
