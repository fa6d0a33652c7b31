#include "Harness.h"
#include "RankHarness.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace fusion::test {
namespace {

double toleranceOf(const std::string &type) {
  return type == "f16" ? 5e-4 : type == "bf16" ? 4e-3 : type == "f32" ? 2e-6 : 2e-2;
}

/// x, and r, w, b, s where the body uses them, of `width` columns; `n` rows.
struct Types {
  std::string x, weight;
  int64_t width, ranks;
  std::string matrix() const { return fmt::format("tensor<?x{}x{}>", width, x); }
  std::string vector() const { return fmt::format("tensor<{}x{}>", width, weight); }
};

/// A group of `body`, where %a is the addend, %r the residual, %w and %b parameters, %s a scale.
std::string group(const Types &types, const std::string &body, const std::string &yields, const std::string &results) {
  const std::string m = types.matrix(), v = types.vector();
  const std::string dims = fmt::format("{{nn.dims = [\"n\", {}]}}", types.width);
  return fmt::format(R"(func.func @main(%x: {0} {2}, %res: {0} {2}, %weight: {1}, %bias: {1}, %scale: tensor<f32>) -> ({5})
      attributes {{nn.ranks = {6} : i64}} {{
    %y:{7} = fusion.group "g" schedule "collective" (%a = %x, %r = %res, %w = %weight, %b = %bias, %s = %scale)
        : ({0}, {0}, {1}, {1}, tensor<f32>) -> ({5}) {{
      %0 = nn.all_reduce %a : ({0}) -> {0}
      {3}
      fusion.yield {4} : {5}
    }}
    return {8} : {5}
  }})",
                     m, v, dims, body, yields, results, types.ranks, 1 + std::count(results.begin(), results.end(), '>') - 1,
                     std::count(yields.begin(), yields.end(), '%') == 1   ? "%y#0"
                     : std::count(yields.begin(), yields.end(), '%') == 2 ? "%y#0, %y#1"
                                                                          : "%y#0, %y#1, %y#2");
}

const std::vector<SymbolValues> few = {{{"n", 3}}};

std::string addNorm(const Types &types, bool live = true) {
  const std::string m = types.matrix();
  return group(types,
               fmt::format("%1 = nn.add %0, %r : ({0}, {0}) -> {0}\n"
                           "%2 = nn.rms_norm %1, %w {{eps = 1.0e-6 : f32}} : ({0}, {1}) -> {0}",
                           m, types.vector()),
               live ? "%2, %1" : "%2", live ? m + ", " + m : m);
}

TEST(Collective, EveryTypeWidthAndNumberOfRanks) {
  int64_t ranks = 2;
  for (const char *type : {"bf16", "f16", "f32"})
    for (int64_t width : {8, 40, 129, 512, 1000, 2880, 4097}) {
      const Types types{type, type, width, ranks};
      checkRanks({addNorm(types, width % 2 == 0), {{{"n", 1}}, {{"n", 5}}}, toleranceOf(type)});
      ranks = ranks == 8 ? 2 : ranks == 4 ? 8 : ranks + 1;
    }
}

} // namespace
} // namespace fusion::test
