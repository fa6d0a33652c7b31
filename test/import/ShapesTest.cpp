// Integer shape arithmetic is evaluated at import, over symbols.
#include "ModelBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusion::test {
namespace {

using proto::TensorProto;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// x: [batch, seq, 128]; the nodes compute a shape `s`; the model reshapes x to it.
ModelBuilder reshapeModel(int64_t opset = 18) {
  ModelBuilder b(opset);
  b.input("x", TensorProto::FLOAT, {"batch", "seq", "128"}).output("y");
  return b;
}

TEST(ImportShapes, ConcatOfGatheredDims) {
  ModelBuilder b = reshapeModel();
  b.ints("zero", {0}, true).ints("one", {1}, true).ints("axis", {0}).ints("tail", {-1, 32});
  b.node("Shape", {"x"}, {"shape"});
  b.node("Gather", {"shape", "zero"}, {"batch"});
  b.node("Gather", {"shape", "one"}, {"seq"});
  b.node("Unsqueeze", {"batch", "axis"}, {"batch1"});
  b.node("Unsqueeze", {"seq", "axis"}, {"seq1"});
  ModelBuilder::attribute(b.node("Concat", {"batch1", "seq1", "tail"}, {"s"}), "axis", 0);
  b.node("Reshape", {"x", "s"}, {"y"});
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr(R"(nn.reshape %arg0 {shape = ["batch", "seq", 4, 32]})"),
                                        Not(HasSubstr("nn.gather")), Not(HasSubstr("dim_constant"))));
}

TEST(ImportShapes, ArithmeticOnDims) {
  ModelBuilder b = reshapeModel();
  b.ints("two", {2}).ints("hundred", {128});
  auto &seq = b.node("Shape", {"x"}, {"seq"});
  ModelBuilder::attribute(seq, "start", 1);
  ModelBuilder::attribute(seq, "end", 2);
  ModelBuilder::attribute(b.node("Shape", {"x"}, {"batch"}), "end", 1);
  b.node("Mul", {"seq", "two"}, {"twice"});
  b.node("Sub", {"twice", "seq"}, {"again"});
  b.node("Mul", {"batch", "again"}, {"rows"});
  b.node("Abs", {"rows"}, {"rows2"});
  ModelBuilder::attribute(b.node("Concat", {"rows2", "hundred"}, {"s"}), "axis", 0);
  b.node("Reshape", {"x", "s"}, {"y"});
  EXPECT_THAT(Importer().text(b), HasSubstr(R"(shape = ["batch*seq", 128])"));
}

TEST(ImportShapes, WhereOnMinusOneAsTorchScriptPrintsExpand) {
  ModelBuilder b(18);
  b.input("x", TensorProto::FLOAT, {"batch", "1", "64"}).output("y");
  b.ints("wanted", {-1, 7, -1}).ints("minus", {-1});
  b.node("Shape", {"x"}, {"own"});
  b.node("Equal", {"wanted", "minus"}, {"keep"});
  b.node("Where", {"keep", "own", "wanted"}, {"s"});
  b.node("Expand", {"x", "s"}, {"y"});
  EXPECT_THAT(Importer().text(b), HasSubstr(R"(nn.expand %arg0 {shape = ["batch", 7, 64]})"));
}

TEST(ImportShapes, DimsAsData) {
  ModelBuilder b = reshapeModel();
  b.ints("zero", {0}, true);
  ModelBuilder::attribute(b.node("Shape", {"x"}, {"shape"}), "start", 1);
  b.node("Gather", {"shape", "zero"}, {"seq"});
  ModelBuilder::attribute(b.node("Cast", {"seq"}, {"seqf"}), "to", TensorProto::FLOAT);
  b.node("Div", {"x", "seqf"}, {"y"});
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr(R"({values = ["seq"]} : () -> tensor<i64>)"),
                                        HasSubstr("nn.cast"), HasSubstr("nn.div")));
}

struct SliceCase {
  std::vector<int64_t> starts, ends, axes, steps;
  const char *expected;
};

TEST(ImportShapes, Slices) {
  const int64_t most = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  const SliceCase cases[] = {
      {{1}, {most}, {1}, {1}, R"-(sizes = ["batch", "seq - min(1, seq)", 128])-"},
      {{-16}, {most}, {2}, {1}, R"(sizes = ["batch", "seq", 16], starts = [0, 0, 112])"},
      {{least}, {-1}, {-1}, {1}, R"(sizes = ["batch", "seq", 127], starts = [0, 0, 0])"},
      {{-1},
       {least},
       {2},
       {-1},
       R"(sizes = ["batch", "seq", 128], starts = [0, 0, 127], steps = array<i64: 1, 1, -1>)"},
      {{0},
       {128},
       {2},
       {2},
       R"(sizes = ["batch", "seq", 64], starts = [0, 0, 0], steps = array<i64: 1, 1, 2>)"},
      {{100}, {7}, {2}, {-9}, R"(sizes = ["batch", "seq", 11], starts = [0, 0, 100])"},
      {{200}, {300}, {2}, {1}, R"(sizes = ["batch", "seq", 0])"},
      {{0}, {64}, {1}, {1}, "\"min(64, seq)\""},
  };
  for (const auto &c : cases) {
    ModelBuilder b = reshapeModel();
    b.ints("starts", c.starts).ints("ends", c.ends).ints("axes", c.axes).ints("steps", c.steps);
    b.node("Slice", {"x", "starts", "ends", "axes", "steps"}, {"y"});
    EXPECT_THAT(Importer().text(b), HasSubstr(c.expected));
  }
}

