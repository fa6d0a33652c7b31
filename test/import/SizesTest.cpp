// Sizes as tf2onnx spells them: through floats, with a billion for "to the end", counted by loops.
#include "ModelBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusion::test {
namespace {

using proto::AttributeProto;
using proto::TensorProto;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

void floats(ModelBuilder &b, const std::string &name, const std::vector<float> &values, bool scalar = true) {
  auto *tensor = b.graph().add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(TensorProto::FLOAT);
  if (!scalar)
    tensor->add_dims(static_cast<int64_t>(values.size()));
  for (float value : values)
    tensor->add_float_data(value);
}

/// x: [n, 8], and n as `size`, of i64, and `float`.
ModelBuilder sized() {
  ModelBuilder b;
  b.input("x", TensorProto::FLOAT, {"n", "8"}).output("y").ints("zero", {0}, true);
  b.node("Shape", {"x"}, {"shape"});
  b.node("Gather", {"shape", "zero"}, {"size"});
  ModelBuilder::attribute(b.node("Cast", {"size"}, {"float"}), "to", TensorProto::FLOAT);
  return b;
}

TEST(ImportSizes, RangesOfFloats) {
  ModelBuilder b = sized();
  floats(b, "start", {0});
  floats(b, "step", {1});
  b.node("Range", {"start", "float", "step"}, {"y"});
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr("nn.iota"), HasSubstr("nn.dims = [\"n\"]")));
  ModelBuilder down = sized();
  floats(down, "step", {-2});
  down.node("Neg", {"float"}, {"end"});
  down.node("Range", {"float", "end", "step"}, {"y"});
  EXPECT_THAT(Importer().text(down), HasSubstr("nn.dims = [\"n\"]"));
  ModelBuilder middles = sized();
  floats(middles, "start", {0.5});
  floats(middles, "step", {1});
  middles.node("Range", {"start", "float", "step"}, {"y"});
  EXPECT_THAT(Importer().text(middles), HasSubstr("nn.dims = [\"n\"]"));
  ModelBuilder parts = sized();
  floats(parts, "start", {0});
  floats(parts, "step", {0.5});
  parts.node("Range", {"start", "float", "step"}, {"y"});
  EXPECT_THAT(Importer().text(parts), HasSubstr("the number of values depends on run-time data"));
}

TEST(ImportSizes, RangeOfMicrosoft) {
  ModelBuilder b = sized();
  b.importDomain("com.microsoft", 1);
  b.node("Range", {"zero", "size"}, {"y"}, "com.microsoft");
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr("nn.iota"), HasSubstr("nn.dims = [\"n\"]")));
}

