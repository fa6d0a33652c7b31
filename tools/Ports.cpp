#include "Ports.h"

#include "api/RandomInputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace fusion {

std::string describePorts(const std::vector<Port> &inputs, const std::vector<Port> &outputs) {
  size_t width = 0;
  for (const auto *ports : {&inputs, &outputs})
    for (const Port &port : *ports)
      width = std::max(width, port.name.size());
  std::string text;
  std::vector<std::string> symbols;
  for (const auto *ports : {&inputs, &outputs}) {
    text += ports == &inputs ? "inputs\n" : "outputs\n";
    for (const Port &port : *ports) {
      std::vector<std::string> dims;
      for (const Dim &dim : port.shape) {
        dims.push_back(dim.str());
        for (const std::string &symbol : dim.symbols())
          if (std::find(symbols.begin(), symbols.end(), symbol) == symbols.end())
            symbols.push_back(symbol);
      }
      text += fmt::format("  {:<{}}  {:<5} {}\n", port.name, width, name(port.type),
                          dims.empty() ? "scalar" : fmt::format("[{}]", fmt::join(dims, ", ")));
    }
  }
  if (!symbols.empty())
    text += fmt::format("any size: {}\n", fmt::join(symbols, ", "));
  return text;
}

Result<NamedTensors> randomInputsBy(const std::string &sizes, const std::vector<Port> &ports) {
  std::map<std::string, int64_t> values;
  for (size_t begin = 0; begin < sizes.size();) {
    const size_t end = std::min(sizes.find(',', begin), sizes.size());
    const std::string part = sizes.substr(begin, end - begin);
    begin = end + 1;
    const size_t colon = part.rfind(':');
    int64_t size = -1;
    if (colon != std::string::npos) {
      const char *stop = part.data() + part.size();
      auto [read, error] = std::from_chars(part.data() + colon + 1, stop, size);
      if (error != std::errc() || read != stop)
        size = -1;
    }
    if (size < 0)
      return badInput(fmt::format("--random-inputs takes dim:size,..., not '{}'", part));
    values[part.substr(0, colon)] = size;
  }
  return randomInputs(ports, values);
}

} // namespace fusion
