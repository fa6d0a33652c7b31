#include "test/reference/Testing.h"

#include <filesystem>
#include <fstream>

namespace fusion::testing {
namespace {

Tensor count(DType type, Shape shape) {
  std::vector<double> numbers(static_cast<size_t>(elementCount(shape)));
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<double>(i);
  return tensor(type, std::move(shape), numbers);
}

TEST(Data, ConstantsAndDims) {
  expectEqual(runOp("nn.constant", {}, "{value = dense<[1, 2]> : tensor<2xi64>}", DType::I64, {2}), {1, 2});
  expectEqual(runOp("nn.constant", {}, "{value = dense<0.5> : tensor<2xbf16>}", DType::BF16, {2}),
              {0.5, 0.5});
  auto values = tryOp("nn.dim_constant", {}, "{values = [\"s + 1\", 7]}", {"tensor<2xi32>"}, {{"s", 4}});
  ASSERT_TRUE(bool(values));
  expectEqual(values->front(), {5, 7});
  auto unknown = tryOp("nn.dim_constant", {}, "{values = [\"s + 1\"]}", {"tensor<1xi64>"});
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("nn.dim_constant"), std::string::npos) << unknown.error().message;
}

TEST(Data, Iota) {
  expectEqual(runOp("nn.iota", {tensor(DType::I64, {}, {3}), tensor(DType::I64, {}, {-2})}, "{size = [4]}",
                    DType::I64, {4}),
              {3, 1, -1, -3});
  expectEqual(runOp("nn.iota", {tensor(DType::F32, {}, {1}), tensor(DType::F32, {}, {0.5})}, "{size = [3]}",
                    DType::F32, {3}),
              {1, 1.5, 2});
  EXPECT_EQ(runOp("nn.iota", {tensor(DType::I32, {}, {1}), tensor(DType::I32, {}, {1})}, "{size = [0]}",
                  DType::I32, {0})
                .size(),
            0);
}

TEST(Data, ReshapeTransposeExpand) {
  for (DType type : {DType::F32, DType::F16, DType::I64, DType::U8}) {
    Tensor x = count(type, {2, 3, 4});
    expectEqual(runOp("nn.reshape", {x}, "{shape = [4, 6]}", type, {4, 6}), values(x));
    std::vector<double> expected;
    for (int k = 0; k < 4; ++k)
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 3; ++j)
          expected.push_back(i * 12 + j * 4 + k);
    expectEqual(runOp("nn.transpose", {x}, "{perm = array<i64: 2, 0, 1>}", type, {4, 2, 3}), expected);
  }
  expectEqual(runOp("nn.expand", {count(DType::F16, {2, 1})}, "{shape = [2, 2, 3]}", DType::F16, {2, 2, 3}),
              {0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1});
  auto failed =
      tryOp("nn.reshape", {count(DType::F32, {4})}, "{shape = [\"a\", 3]}", {"tensor<?x3xf32>"}, {{"a", 2}});
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("4 cannot take the shape 2x3"), std::string::npos)
      << failed.error().message;
}

TEST(Data, ImpossibleSizesAreErrors) {
  Tensor one = tensor(DType::F32, {1}, {1});
  auto huge = tryOp("nn.expand", {one}, "{shape = [\"n\"]}", {"tensor<?xf32>"}, {{"n", int64_t{1} << 58}});
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().kind, ErrorKind::Environment);
  EXPECT_FALSE(tryOp("nn.expand", {one}, "{shape = [\"n - 5\"]}", {"tensor<?xf32>"}, {{"n", 2}}));
  EXPECT_FALSE(tryOp("nn.iota", {tensor(DType::I64, {}, {0}), tensor(DType::I64, {}, {1})},
                     "{size = [\"n - 5\"]}", {"tensor<?xi64>"}, {{"n", 2}}));
}

TEST(Data, Slice) {
  Tensor x = count(DType::BF16, {3, 5});
  expectEqual(runOp("nn.slice", {x}, "{starts = [1, 4], sizes = [2, 3], steps = array<i64: 1, -2>}",
                    DType::BF16, {2, 3}),
              {9, 7, 5, 14, 12, 10});
  EXPECT_EQ(runOp("nn.slice", {x}, "{starts = [0, 0], sizes = [3, 0], steps = array<i64: 1, 1>}", DType::BF16,
                  {3, 0})
                .size(),
            0);
  auto failed = tryOp("nn.slice", {x}, "{starts = [0, \"s\"], sizes = [3, 2], steps = array<i64: 1, 1>}",
                      {"tensor<3x2xbf16>"}, {{"s", 4}});
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("out of range"), std::string::npos);
}

TEST(Data, ConcatPadTrilu) {
  Tensor a = count(DType::I64, {2, 1, 2}), b = count(DType::I64, {2, 2, 2}),
         none = count(DType::I64, {2, 0, 2});
  expectEqual(runOp("nn.concat", {a, none, b}, "{axis = 1 : i64}", DType::I64, {2, 3, 2}),
              {0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 6, 7});
  expectEqual(runOp("nn.concat", {a, a}, "{axis = -1 : i64}", DType::I64, {2, 1, 4}),
              {0, 1, 0, 1, 2, 3, 2, 3});
  expectEqual(runOp("nn.pad", {count(DType::F32, {2, 2}), tensor(DType::F32, {}, {9})},
                    "{low = [1, 0], high = [0, 1]}", DType::F32, {3, 3}),
              {9, 9, 9, 0, 1, 9, 2, 3, 9});
  expectEqual(runOp("nn.pad", {count(DType::F32, {2, 3}), tensor(DType::F32, {}, {9})},
                    "{low = [0, -1], high = [0, 1]}", DType::F32, {2, 3}),
              {1, 2, 9, 4, 5, 9});
  expectEqual(runOp("nn.pad", {tensor(DType::F32, {}, {3}), tensor(DType::F32, {}, {9})},
                    "{low = [], high = []}", DType::F32, {}),
              {3});
  Tensor x = count(DType::F16, {2, 3});
  expectEqual(runOp("nn.trilu", {x}, "{upper = true, k = 1 : i64}", DType::F16, {2, 3}), {0, 1, 2, 0, 0, 5});
  expectEqual(runOp("nn.trilu", {x}, "{upper = false, k = 0 : i64}", DType::F16, {2, 3}), {0, 0, 0, 3, 4, 0});
  expectEqual(runOp("nn.trilu", {x}, "{upper = true, k = -5 : i64}", DType::F16, {2, 3}), {0, 1, 2, 3, 4, 5});
  expectEqual(runOp("nn.trilu", {x}, "{upper = false, k = -9 : i64}", DType::F16, {2, 3}),
              {0, 0, 0, 0, 0, 0});
}