TEST(ImportSizes, ABillionIsTheEnd) {
  ModelBuilder b = sized();
  b.ints("from", {1}).ints("to", {1'000'000'000}).ints("axes", {0});
  b.node("Slice", {"x", "from", "to", "axes"}, {"y"});
  EXPECT_THAT(Importer().text(b),
              AllOf(HasSubstr("nn.dims = [\"n - min(1, n)\", 8]"), Not(HasSubstr("1000000000"))));
}

/// As a strided slice clamps its ends: in floats, and turned around where its step is negative, which it is
/// not.
TEST(ImportSizes, EndsThroughVectorsOfFloats) {
  ModelBuilder b = sized();
  b.ints("row", {1}).ints("nought", {0}).ints("billion", {1'000'000'000}, true).ints("axes", {0, 1});
  b.ints("ones", {1, 1}).ints("begin", {0, 0}).ints("other", {-1'000'000'000}, true);
  floats(b, "bounds", {-1e9F, 1e9F}, false);
  b.node("Reshape", {"size", "row"}, {"one"});
  ModelBuilder::attribute(b.node("Concat", {"one", "nought"}, {"both"}), "axis", 0);
  ModelBuilder::attribute(b.node("Cast", {"both"}, {"floats"}), "to", TensorProto::FLOAT);
  b.node("Max", {"floats", "bounds"}, {"larger"});
  ModelBuilder::attribute(b.node("Cast", {"larger"}, {"ends"}), "to", TensorProto::INT64);
  b.node("Equal", {"ends", "billion"}, {"open"});
  b.node("Less", {"ones", "zero"}, {"backwards"});
  b.node("And", {"open", "backwards"}, {"turned"});
  b.node("Where", {"turned", "other", "ends"}, {"to"});
  b.node("Slice", {"x", "begin", "to", "axes", "ones"}, {"y"});
  EXPECT_THAT(Importer().text(b), HasSubstr("nn.dims = [\"n\", 8]"));
  b.graph().mutable_node(10)->set_op_type("Or"); // now it is asked what is open
  EXPECT_THAT(Importer().text(b), HasSubstr("ends (input 2, 'to') depends on run-time data"));
}

TEST(ImportSizes, MatricesOfPads) {
  ModelBuilder b = sized();
  b.ints("nothing", {0, 0}).ints("pair", {1, 2}).ints("row", {1}).ints("flat", {-1}).ints("nought", {0});
  b.node("Reshape", {"nothing", "pair"}, {"first"});
  b.node("Reshape", {"size", "row"}, {"one"});
  ModelBuilder::attribute(b.node("Concat", {"nought", "one"}, {"behind"}), "axis", 0);
  b.node("Reshape", {"behind", "pair"}, {"second"});
  ModelBuilder::attribute(b.node("Concat", {"second", "first"}, {"pads"}), "axis", 0);
  b.node("Transpose", {"pads"}, {"turned"});
  b.node("Reshape", {"turned", "flat"}, {"all"});
  b.node("Pad", {"x", "all"}, {"y"});
  EXPECT_THAT(Importer().text(b), HasSubstr("nn.dims = [\"2*n\", 8]"));
}

/// As the lengths behind the convolutions of an encoder of sound, where divisions may be of negative numbers.
TEST(ImportSizes, BehindManyDivisions) {
  ModelBuilder b = sized();
  b.ints("row", {1}).ints("less", {7}, true).ints("parts", {3}, true).ints("axes", {0}).ints("from", {0});
  std::string size = "size";
  for (int i = 0; i < 4; ++i) {
    const std::string number = std::to_string(i);
    b.node("Sub", {size, "less"}, {"difference" + number});
    b.node("Div", {"difference" + number, "parts"}, {size = "size" + number});
  }
  b.node("Reshape", {size, "row"}, {"to"});
  b.node("Slice", {"x", "from", "to", "axes"}, {"y"});
  EXPECT_THAT(Importer().text(b), HasSubstr("nn.slice")); // by a dim of 1,100 characters
}

/// for (i = 0; i < n; i += by) y.append(x[i] + x[i]); `first`: whether there is a first step.
ModelBuilder counting(int64_t by, const std::string &first, const std::string &compare = "Less") {
  ModelBuilder b = sized();
  floats(b, "start", {0});
  b.node("Less", {"start", "float"}, {"asked"});
  auto &node = b.node("Loop", {"", first, "zero"}, {"end", "y"});
  auto *attribute = node.add_attribute();
  attribute->set_name("body");
  attribute->set_type(AttributeProto::GRAPH);
  auto *graph = attribute->mutable_g();
  for (const char *input : {"step", "c", "i"})
    graph->add_input()->set_name(input);
  *graph->add_initializer() = ModelBuilder::intTensor("by", {by}, true);
  ModelBuilder::fill(*graph->add_node(), "Add", {"i", "by"}, {"next"});
  ModelBuilder::attribute(ModelBuilder::fill(*graph->add_node(), "Cast", {"next"}, {"f"}), "to",
                          TensorProto::FLOAT);
  ModelBuilder::fill(*graph->add_node(), compare, {"f", "float"}, {"more"});
  ModelBuilder::fill(*graph->add_node(), "Gather", {"x", "i"}, {"row"});
  ModelBuilder::fill(*graph->add_node(), "Add", {"row", "row"}, {"twice"});
  for (const char *output : {"more", "next", "twice"})
    graph->add_output()->set_name(output);
  return b;
}

/// The size of dim 0 is put into a list by a scatter, as exporters expand the indices of an index_copy.
TEST(ImportSizes, ScatteredIntoAList) {
  ModelBuilder b = sized();
  b.ints("list", {4, 7, 8}).ints("at", {-2}).ints("axis", {0});
  b.node("Unsqueeze", {"size", "axis"}, {"sizes"});
  b.node("ScatterElements", {"list", "at", "sizes"}, {"to"});
  b.node("Expand", {"x", "to"}, {"y"});
  EXPECT_THAT(Importer().text(b), HasSubstr("nn.dims = [4, \"n\", 8]"));
}

/// Rows that are cut from a buffer of 64 for n tokens are one group of n.
TEST(ImportSizes, OneGroupOfRowsOfABuffer) {
  ModelBuilder b = sized();
  b.ints("table", std::vector<int64_t>(64, 3)).ints("from", {0}).ints("axis", {0}).ints("any", {-1});
  b.node("Unsqueeze", {"size", "axis"}, {"sizes"});
  b.node("Slice", {"table", "from", "sizes", "axis"}, {"rows"});
  ModelBuilder::attribute(b.node("Concat", {"any", "sizes"}, {"to"}), "axis", 0);
  b.node("Reshape", {"rows", "to"}, {"y"});
  EXPECT_THAT(Importer().text(b), HasSubstr("nn.dims = [1, \"n\"]"));
}

// Repeats of one dim, as TorchScript exports repeat_interleave.
TEST(ImportSizes, OneHotRepeats) {
  ModelBuilder b = sized();
  b.ints("one", {1}).ints("depth", {2}, true).ints("axis", {0}).ints("rest", {-1});
  b.node("Unsqueeze", {"size", "axis"}, {"sizes"});
  ModelBuilder::attribute(b.node("Concat", {"one", "sizes"}, {"values"}), "axis", 0);
  b.node("OneHot", {"one", "depth", "values"}, {"hot"});
  b.node("Reshape", {"hot", "rest"}, {"repeats"});
  b.node("Tile", {"x", "repeats"}, {"y"});
  EXPECT_THAT(Importer().text(b), HasSubstr("nn.dims = [\"n\", \"8*n\"]"));
}

// [(n + 3) / 4, 8] as [(n - 1) / 4 + 1, -1]: 8 for every n.
TEST(ImportSizes, OneSizeInTwoSpellings) {
  ModelBuilder b;
  b.input("x", TensorProto::FLOAT, {"n"}).output("y");
  b.ints("zero", {0}, true).ints("one", {1}, true).ints("three", {3}, true).ints("four", {4}, true);
  b.ints("axis", {0}).ints("eight", {8}).ints("rest", {-1});
  b.node("Shape", {"x"}, {"shape"});
  b.node("Gather", {"shape", "zero"}, {"size"});
  b.node("Add", {"size", "three"}, {"more"});
  b.node("Div", {"more", "four"}, {"up"});
  b.node("Unsqueeze", {"up", "axis"}, {"ups"});
  ModelBuilder::attribute(b.node("Concat", {"ups", "eight"}, {"table"}), "axis", 0);
  b.node("ConstantOfShape", {"table"}, {"t"});
  b.node("Sub", {"size", "one"}, {"less"});
  b.node("Div", {"less", "four"}, {"down"});
  b.node("Add", {"down", "one"}, {"again"});
  b.node("Unsqueeze", {"again", "axis"}, {"agains"});
  ModelBuilder::attribute(b.node("Concat", {"agains", "rest"}, {"to"}), "axis", 0);
  b.node("Reshape", {"t", "to"}, {"y"});
  EXPECT_THAT(Importer().text(b), HasSubstr(", 8]"));
}

// The first n of 100 rows of 8 as [n, -1]: 8, since there are no more.
TEST(ImportSizes, RowsOfATable) {
  ModelBuilder b;
  b.input("x", TensorProto::FLOAT, {"n"}).input("table", TensorProto::FLOAT, {"100", "8"}).output("y");
  b.ints("zero", {0}).ints("rest", {-1});
  b.node("Shape", {"x"}, {"shape"});
  b.node("Slice", {"table", "zero", "shape"}, {"rows"});
  ModelBuilder::attribute(b.node("Concat", {"shape", "rest"}, {"to"}), "axis", 0);
  b.node("Reshape", {"rows", "to"}, {"y"});
  EXPECT_THAT(Importer().text(b), HasSubstr("nn.dims = [\"n\", 8]"));
}

TEST(ImportSizes, Powers) {
  ModelBuilder b = sized();
  b.ints("two", {2}, true).ints("axis", {0});
  b.node("Pow", {"size", "two"}, {"square"});
  b.node("Unsqueeze", {"square", "axis"}, {"shape2"});
  b.node("ConstantOfShape", {"shape2"}, {"y"});
  EXPECT_THAT(Importer().text(b), HasSubstr("nn.dims = [\"n*n\"]"));
}

TEST(ImportSizes, LoopsThatCountToASize) {
  EXPECT_THAT(Importer().text(counting(1, "asked")), HasSubstr("steps = [\"n\"]"));
  EXPECT_THAT(Importer().text(counting(2, "asked")), HasSubstr("steps = [\"(n + 1)//2\"]"));
  EXPECT_THAT(Importer().text(counting(1, "")), HasSubstr("steps = [\"max(1, n)\"]")); // one at least
  const char *isData = "how many there are depends on run-time data";
  EXPECT_THAT(Importer().text(counting(-1, "asked")), HasSubstr(isData));
  EXPECT_THAT(Importer().text(counting(1, "asked", "LessOrEqual")), HasSubstr(isData)) << "unlike at first";
  EXPECT_THAT(Importer().text(counting(1, "", "LessOrEqual")), HasSubstr("steps = [\"n + 1\"]"));
  EXPECT_THAT(Importer().text(counting(1, "asked", "Greater")), HasSubstr(isData));
}

/// As Keras counts: by two numbers, one of which is handed on as it is, and below a size besides.
TEST(ImportSizes, LoopsThatCountTwice) {
  ModelBuilder b = counting(1, "both");
  b.node("And", {"asked", "asked"}, {"both"});
  auto &nodes = *b.graph().mutable_node();
  for (int i = nodes.size() - 1; i > 4; --i)
    nodes.SwapElements(i, i - 1); // in front of the loop
  auto &node = *b.graph().mutable_node(5);
  node.set_input(0, "size");
  node.add_input("size");
  node.clear_output();
  for (const char *output : {"end", "same", "y"})
    node.add_output(output);
  auto *body = node.mutable_attribute(0)->mutable_g();
  body->add_input()->set_name("limit");
  ModelBuilder::fill(*body->add_node(), "Less", {"next", "limit"}, {"below"});
  ModelBuilder::fill(*body->add_node(), "Less", {"step", "limit"}, {"early"});
  ModelBuilder::fill(*body->add_node(), "And", {"below", "more"}, {"two"});
  ModelBuilder::fill(*body->add_node(), "And", {"two", "early"}, {"three"});
  body->clear_output();
  for (const char *output : {"three", "next", "limit", "twice"})
    body->add_output()->set_name(output);
  EXPECT_THAT(Importer().text(b), HasSubstr("steps = [\"n\"]"));
}

} // namespace
} // namespace fusion::test
