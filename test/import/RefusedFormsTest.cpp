// Forms of ops that cannot be: one line each, which says what the form lacks.
#include "ModelBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace fusion::test {
namespace {

using proto::TensorProto;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

#define EXPECT_REFUSED(BUILDER, TEXT)                                                                        \
  EXPECT_THAT(Importer().text(BUILDER), AllOf(StartsWith("error: "), Not(HasSubstr("\n")), HasSubstr(TEXT)))

struct In {
  std::string name;
  int32_t type;
  Dims dims;
};
In f32(std::string name, Dims dims) { return {std::move(name), TensorProto::FLOAT, std::move(dims)}; }
In i64(std::string name, Dims dims) { return {std::move(name), TensorProto::INT64, std::move(dims)}; }

/// A graph with these inputs and a result y.
ModelBuilder graphOf(const std::vector<In> &inputs, int64_t opset = 22) {
  ModelBuilder b(opset);
  b.importDomain("com.microsoft", 1);
  for (const In &input : inputs)
    b.input(input.name, input.type, input.dims);
  b.output("y");
  return b;
}

using Attributes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

/// One node on all inputs: an attribute of one entry is a number.
ModelBuilder nodeOf(const std::string &op, const std::vector<In> &inputs, const Attributes &attributes = {},
                    int64_t opset = 22) {
  ModelBuilder b = graphOf(inputs, opset);
  std::vector<std::string> names;
  for (const In &input : inputs)
    names.push_back(input.name);
  const size_t dot = op.rfind('.');
  auto &node =
      b.node(dot == op.npos ? op : op.substr(dot + 1), names, {"y"}, dot == op.npos ? "" : op.substr(0, dot));
  for (const auto &[name, values] : attributes)
    if (values.size() == 1)
      ModelBuilder::attribute(node, name, values.front());
    else
      ModelBuilder::attribute(node, name, values);
  return b;
}

TEST(RefusedForms, Sequences) {
  const std::vector<In> x = {f32("x", {"n", "4"})};
  auto list = [&](const std::function<void(ModelBuilder &)> &use) {
    ModelBuilder b = graphOf({f32("x", {"n", "4"}), i64("i", {})});
    b.node("SequenceConstruct", {"x", "x"}, {"list"});
    use(b);
    return b;
  };
  EXPECT_REFUSED(list([](auto &b) { b.node("Identity", {"list"}, {"y"}); }),
                 "'list' is a sequence of tensors, and a tensor is needed here");
  EXPECT_REFUSED(list([](auto &b) {
                   b.node("Add", {"x", "list"}, {"y"});
                 }),
                 "input 1 is a sequence of tensors, which this op does not take");
  EXPECT_REFUSED(list([](auto &b) {
                   b.node("SequenceAt", {"list", "i"}, {"y"});
                 }),
                 "the place in the sequence (input 1, 'i') depends on run-time data");
  EXPECT_REFUSED(list([](auto &b) {
                   b.ints("two", {2}, true).node("SequenceAt", {"list", "two"}, {"y"});
                 }),
                 "place 2 is out of range for a sequence of 2");
  EXPECT_REFUSED(list([](auto &b) { b.node("SequenceConstruct", {"list"}, {"y"}); }),
                 "input 0 is a sequence of tensors");
  EXPECT_REFUSED(list([](auto &b) {
                   b.node("SequenceInsert", {"x", "x"}, {"y"});
                 }),
                 "input 0 is no sequence whose length is known");
  EXPECT_REFUSED(list([](auto &b) {
                   b.node("SequenceEmpty", {}, {"none"});
                   b.node("ConcatFromSequence", {"none"}, {"y"});
                 }),
                 "the sequence is empty");
  EXPECT_REFUSED(list([](auto &b) {
                   b.node("SequenceEmpty", {}, {"none"});
                   b.node("SequenceErase", {"none"}, {"y"});
                 }),
                 "the sequence has nothing to erase");
  EXPECT_REFUSED(nodeOf("SplitToSequence", x), "how many parts there are depends on 'n'");
  EXPECT_REFUSED(nodeOf("SplitToSequence", {f32("x", {"100000"})}), "a sequence of more than 4096 tensors");
  ModelBuilder parts = graphOf(x);
  parts.ints("parts", {1, 2}).node("SplitToSequence", {"x", "parts"}, {"y"});
  ModelBuilder::attribute(*parts.graph().mutable_node(0), "axis", 1);
  EXPECT_REFUSED(parts, "parts of 3 together for a dim of 4");
  ModelBuilder none = graphOf(x);
  none.node("Optional", {}, {"none"});
  none.node("OptionalGetElement", {"none"}, {"y"});
  EXPECT_REFUSED(none, "the optional holds nothing");
}

/// Where the number of steps is a size, a list that grows has no length.
TEST(RefusedForms, ListsOfLoopsWithoutEnd) {
  ModelBuilder b = graphOf({f32("x", {"n", "4"}), i64("steps", {})});
  b.node("SequenceEmpty", {}, {"list"});
  auto &body = *b.node("Loop", {"steps", "", "list"}, {"all"}).add_attribute();
  body.set_name("body");
  body.set_type(proto::AttributeProto::GRAPH);
  for (const char *name : {"i", "go", "before"})
    body.mutable_g()->add_input()->set_name(name);
  ModelBuilder::fill(*body.mutable_g()->add_node(), "Identity", {"go"}, {"goes"});
  ModelBuilder::fill(*body.mutable_g()->add_node(), "SequenceInsert", {"before", "x"}, {"behind"});
  for (const char *name : {"goes", "behind"})
    body.mutable_g()->add_output()->set_name(name);
  b.node("ConcatFromSequence", {"all"}, {"y"});
  EXPECT_REFUSED(b, "its steps hand on a sequence (input 2)");
}

TEST(RefusedForms, Regions) {
  const std::vector<In> aligned = {f32("x", {"1", "2", "6", "8"}), f32("boxes", {"n", "4"}),
                                   i64("at", {"n"})};
  EXPECT_REFUSED(nodeOf("RoiAlign", aligned), "sampling_ratio 0");
  EXPECT_REFUSED(
      nodeOf("RoiAlign", {aligned[0], aligned[1], f32("at", {"n", "1"})}, {{"sampling_ratio", {2}}}),
      "not a vector");
  EXPECT_REFUSED(nodeOf("RoiAlign", aligned, {{"sampling_ratio", {2}}, {"output_width", {1 << 20}}}),
                 "a region would have 1048576 places");
  EXPECT_REFUSED(nodeOf("MaxRoiPool", {f32("x", {"1", "2", "h", "8"}), f32("boxes", {"n", "5"})},
                        {{"pooled_shape", {2, 2}}}),
                 "a height and a width that are numbers");
  EXPECT_REFUSED(nodeOf("MaxRoiPool", {aligned[0], aligned[1]}, {{"pooled_shape", {2, 2}}}),
                 "regions of five numbers");
  const std::vector<In> deformed = {f32("x", {"1", "2", "6", "8"}), f32("w", {"3", "2", "2", "2"}),
                                    f32("offset", {"1", "8", "5", "7"})};
  EXPECT_REFUSED(nodeOf("DeformConv", deformed, {{"strides", {2, 2}}}),
                 "offsets of [1, 8, 5, 7], not [1, 8, 3, 4]");
  EXPECT_REFUSED(nodeOf("DeformConv", deformed, {{"group", {2}}}), "do not fit an input");
  EXPECT_REFUSED(
      nodeOf("com.microsoft.CropAndResize", {aligned[0], aligned[1], aligned[2], i64("size", {"2"})}),
      "crop_size (input 3, 'size') depends on run-time data");
}

TEST(RefusedForms, Matrices) {
  EXPECT_REFUSED(nodeOf("Det", {f32("x", {"n", "65", "65"})}),
                 "is not square matrices of floats, of 1 to 64 rows");
  EXPECT_REFUSED(nodeOf("Det", {f32("x", {"3", "4"})}), "is not square matrices");
  EXPECT_REFUSED(nodeOf("Det", {f32("x", {"m", "m"})}), "is not square matrices");
  EXPECT_REFUSED(nodeOf("com.microsoft.Inverse", {i64("x", {"3", "3"})}), "is not square matrices");
  EXPECT_REFUSED(nodeOf("AffineGrid", {f32("theta", {"1", "2", "3"}), i64("size", {"4"})}, {}, 20),
                 "size (input 1, 'size') depends on run-time data");
  EXPECT_REFUSED(nodeOf("CumProd", {f32("x", {"3"}), i64("axis", {})}, {}, 26), "axis (input 1, 'axis')");
  ModelBuilder columns = graphOf({f32("x", {"1", "8", "9"})});
  columns.ints("image", {4, 4}).ints("block", {2, 2}).node("Col2Im", {"x", "image", "block"}, {"y"});
  EXPECT_THAT(Importer().text(columns), HasSubstr("nn.gather"));
  columns.graph().mutable_initializer(0)->set_raw_data(std::string("\5\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0", 16));
  EXPECT_REFUSED(columns, "an input of [1, 8, 9] is not 12 blocks of 4 elements");
  ModelBuilder smaller = graphOf({f32("x", {"1", "1", "2", "2"}), i64("at", {"1", "1", "2", "2"})});
  auto &unpool = smaller.ints("shape", {1, 1, 4, 3}).node("MaxUnpool", {"x", "at", "shape"}, {"y"});
  ModelBuilder::attribute(unpool, "kernel_shape", std::vector<int64_t>{2, 2});
  ModelBuilder::attribute(unpool, "strides", std::vector<int64_t>{2, 2});
  EXPECT_REFUSED(smaller, "output_shape [1, 1, 4, 3] is smaller than [1, 1, 4, 4]");
}

TEST(RefusedForms, Diagonals) {
  auto einsum = [](const std::string &equation, const Dims &dims) {
    ModelBuilder b = graphOf({f32("x", dims)});
    ModelBuilder::attribute(b.node("Einsum", {"x"}, {"y"}), "equation", equation);
    return b;
  };
  EXPECT_THAT(Importer().text(einsum("ii->i", {"n", "n"})), HasSubstr("nn.gather_nd"));
  EXPECT_REFUSED(einsum("ii->i", {"3", "4"}), "a diagonal of [3, 4], whose dims 0 and 1 differ");
  EXPECT_REFUSED(einsum("i->ii", {"3"}), "the result 'ii' has a dim twice");
}

TEST(RefusedForms, CropsOfResize) {
  auto crop = [](const Dims &dims, bool isKnown) {
    ModelBuilder b = graphOf({f32("x", dims), f32("given", {"4"})});
    auto &node = b.weight("part", {4})
                     .ints("sizes", {2, 2})
                     .node("Resize", {"x", isKnown ? "part" : "given", "", "sizes"}, {"y"});
    ModelBuilder::attribute(node, "coordinate_transformation_mode", std::string("tf_crop_and_resize"));
    return b;
  };
  EXPECT_THAT(Importer().text(crop({"5", "6"}, true)), HasSubstr("nn.gather"));
  EXPECT_REFUSED(crop({"5", "6"}, false), "the part that is taken (input 1) depends on run-time data");
  EXPECT_REFUSED(crop({"5", "n"}, true), "a part is taken of dim 1, whose size is 'n', not a number");
}

TEST(RefusedForms, MelWeights) {
  auto mel = [](int64_t length, int64_t rate) {
    ModelBuilder b = graphOf({});
    b.ints("bins", {8}, true).ints("length", {length}, true).ints("rate", {rate}, true).weight("edges", {1});
    b.ints("high", {8000}, true).node("MelWeightMatrix", {"bins", "length", "rate", "edges", "high"}, {"y"});
    return b;
  };
  EXPECT_THAT(Importer().text(mel(16, 16384)), HasSubstr("tensor<9x8xf32>"));
  EXPECT_REFUSED(mel(16, 8192), "upper_edge_hertz is beyond half of sample_rate");
  EXPECT_REFUSED(mel(-1, 8192), "are out of range");
  EXPECT_REFUSED(
      nodeOf("MelWeightMatrix", {i64("a", {}), i64("b", {}), i64("c", {}), f32("d", {}), f32("e", {})}),
      "num_mel_bins (input 0) is not one number that is known");
}

TEST(RefusedForms, OfComMicrosoft) {
  const std::string own = "com.microsoft.";
  const std::vector<In> normed = {f32("x", {"1", "4", "4", "6"}), f32("gamma", {"6"}), f32("beta", {"6"})};
  EXPECT_REFUSED(nodeOf(own + "GroupNorm", normed, {{"groups", {4}}}), "do not divide into 4 groups");
  const std::vector<In> first = {f32("x", {"1", "6", "4", "4"}), normed[1], normed[2]};
  EXPECT_REFUSED(nodeOf("GroupNormalization", first, {{"num_groups", {4}}}), "do not divide into 4 groups");
  EXPECT_REFUSED(nodeOf(own + "GroupNorm", normed, {{"groups", {2}}, {"activation", {2}}}),
                 "activation is 2");
  EXPECT_REFUSED(nodeOf(own + "BiasSoftmax", {f32("x", {"3"}), f32("b", {"2", "3"})}, {{"axis", {0}}}),
                 "a bias of [2, 3] for [3]");
  EXPECT_REFUSED(nodeOf(own + "Rfft", {f32("x", {"2", "n"})}, {{"signal_ndim", {1}}}),
                 "whose length is not a number");
  EXPECT_REFUSED(nodeOf(own + "Rfft", {f32("x", {"2", "8"})}, {{"signal_ndim", {2}}}),
                 "only onesided transforms");
  EXPECT_REFUSED(nodeOf(own + "ComplexMul", {f32("a", {"2", "3"}), f32("b", {"2", "2"})}),
                 "does not end with real and imaginary parts");
  EXPECT_REFUSED(nodeOf(own + "UnfoldTensor", {f32("x", {"3"})}, {{"size", {4}}}), "slices of 4 elements");
  EXPECT_REFUSED(nodeOf(own + "IsAllFinite", {f32("x", {"3"})}, {{"isnan_only", {1}}, {"isinf_only", {1}}}),
                 "exclude each other");
  ModelBuilder bnb = graphOf({f32("x", {"n", "32"}), f32("scales", {"12"})});
  auto &product = bnb.node("MatMulBnb4", {"x", "scales", "scales"}, {"y"}, "com.microsoft");
  for (auto [name, value] : {std::pair("N", 6), {"K", 32}, {"block_size", 16}, {"quant_type", 0}})
    ModelBuilder::attribute(product, name, static_cast<int64_t>(value));
  EXPECT_REFUSED(bnb, "input 1 is not an initializer");
  product.mutable_attribute(2)->set_i(80);
  EXPECT_REFUSED(bnb, "a block_size that divides their product");
  std::vector<In> sparse = {f32("q", {"1", "1", "64"}),
                            f32("k", {"1", "1", "32"}),
                            f32("v", {"1", "1", "32"}),
                            f32("pk", {"1", "2", "64", "16"}),
                            f32("pv", {"1", "2", "64", "16"}),
                            i64("rows", {"1", "5"}),
                            i64("columns", {"1", "9"}),
                            i64("total", {}),
                            i64("lengths", {"1"})};
  EXPECT_REFUSED(nodeOf(own + "SparseAttention", sparse,
                        {{"num_heads", {4}}, {"kv_num_heads", {2}}, {"sparse_block_size", {16}}}),
                 "block_row_indices (input 5, 'rows') depends on run-time data");
  EXPECT_REFUSED(nodeOf(own + "DynamicQuantizeLSTM",
                        {f32("x", {"3", "1", "2"}), f32("w", {"1", "2", "8"}), f32("r", {"1", "2", "8"})}),
                 "input 8 is missing");
  EXPECT_REFUSED(nodeOf(own + "BranchwiseRMSNorm", {f32("x", {"n", "6"})}, {{"num_branches", {4}}}),
                 "streams of [n, 6] with num_branches 4");
  EXPECT_REFUSED(
      nodeOf(own + "RouterGateUpProj", {f32("x", {"n", "6"}), f32("w", {"6", "9"})}, {{"router_size", {4}}}),
      "router_size is 4 for a product of [n, 9]");
  EXPECT_REFUSED(nodeOf("BitCast", {f32("x", {"3"})}, {{"to", {TensorProto::INT64}}}, 26),
                 "the bits of f32 are not those of a i64");
  EXPECT_REFUSED(nodeOf("BitCast", {f32("x", {"3"})}, {}, 26), "attribute 'to' is missing");
  ModelBuilder training = graphOf({f32("x", {"3"}), f32("b", {"3"})});
  training.ints("true", {1}, true).node("BiasDropout", {"x", "b", "", "", "true"}, {"y"}, "com.microsoft");
  EXPECT_REFUSED(training, "training mode is not supported");
}

/// Rows that NonZero finds are taken only where they are written somewhere, each by itself.
TEST(ImportRefused, RowsFoundThatGoElsewhere) {
  auto found = [](const std::function<void(ModelBuilder &)> &use) {
    ModelBuilder b =
        graphOf({f32("x", {"n", "4"}), f32("z", {"m", "4"}), {"mask", TensorProto::BOOL, {"n"}}});
    b.ints("first", {0}).ints("last", {-1}).node("NonZero", {"mask"}, {"places"});
    b.node("Squeeze", {"places", "first"}, {"at"});
    b.node("Gather", {"x", "at"}, {"rows"});
    use(b);
    return b;
  };
  const std::string refused = "how many elements the result has depends on run-time data";
  const auto write = [](ModelBuilder &b, const std::string &rows) {
    b.node("Unsqueeze", {"at", "last"}, {"to"});
    b.node("ScatterND", {"x", "to", rows}, {"y"});
  };
  const auto taken = found([&](ModelBuilder &b) {
    b.node("Neg", {"rows"}, {"made"});
    write(b, "made");
  });
  EXPECT_THAT(Importer().text(taken), AllOf(HasSubstr("nn.scatter_nd"), Not(HasSubstr("found by"))));
  EXPECT_REFUSED(found([](ModelBuilder &b) { b.node("Neg", {"rows"}, {"y"}); }), refused);
  EXPECT_REFUSED(found([](ModelBuilder &b) { b.node("ReduceSum", {"rows", "first"}, {"y"}); }), refused);
  EXPECT_REFUSED(found([&](ModelBuilder &b) { // each of the sum of all
                   b.node("ReduceSum", {"rows", "first"}, {"sum"});
                   b.node("Add", {"rows", "sum"}, {"made"});
                   write(b, "made");
                 }),
                 refused);
  EXPECT_REFUSED(found([&](ModelBuilder &b) { write(b, "z"); }), refused); // as many as the rows of z
  EXPECT_REFUSED(found([&](ModelBuilder &b) {                              // by their number
                   b.ints("zero", {0}, true).ints("one", {1}, true);
                   b.node("Shape", {"at"}, {"shape"});
                   b.node("Squeeze", {"shape"}, {"count"});
                   b.node("Range", {"zero", "count", "one"}, {"numbers"});
                   ModelBuilder::attribute(b.node("Cast", {"numbers"}, {"floats"}), "to", TensorProto::FLOAT);
                   b.node("Unsqueeze", {"floats", "last"}, {"column"});
                   b.node("Add", {"rows", "column"}, {"made"});
                   write(b, "made");
                 }),
                 refused);
}

} // namespace
} // namespace fusion::test