TEST(Data, Gather) {
  Tensor x = count(DType::F16, {3, 2});
  expectEqual(runOp("nn.gather", {x, tensor(DType::I64, {2, 2}, {2, -3, 9, -9})}, "{axis = 0 : i64}",
                    DType::F16, {2, 2, 2}),
              {4, 5, 0, 1, 4, 5, 0, 1});
  expectEqual(runOp("nn.gather", {x, tensor(DType::I32, {}, {1})}, "{axis = 1 : i64}", DType::F16, {3}),
              {1, 3, 5});
  expectEqual(runOp("nn.gather_elements", {x, tensor(DType::I64, {1, 3}, {0, 1, -1})}, "{axis = 1 : i64}",
                    DType::F16, {1, 3}),
              {0, 1, 1});
  expectEqual(runOp("nn.gather_elements", {x, tensor(DType::I64, {2, 2}, {2, 0, 1, 1})}, "{axis = 0 : i64}",
                    DType::F16, {2, 2}),
              {4, 1, 2, 3});
}

TEST(Data, GatherAndScatterNd) {
  Tensor x = count(DType::F32, {2, 2, 2});
  expectEqual(runOp("nn.gather_nd", {x, tensor(DType::I64, {2, 2}, {0, 1, -1, 0})}, "{batch_dims = 0 : i64}",
                    DType::F32, {2, 2}),
              {2, 3, 4, 5});
  expectEqual(runOp("nn.gather_nd", {x, tensor(DType::I64, {2, 1}, {1, 0})}, "{batch_dims = 1 : i64}",
                    DType::F32, {2, 2}),
              {2, 3, 4, 5});
  expectEqual(
      runOp("nn.scatter_nd",
            {x, tensor(DType::I64, {2, 2}, {0, 1, 1, -1}), tensor(DType::F32, {2, 2}, {-1, -2, -3, -4})}, "",
            DType::F32, {2, 2, 2}),
      {0, 1, -1, -2, 4, 5, -3, -4});
  expectEqual(x, {0, 1, 2, 3, 4, 5, 6, 7});
  // An update out of range is left out.
  expectEqual(runOp("nn.scatter_nd",
                    {x, tensor(DType::I64, {2, 3}, {0, 0, 2, 1, -2, 0}), tensor(DType::F32, {2}, {-1, -2})},
                    "", DType::F32, {2, 2, 2}),
              {0, 1, 2, 3, -2, 5, 6, 7});
}

TEST(Data, Weights) {
  std::string folder = ::testing::TempDir() + "reference-weights";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/w.bin", std::ios::binary).write("\x01\x00\x80\x3f\x00\x00\x00\x40\x21\xf8", 10);
  WeightFiles files(folder);
  ReferenceOptions options;
  options.weights = &files;
  auto load = [&](const std::string &attributes, const std::string &type) {
    return tryOp("nn.weight", {}, "{name = \"w\", " + attributes + "}", {type}, {}, options);
  };
  auto aligned = load("path = \"w.bin\", offset = 4 : i64, length = 4 : i64", "tensor<1xf32>");
  ASSERT_TRUE(bool(aligned));
  expectEqual(aligned->front(), {2});
  auto misaligned = load("path = \"w.bin\", offset = 2 : i64, length = 4 : i64", "tensor<1x1xi32>");
  ASSERT_TRUE(bool(misaligned));
  expectEqual(misaligned->front(), {0x00003f80});
  auto nibbles = load("path = \"w.bin\", offset = 8 : i64, length = 2 : i64", "tensor<3xi4>");
  ASSERT_TRUE(bool(nibbles));
  expectEqual(nibbles->front(), {1, 2, -8});
  auto unsignedNibbles = load("path = \"w.bin\", offset = 8 : i64, length = 2 : i64", "tensor<4xui4>");
  ASSERT_TRUE(bool(unsignedNibbles));
  expectEqual(unsignedNibbles->front(), {1, 2, 8, 15});
  auto tooShort = load("path = \"w.bin\", offset = 8 : i64, length = 4 : i64", "tensor<1xf32>");
  ASSERT_FALSE(tooShort);
  EXPECT_NE(tooShort.error().message.find("weight w: needs 4 bytes at offset 8"), std::string::npos)
      << tooShort.error().message;
  auto missing = load("path = \"absent.bin\", offset = 0 : i64, length = 4 : i64", "tensor<1xf32>");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("weight w: no file absent.bin"), std::string::npos)
      << missing.error().message;
  EXPECT_FALSE(tryOp("nn.weight", {}, "{name = \"w\", path = \"w.bin\", offset = 0 : i64, length = 4 : i64}",
                     {"tensor<1xf32>"}));
}

} // namespace
} // namespace fusion::testing
