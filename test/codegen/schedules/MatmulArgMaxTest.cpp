// The kernels of matmul_arg_max compile, and what the schedule refuses. What they compute: arg_max_test.cpp.
#include "Parsed.h"

#include <fmt/format.h>

#include <set>

namespace fusion::test {
namespace {

std::string module(const std::string &x, const std::string &w, const std::string &y, bool transposeB,
                   const std::string &tail, const std::string &yields, const std::string &types) {
  return fmt::format(R"(
    func.func @main(%x: {0} {{nn.dims = ["rows", 2048]}}, %w: {1}) -> ({6}) {{
      %0:{7} = fusion.group "matmul_arg_max" schedule "matmul_arg_max" (%a = %x, %b = %w) : ({0}, {1}) -> ({6}) {{
        %p = nn.matmul %a, %b {{transpose_b = {3}}} : ({0}, {1}) -> {2}
        {4}
        fusion.yield {5} : {6}
      }}
      return {8} : {6}
    }})",
                     x, w, y, transposeB, tail, yields, types, yields.find(',') == std::string::npos ? 1 : 2,
                     yields.find(',') == std::string::npos ? "%0#0" : "%0#0, %0#1");
}

struct Form {
  int n;
  const char *type = "bf16";
  bool transposeB = true, leaves = true, capped = false;
};

std::string module(const Form &f) {
  const std::string y = fmt::format("tensor<?x{}x{}>", f.n, f.type),
                    w = f.transposeB ? fmt::format("tensor<{}x2048x{}>", f.n, f.type)
                                     : fmt::format("tensor<2048x{}x{}>", f.n, f.type),
                    l = f.capped ? fmt::format("tensor<?x{}xf32>", f.n) : y;
  const std::string cap = fmt::format("%c = nn.cast %p : ({0}) -> {1}\n%l = nn.tanh %c : ({1}) -> {1}\n", y, l);
  return module(fmt::format("tensor<?x2048x{}>", f.type), w, y, f.transposeB,
                fmt::format("{}%i = nn.arg_max {} {{axis = 1 : i64, keepdims = false}} : ({}) -> tensor<?xi64>",
                            f.capped ? cap : "", f.capped ? "%l" : "%p", l),
                !f.leaves   ? "%i"
                : f.capped ? "%l, %i"
                           : "%p, %i",
                f.leaves ? l + ", tensor<?xi64>" : "tensor<?xi64>");
}

/// The kernels that find the largest compile; the largest numbers of rows that they are for.
std::vector<int64_t> compileAll(const std::string &text) {
  SCOPED_TRACE(text);
  Parsed parsed(text);
  EXPECT_TRUE(parsed.target);
  const KernelContext context = parsed.kernelContext(90);
  auto plan = matmulArgMaxSchedule().plan(parsed.region, context);
  EXPECT_TRUE(plan) << plan.error().message;
  std::set<int64_t> ends;
  for (const PlannedAlternative &alternative : plan->alternatives(parsed.region)) {
    if (llvm::none_of(alternative.kernels.front().region.ops, llvm::IsaPred<nn::ArgMaxOp>))
      continue;
    ends.insert(alternative.when.front().most);
    EXPECT_EQ(alternative.kernels.size(), 2u);
    for (const PlannedKernel &kernel : alternative.kernels)
      checkSpills(kernel.emit(context).kernel, Targets::One);
  }
  return {ends.begin(), ends.end()};
}

TEST(MatmulArgMax, KernelsCompile) {
  for (const Form &form : {Form{128256}, Form{50257, "f16"}, Form{262144, "bf16", true, true, true},
                           Form{32000, "bf16", false, false}, Form{151936, "f16", true, false, true}})
    EXPECT_EQ(compileAll(module(form)), (std::vector<int64_t>{8, 16, 32, 64, 128}));
}

TEST(MatmulArgMax, KernelsOfCodesCompile) {
  // Whose scales are multiplied with sums of integers have a kernel of one row.
  for (auto [codes, block, unrounded] : {std::tuple("i4", 32, true), std::tuple("i4", 128, true),
                                         std::tuple("i4", 32, false), std::tuple("i8", 32, true),
                                         std::tuple("i4", 16, true)}) {
    const std::string w = fmt::format("tensor<128256x2048x{}>", codes),
                      s = fmt::format("tensor<128256x{}xbf16>", 2048 / block);
    const auto ends = compileAll(fmt::format(R"(
    func.func @main(%x: tensor<?x2048xbf16> {{nn.dims = ["rows", 2048]}}, %s: {1}) -> tensor<?xi64> {{
      %w = nn.weight {{name = "w", path = "w.bin", offset = 0 : i64, length = {4} : i64}} : () -> {0}
      %0 = fusion.group "matmul_arg_max" schedule "matmul_arg_max" (%a = %x, %b = %w, %c = %s) : (tensor<?x2048xbf16>, {0}, {1}) -> tensor<?xi64> {{
        %d = nn.dequantize %b, %c {{axis = 1 : i64, block_size = {2} : i64, unrounded = {3}}} : ({0}, {1}) -> tensor<128256x2048xbf16>
        %p = nn.matmul %a, %d {{transpose_b = true}} : (tensor<?x2048xbf16>, tensor<128256x2048xbf16>) -> tensor<?x128256xbf16>
        %i = nn.arg_max %p {{axis = 1 : i64, keepdims = false}} : (tensor<?x128256xbf16>) -> tensor<?xi64>
        fusion.yield %i : tensor<?xi64>
      }}
      return %0 : tensor<?xi64>
    }})",
                                             w, s, block, unrounded,
                                             int64_t(128256) * 2048 / (codes == std::string_view("i4") ? 2 : 1)));
    std::vector<int64_t> expected{4, 8, 16, 32, 64};
    if (block != 16)
      expected.push_back(128);
    if (unrounded && codes == std::string_view("i4") && block != 16)
      expected.insert(expected.begin(), 1);
    EXPECT_EQ(ends, expected) << codes << block;
  }
}

TEST(MatmulArgMax, Refusals) {
  const std::string x = "tensor<?x2048xbf16>", w = "tensor<2048x512xbf16>", y = "tensor<?x512xbf16>",
                    ids = "tensor<?xi64>";
  auto refusalOf = [&](const std::string &tail, const std::string &yields, const std::string &types) {
    return refusal(matmulArgMaxSchedule(), module(x, w, y, false, tail, yields, types));
  };
  const std::string last = "%i = nn.arg_max %p {axis = 1 : i64, keepdims = false} : (" + y + ") -> " + ids;
  EXPECT_EQ(refusalOf(last, "%i", ids), "");
  EXPECT_EQ(refusalOf(last + "\n%n = nn.neg %p : (" + y + ") -> " + y, "%n, %i", y + ", " + ids),
            "another result than the elements and the places of the largest");
  EXPECT_EQ(refusalOf("%i = nn.arg_max %a {axis = 1 : i64, keepdims = false} : (" + x + ") -> " + ids, "%p, %i",
                      y + ", " + ids),
            "nn.arg_max of what the matmul does not make");
  EXPECT_EQ(refusalOf("%i = nn.neg %p : (" + y + ") -> " + y, "%i", y), "no nn.arg_max");
  EXPECT_EQ(refusalOf("%i = nn.arg_max %p {axis = 0 : i64, keepdims = false} : (" + y + ") -> tensor<512xi64>",
                      "%i", "tensor<512xi64>"),
            "nn.arg_max along another dim than the columns of the matmul");
}

} // namespace
} // namespace fusion::test
