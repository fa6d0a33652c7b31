#include "api/RandomInputs.h"

#include "api/Trial.h"
#include "ir/base/Nearest.h"

#include <fmt/format.h>

#include <cctype>

namespace fusion {

static bool mentions(const std::string &name, std::string_view word) {
  std::string lower;
  for (char c : name)
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower.find(word) != std::string::npos;
}

/// The integers of an input that is no token: ones, or 0, 1, 2, … along the last dim.
static void fillIntegers(Tensor &tensor, bool counts) {
  const int64_t length = tensor.shape().empty() ? 1 : tensor.shape().back();
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const int64_t value = counts ? i % length : 1;
    if (tensor.type() == DType::I64)
      tensor.as<int64_t>()[i] = value;
    else if (tensor.type() == DType::I32)
      tensor.as<int32_t>()[i] = static_cast<int32_t>(value);
    else if (tensor.type() == DType::Bool)
      tensor.as<uint8_t>()[i] = 1;
  }
}

Result<NamedTensors> randomInputs(const std::vector<Port> &ports,
                                  const std::map<std::string, int64_t> &sizes) {
  std::vector<PortShape> shapes;
  for (const Port &port : ports)
    shapes.push_back({port.name, port.type, port.shape});
  SymbolValues symbols = trialSymbols(shapes, {.batch = 1, .other = 16});
  for (const auto &[symbol, size] : sizes) {
    if (!symbols.contains(symbol))
      return badInput(fmt::format("no input has a dim '{}'{}", symbol, didYouMean(symbol, symbols)));
    symbols[symbol] = size;
  }
  for (const Port &port : ports)
    for (const Dim &dim : port.shape)
      if (auto size = dim.evaluate(symbols); !size || *size < 0)
        return badInput(fmt::format("input {}: the dim {} is no size{}", port.name, dim.str(),
                                    size ? fmt::format(": {}", *size) : ""));
  std::mt19937 random(1);
  NamedTensors tensors = randomInputs(shapes, symbols, {.magnitude = 1, .outlier = 1}, random);
  for (auto &[name, tensor] : tensors)
    if (!isFloat(tensor.type()) && (mentions(name, "mask") || mentions(name, "position")))
      fillIntegers(tensor, !mentions(name, "mask"));
  return tensors;
}

} // namespace fusion