TEST(ImportShapes, SlicesTakeTheExportersWordForNonEmptyDims) {
  const std::vector<std::tuple<int64_t, int64_t, std::string, const char *>> cases = {
      {1, 1 << 30, "seq - 1", R"(sizes = ["batch", "seq - 1", 128], starts = [0, 1, 0])"},
      {0, 1, "1", R"(sizes = ["batch", 1, 128], starts = [0, 0, 0])"},
      {-1, std::numeric_limits<int64_t>::max(), "1",
       R"(sizes = ["batch", 1, 128], starts = [0, "seq - 1", 0])"},
      {0, 1, "unk_7", R"-(sizes = ["batch", "min(1, seq)", 128])-"},
  };
  for (const auto &[start, end, declared, expected] : cases) {
    ModelBuilder b = reshapeModel();
    b.ints("starts", {start}).ints("ends", {end}).ints("axes", {1});
    b.node("Slice", {"x", "starts", "ends", "axes"}, {"s"});
    b.node("Relu", {"s"}, {"y"});
    ModelBuilder::describe(*b.graph().add_value_info(), "s", TensorProto::FLOAT, {"batch", declared, "128"});
    EXPECT_THAT(Importer().text(b), HasSubstr(expected));
  }
}

/// Integers divide toward zero: -1 / 2 is 0. The size of a dim divides what is no smaller than 0.
TEST(ImportShapes, Quotients) {
  auto model = [](const std::string &divisor, int64_t shift) {
    ModelBuilder b(18);
    b.input("x", TensorProto::FLOAT, {"batch", "seq"}).output("y");
    b.ints("zero", {0}).ints("one", {1}).ints("two", {2}).ints("shift", {shift});
    b.node("Shape", {"x"}, {"shape"});
    b.node("Gather", {"shape", "zero"}, {"batch"});
    b.node("Gather", {"shape", "one"}, {"seq"});
    b.node("Add", {"seq", "shift"}, {"dividend"});
    b.node("Div", {"dividend", divisor}, {"size"});
    b.node("ConstantOfShape", {"size"}, {"y"});
    return b;
  };
  EXPECT_THAT(Importer().text(model("two", -1)), HasSubstr("max(0, seq - 1)//2"));
  EXPECT_THAT(Importer().text(model("two", -2)), HasSubstr("max(0, seq - 2)//2 - (max(0, -seq + 2)//2)"));
  EXPECT_THAT(Importer().text(model("batch", 0)), HasSubstr("seq//batch"));
}

TEST(ImportShapes, SlicesOfUnknownSignClamp) {
  ModelBuilder b = reshapeModel();
  b.input("past", TensorProto::FLOAT, {"past", "128"});
  b.ints("axis", {1}).ints("far", {1 << 30});
  for (const char *name : {"x", "past"}) {
    auto &shape = b.node("Shape", {name}, {std::string(name) + "_size"});
    ModelBuilder::attribute(shape, "start", name[0] == 'x' ? 1 : 0);
    ModelBuilder::attribute(shape, "end", name[0] == 'x' ? 2 : 1);
  }
  b.node("Sub", {"x_size", "past_size"}, {"start"});
  b.node("Slice", {"x", "start", "far", "axis"}, {"y"});
  // A negative start counts from the end: what is added to it is seq where it is negative, else nothing.
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr("nn.slice"), HasSubstr("min(1, max(0, past - seq))")));
}

/// A dim whose symbols no input tells is what it is called, and nothing else.
TEST(ImportShapes, DimsThatInputsDoNotTellAreFree) {
  ModelBuilder b(18);
  b.input("ids", TensorProto::FLOAT, {"batch", "seq"})
      .input("mask", TensorProto::FLOAT, {"batch", "past_len + seq_len"});
  b.input("next", TensorProto::FLOAT, {"batch", "seq + 1"});
  b.node("Relu", {"mask"}, {"y"});
  b.node("Relu", {"ids"}, {"z"});
  b.node("Relu", {"next"}, {"w"});
  b.output("y").output("z").output("w");
  EXPECT_THAT(Importer().text(b),
              AllOf(HasSubstr(R"(["batch", "`past_len + seq_len`"])"), HasSubstr(R"(["batch", "`seq + 1`"])")));
}

