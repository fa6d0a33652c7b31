// Names of devices, architectures and outputs.
#include "api/Fusion.h"
#include "codegen/target/TargetInfo.h"
#include "runtime/cuda/Driver.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

namespace fusion {

template <class Value, size_t count>
static std::optional<Value> named(std::string_view name,
                                  const std::pair<std::string_view, Value> (&values)[count]) {
  for (const auto &[known, value] : values)
    if (known == name)
      return value;
  return std::nullopt;
}

std::optional<RunOn> runOnNamed(std::string_view name) {
  static constexpr std::pair<std::string_view, RunOn> devices[] = {
      {"auto", RunOn::Auto}, {"cpu", RunOn::Cpu}, {"cuda", RunOn::Cuda}, {"emulate", RunOn::Emulate}};
  return named(name, devices);
}

std::optional<Emit> emitNamed(std::string_view name) {
  static constexpr std::pair<std::string_view, Emit> kinds[] = {
      {"mlir", Emit::Mlir}, {"cuda", Emit::Cuda}, {"plan", Emit::Plan}, {"dot", Emit::Dot}};
  return named(name, kinds);
}

Target Target::current() {
  if (cuda::deviceCount() > 0)
    if (auto properties = cuda::deviceProperties(0))
      return {properties->arch()};
  return {};
}

bool Target::isKnown() const { return bool(TargetInfo::find(arch)); }
std::string Target::known() { return TargetInfo::knownNames(); }

} // namespace fusion
