#include "test/reference/Testing.h"

namespace fusion::testing {
namespace {

TEST(Quantize, TiesSaturationAndZeroPoints) {
  for (DType type : modelTypes) {
    Tensor x = tensor(type, {9}, {0.5, 1.5, 2.5, -0.5, -1.5, 1000, -1000, nan, infinity});
    Tensor one = tensor(DType::F32, {}, {1});
    expectEqual(runOp("nn.quantize", {x, one}, "", DType::I8, {9}), {0, 2, 2, 0, -2, 127, -128, 0, 127});
    expectEqual(runOp("nn.quantize", {x, one, tensor(DType::U8, {}, {10})}, "", DType::U8, {9}),
                {10, 12, 12, 10, 8, 255, 0, 0, 255});
    expectEqual(runOp("nn.quantize", {x, one}, "", DType::I4, {9}), {0, 2, 2, 0, -2, 7, -8, 0, 7});
    expectEqual(runOp("nn.quantize", {x, one}, "", DType::F8E4M3, {9}),
                {0.5, 1.5, 2.5, -0.5, -1.5, 448, -448, nan, 448});
  }
  // 17 and 19 lie between 16, 18 and 20; ties go to even.
  expectEqual(runOp("nn.quantize", {tensor(DType::F32, {3}, {34, 38, 36.2}), tensor(DType::F32, {}, {2})}, "",
                    DType::F8E4M3, {3}),
              {16, 20, 18});
  expectEqual(runOp("nn.quantize", {tensor(DType::F32, {2}, {1e6, -1e6}), tensor(DType::F32, {}, {1})}, "",
                    DType::F8E5M2, {2}),
              {57344, -57344});
}

TEST(Quantize, ScalesPerAxisAndPerBlock) {
  Tensor x = tensor(DType::F32, {2, 5}, {10, 20, 30, 40, 50, -10, -20, -30, -40, -50});
  expectEqual(
      runOp("nn.quantize", {x, tensor(DType::F32, {2}, {10, 5})}, "{axis = 0 : i64}", DType::I8, {2, 5}),
      {1, 2, 3, 4, 5, -2, -4, -6, -8, -10});
  expectEqual(runOp("nn.quantize", {x, tensor(DType::F32, {5}, {1, 2, 3, 4, 5})}, "", DType::I8, {2, 5}),
              {10, 10, 10, 10, 10, -10, -10, -10, -10, -10});
  Tensor blocked = tensor(DType::F32, {2, 3}, {10, 5, 1, 1, 2, 10});
  expectEqual(runOp("nn.quantize", {x, blocked}, "{axis = 1 : i64, block_size = 2 : i64}", DType::I8, {2, 5}),
              {1, 2, 6, 8, 50, -10, -20, -15, -20, -5});
  Tensor rows = tensor(DType::F32, {1, 2}, {10, 5}); // blocks along the first dim
  expectEqual(runOp("nn.quantize", {tensor(DType::F32, {2, 2}, {10, 10, 20, 20}), rows},
                    "{axis = 0 : i64, block_size = 2 : i64}", DType::I8, {2, 2}),
              {1, 2, 2, 4});
}

TEST(Quantize, Dequantize) {
  Tensor q = tensor(DType::U8, {2, 2}, {0, 128, 255, 130});
  for (DType type : modelTypes)
    expectEqual(runOp("nn.dequantize", {q, tensor(DType::F32, {}, {0.5}), tensor(DType::U8, {}, {128})}, "",
                      type, {2, 2}),
                {-64, 0, 63.5, 1});
  Tensor packed = tensor(DType::I4, {4, 2}, {1, 2, 3, 4, -5, -6, 7, -8});
  Tensor scale = tensor(DType::F16, {2, 2}, {1, 10, 2, 20}), zero = tensor(DType::I4, {2, 2}, {0, 1, 0, -1});
  expectEqual(runOp("nn.dequantize", {packed, scale, zero}, "{axis = 0 : i64, block_size = 2 : i64}",
                    DType::F16, {4, 2}),
              {1, 10, 3, 30, -10, -100, 14, -140});
  expectEqual(runOp("nn.dequantize", {tensor(DType::F8E4M3, {2}, {448, -0.5}), tensor(DType::F32, {1}, {2})},
                    "", DType::BF16, {2}),
              {896, -1});
}

TEST(Quantize, Dynamic) {
  for (DType type : modelTypes) {
    Tensor x = tensor(type, {2, 5}, {1, -2, 4, 0, 0.5, 0, 0, 0, 0, 0});
    auto whole = tryOp("nn.dynamic_quantize", {x}, "", {"tensor<2x5xi8>", "tensor<2x1xf32>"});
    ASSERT_TRUE(bool(whole)) << whole.error().message;
    expectEqual((*whole)[0], {32, -64, 127, 0, 16, 0, 0, 0, 0, 0});
    expectEqual((*whole)[1], {static_cast<float>(4.0f / 127.0f), 1});
    auto grouped = tryOp("nn.dynamic_quantize", {x}, "{group_size = 2 : i64}",
                         {"tensor<2x5xf8E4M3FN>", "tensor<2x3xf32>"});
    ASSERT_TRUE(bool(grouped)) << grouped.error().message;
    expectEqual((*grouped)[0], {224, -448, 448, 0, 448, 0, 0, 0, 0, 0});
    expectEqual((*grouped)[1], {2.0f / 448.0f, 4.0f / 448.0f, 0.5f / 448.0f, 1, 1, 1});
  }
  auto bad = tryOp("nn.dynamic_quantize", {tensor(DType::F32, {1, 2}, {nan, 1})}, "",
                   {"tensor<1x2xf8E5M2>", "tensor<1x1xf32>"});
  ASSERT_TRUE(bool(bad));
  expectEqual((*bad)[0], {nan, nan});
  auto empty = tryOp("nn.dynamic_quantize", {tensor(DType::F32, {2, 0}, {})}, "",
                     {"tensor<2x0xi8>", "tensor<2x1xf32>"});
  ASSERT_TRUE(bool(empty));
  expectEqual((*empty)[1], {1, 1});
  // A long row crosses the blocks in which elements are stored.
  Tensor row = randomTensor(DType::F32, {1, 3000}, 61);
  auto lengthy = tryOp("nn.dynamic_quantize", {row}, "", {"tensor<1x3000xi8>", "tensor<1x1xf32>"});
  ASSERT_TRUE(bool(lengthy));
  std::vector<double> in = values(row), expected;
  double scale = values((*lengthy)[1])[0];
  for (double value : in)
    expected.push_back(std::nearbyint(static_cast<float>(value) / static_cast<float>(scale)));
  expectEqual((*lengthy)[0], expected);
}

TEST(Quantize, AllReduce) {
  Tensor x = tensor(DType::BF16, {2}, {1, 2});
  expectEqual(runOp("nn.all_reduce", {x}, "{group = \"tp\"}", DType::BF16, {2}), {1, 2});
  ReferenceOptions options;
  std::string asked;
  options.allReduce = [&](const Tensor &part, std::string_view group) -> Result<Tensor> {
    asked = group;
    return tensor(DType::F32, part.shape(), {values(part)[0] * 3, 257});
  };
  auto summed = tryOp("nn.all_reduce", {x}, "{group = \"dp\"}", {"tensor<2xbf16>"}, {}, options);
  ASSERT_TRUE(bool(summed));
  EXPECT_EQ(asked, "dp");
  expectEqual(summed->front(), {3, 256}); // 257 is no bf16
}

} // namespace
} // namespace fusion::testing