/// What ops say about the inputs' dims holds for the inputs: the size of what a cache grows by is the
/// cache's.
TEST(ImportShapes, OpsSayWhatNamesHide) {
  ModelBuilder b(18);
  b.input("past", TensorProto::FLOAT, {"batch", "past", "cache_dim"})
      .input("new", TensorProto::FLOAT, {"batch", "seq", "32"});
  b.input("mask", TensorProto::FLOAT, {"batch", "p + s", "1"});
  ModelBuilder::attribute(b.node("Concat", {"past", "new"}, {"all"}), "axis", 1);
  b.node("Add", {"all", "mask"}, {"y"});
  b.output("y");
  EXPECT_THAT(Importer().text(b),
              AllOf(HasSubstr(R"(nn.dims = ["batch", "past", 32], nn.name = "past")"),
                    HasSubstr(R"(nn.dims = ["batch", "past + seq", 1], nn.name = "mask")")));
}

TEST(ImportShapes, RangeAndFill) {
  ModelBuilder b = reshapeModel();
  b.ints("zero", {0}, true).ints("one", {1}, true);
  b.node("Shape", {"x"}, {"shape"});
  b.node("Gather", {"shape", "one"}, {"seq"});
  b.node("Range", {"zero", "seq", "one"}, {"positions"});
  b.node("ConstantOfShape", {"shape"}, {"zeros"});
  b.node("Add", {"x", "zeros"}, {"y"});
  b.output("positions");
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr(R"({size = ["seq"]})"), HasSubstr("nn.expand"),
                                        HasSubstr(R"({shape = ["batch", "seq", 128]})")));
}

TEST(ImportShapes, SplitAndTile) {
  ModelBuilder b(18);
  b.input("x", TensorProto::FLOAT, {"n", "7"}).output("a").output("c").output("t");
  auto &split = b.node("Split", {"x"}, {"a", "b", "c"});
  ModelBuilder::attribute(split, "axis", 1);
  ModelBuilder::attribute(split, "num_outputs", 3);
  b.ints("repeats", {2, 1});
  b.node("Tile", {"x", "repeats"}, {"t"});
  EXPECT_THAT(Importer().text(b),
              AllOf(HasSubstr(R"(sizes = ["n", 3], starts = [0, 0])"),
                    HasSubstr(R"(sizes = ["n", 1], starts = [0, 6])"), HasSubstr(R"(shape = ["2*n", 7])")));
}

TEST(ImportShapes, InputDims) {
  ModelBuilder b(18);
  b.input("x.1", TensorProto::FLOAT, {"", "past + 1", "batch size", "?", "?"}).output("y");
  b.node("Relu", {"x.1"}, {"y"});
  EXPECT_THAT(
      Importer().text(b),
      HasSubstr(R"(nn.dims = ["x_1_0", "past + 1", "`batch size`", "x_1_3", "x_1_4"], nn.name = "x.1")"));
}

TEST(ImportShapes, EqualitiesMakeDivisionsExact) {
  // The product takes s15 and s89 as equal; the reshape of what depends on s89 divides by s15.
  ModelBuilder b(18);
  b.input("p", TensorProto::FLOAT, {"batch", "s15"}).input("v", TensorProto::FLOAT, {"s89", "4"});
  b.output("m").output("y");
  b.ints("one", {1}).ints("minus", {-1});
  b.node("MatMul", {"p", "v"}, {"m"});
  ModelBuilder::attribute(b.node("Shape", {"p"}, {"length"}), "start", 1);
  ModelBuilder::attribute(b.node("Concat", {"minus", "one", "length"}, {"s"}), "axis", 0);
  b.node("Reshape", {"v", "s"}, {"y"});
  EXPECT_THAT(Importer().text(b), HasSubstr(R"(shape = [4, 1, "s15"])"));
}

TEST(ImportShapes, KnownInputs) {
  ModelBuilder b = reshapeModel();
  b.input("s", TensorProto::INT64, {"2"});
  b.node("Reshape", {"x", "s"}, {"y"});
  ImportOptions options;
  std::vector<int64_t> shape{-1, 128};
  options.constants["s"] = Tensor::of<int64_t>(DType::I64, {2}, shape);
  EXPECT_THAT(Importer().text(b, options),
              AllOf(HasSubstr(R"(shape = ["batch*seq", 128])"), Not(HasSubstr("%arg1"))));
}

/// A known dim is a number wherever its symbol stands; the mask's row then goes to each of the rows.
TEST(ImportShapes, KnownDims) {
  ModelBuilder b;
  b.input("x", TensorProto::FLOAT, {"seq", "past + seq"})
      .input("mask", TensorProto::FLOAT, {"batch", "past + seq"});
  b.input("past", TensorProto::FLOAT, {"past", "2"}).output("y").output("p");
  b.node("Add", {"x", "mask"}, {"y"});
  b.node("Neg", {"past"}, {"p"});
  ImportOptions options;
  options.dims = {{"batch", 1}, {"past", 0}};
  EXPECT_THAT(Importer().text(b, options), AllOf(HasSubstr("tensor<1x?xf32>"), HasSubstr("tensor<0x2xf32>"),
                                                 HasSubstr(R"(["seq", "seq"])"), Not(HasSubstr("batch"))));
  options.dims = {{"rows", 1}};
  EXPECT_THAT(Importer().text(b, options),
              HasSubstr("no input has a dim 'rows'; named dims: batch, past, seq"));
  options.dims = {{"seq", -1}};
  EXPECT_THAT(Importer().text(b, options), HasSubstr("dim 'seq' cannot be -1"));
}

/// Sizes are of 64 bits; in a smaller type 100 + 100 is another number, which the device computes.
TEST(ImportShapes, NumbersThatWrapAreNotSizes) {
  for (auto [type, isKnown] : {std::pair(TensorProto::INT64, true), {TensorProto::INT8, false}}) {
    ModelBuilder b(18);
    b.input("x", TensorProto::FLOAT, {"1"}).ints("hundred", {100}).output("y");
    ModelBuilder::attribute(b.node("Cast", {"hundred"}, {"h"}), "to", type);
    b.node("Add", {"h", "h"}, {"sum"});
    ModelBuilder::attribute(b.node("Cast", {"sum"}, {"s"}), "to", TensorProto::INT64);
    b.node("Expand", {"x", "s"}, {"y"});
    EXPECT_THAT(Importer().text(b), HasSubstr(isKnown ? "shape = [200]" : "error: "));
  }
}

/// Until opset 10 a range is the places of ones.
TEST(ImportShapes, PlacesOfOnes) {
  ModelBuilder b(10);
  b.input("x", TensorProto::FLOAT, {"n", "4"}).output("y");
  b.node("Shape", {"x"}, {"shape"});
  b.ints("first", {0});
  b.node("Gather", {"shape", "first"}, {"size"});
  auto *value = b.node("ConstantOfShape", {"size"}, {"ones"}).add_attribute();
  value->set_name("value");
  value->set_type(proto::AttributeProto::TENSOR);
  *value->mutable_t() = ModelBuilder::intTensor("", {1});
  b.node("NonZero", {"ones"}, {"y"});
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr("nn.iota"), HasSubstr("tensor<1x?xi64>")));
  b.graph().mutable_node(3)->set_input(0, "x");
  EXPECT_THAT(Importer().text(b), HasSubstr("how many elements the result has depends on run-time data"));
}

/// ceil((n - 7) / 2 + 1), as codecs compute how much to pad.
TEST(ImportShapes, SizesThroughFloats) {
  auto rounded = [](const std::string &round, float divisor) {
    ModelBuilder b;
    b.input("x", TensorProto::FLOAT, {"n"}).output("y").ints("zero", {0}, true);
    for (const auto &[name, value] : {std::pair("seven", 7.0f), {"divisor", divisor}, {"one", 1.0f}}) {
      auto *tensor = b.graph().add_initializer();
      tensor->set_name(name);
      tensor->set_data_type(TensorProto::FLOAT);
      tensor->add_float_data(value);
    }
    b.node("Shape", {"x"}, {"shape"});
    b.node("Gather", {"shape", "zero"}, {"n"});
    ModelBuilder::attribute(b.node("Cast", {"n"}, {"f"}), "to", TensorProto::FLOAT);
    b.node("Sub", {"f", "seven"}, {"less"});
    b.node("Div", {"less", "divisor"}, {"part"});
    b.node("Add", {"part", "one"}, {"more"});
    b.node(round, {"more"}, {"whole"});
    ModelBuilder::attribute(b.node("Cast", {"whole"}, {"size"}), "to", TensorProto::INT64);
    b.ints("row", {1});
    b.node("Reshape", {"size", "row"}, {"sizes"});
    b.node("ConstantOfShape", {"sizes"}, {"y"});
    return Importer().text(b);
  };
  EXPECT_THAT(rounded("Ceil", 2), HasSubstr("nn.dims = [\"n//2 - 2\"]"));
  EXPECT_THAT(rounded("Floor", 2), HasSubstr("nn.dims = [\"(n + 1)//2 - 3\"]"));
  EXPECT_THAT(rounded("Ceil", 0.5f), HasSubstr("2*n - 13"));
  EXPECT_THAT(rounded("Identity", 2), HasSubstr("depends on run-time data")); // what a cast cuts off
}

} // namespace
} // namespace fusion::test
