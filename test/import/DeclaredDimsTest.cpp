// What files call the dims of inputs and outputs: hints, which the ops know better.
#include "ModelBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusion::test {
namespace {

using proto::TensorProto;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// y = x[:, :size], which the file declares to be as long as x.
std::string sliced(const std::vector<int64_t> &starts, const std::vector<int64_t> &ends,
                   const std::string &declared) {
  ModelBuilder b;
  b.input("x", TensorProto::FLOAT, {"n", "width"})
      .ints("starts", starts)
      .ints("ends", ends)
      .ints("axes", {1});
  b.node("Slice", {"x", "starts", "ends", "axes"}, {"y"});
  ModelBuilder::describe(*b.graph().add_output(), "y", TensorProto::FLOAT, {"n", declared});
  return Importer().text(b);
}

/// Optimum writes the names of inputs' dims at outputs that are of other sizes.
TEST(ImportDeclaredDims, OfASliceWhereTheyAreTrue) {
  EXPECT_THAT(sliced({1}, {INT64_MAX}, "width - 1"),
              HasSubstr("nn.dims = [\"n\", \"width - 1\"], nn.name = \"y\""));
  for (const char *wrong : {"width", "2*width", "n", "other", "7"})
    EXPECT_THAT(sliced({1}, {INT64_MAX}, wrong),
                HasSubstr("nn.dims = [\"n\", \"width - min(1, width)\"], nn.name = \"y\""));
}

TEST(ImportDeclaredDims, OfWhatAConvolutionReads) {
  ModelBuilder b;
  b.input("x", TensorProto::FLOAT, {"batch", "channels", "height", "width"}).output("y");
  b.weight("w", {8, 3, 4, 4});
  ModelBuilder::attribute(b.node("Conv", {"x", "w"}, {"y"}), "strides", std::vector<int64_t>{4, 4});
  EXPECT_THAT(Importer().text(b),
              HasSubstr("nn.dims = [\"batch\", 3, \"height\", \"width\"], nn.name = \"x\""));
  b.graph()
      .mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(1)
      ->set_dim_value(4);
  EXPECT_THAT(Importer().text(b), HasSubstr("do not fit an input of [batch, 4, height, width]"));
}

TEST(ImportDeclaredDims, HalfOfASizeDoesNotTellIt) {
  ModelBuilder b;
  b.input("x", TensorProto::FLOAT, {"batch", "length / 2"}).output("y");
  b.node("Relu", {"x"}, {"y"});
  EXPECT_THAT(Importer().text(b), HasSubstr("nn.dims = [\"batch\", \"`length//2`\"], nn.name = \"x\""));
  b.input("all", TensorProto::FLOAT, {"batch", "length"}).output("z");
  b.node("Relu", {"all"}, {"z"});
  EXPECT_THAT(Importer().text(b), HasSubstr("nn.dims = [\"batch\", \"length//2\"], nn.name = \"x\""));
}

/// A decoder's mask that was exported for one token.
ModelBuilder masked(const std::string &mask) {
  ModelBuilder b;
  b.input("new", TensorProto::FLOAT, {"batch", "seq"}).input("past", TensorProto::FLOAT, {"batch", "past"});
  b.input("mask", TensorProto::FLOAT, {"batch", mask}).output("y");
  ModelBuilder::attribute(b.node("Concat", {"past", "new"}, {"all"}), "axis", 1);
  b.node("Add", {"all", "mask"}, {"y"});
  return b;
}

TEST(ImportDeclaredDims, APlaceFurtherIsWhatTheGraphSays) {
  for (const char *mask : {"past + 1", "seq + 4", "past + seq"})
    EXPECT_THAT(Importer().text(masked(mask)),
                HasSubstr("nn.dims = [\"batch\", \"past + seq\"], nn.name = \"mask\""))
        << mask;
}

/// Unless the graph needs to know it.
TEST(ImportDeclaredDims, APlaceFurtherIsWhatTheFileSays) {
  ModelBuilder b;
  b.input("x", TensorProto::FLOAT, {"n", "4"}).input("y", TensorProto::FLOAT, {"n + 1", "4"}).output("z");
  b.ints("zero", {0}, true).ints("one", {1}, true).ints("row", {1}).ints("part", {1});
  b.node("Shape", {"x"}, {"shape"});
  b.node("Gather", {"shape", "zero"}, {"n"});
  b.node("Shape", {"y"}, {"shapeOfY"});
  b.node("Gather", {"shapeOfY", "zero"}, {"m"});
  b.node("Sub", {"m", "n"}, {"difference"});
  b.node("Reshape", {"difference", "row"}, {"sizes"});
  b.node("Split", {"x", "sizes"}, {"z"}); // one part, of one row
  ModelBuilder::attribute(*b.graph().mutable_node(6), "axis", 0);
  EXPECT_THAT(Importer().text(b), Not(HasSubstr("error")));
}

TEST(ImportDeclaredDims, InputsThatNothingReadsAreOfAnySize) {
  ModelBuilder b;
  b.input("x", TensorProto::FLOAT, {"batch", "length"}).output("y");
  b.input("unread", TensorProto::FLOAT, {"batch", "length", "8"});
  b.input("alone", TensorProto::FLOAT, {"batch", "other"});
  b.node("Relu", {"x"}, {"y"});
  b.node("Relu", {"unread"}, {"nowhere"});
  EXPECT_THAT(Importer().text(b),
              AllOf(HasSubstr("nn.dims = [\"batch\", \"length\"], nn.name = \"x\""),
                    HasSubstr("nn.dims = [\"unread_0\", \"unread_1\", 8], nn.name = \"unread\""),
                    HasSubstr("nn.dims = [\"alone_0\", \"other\"], nn.name = \"alone\"")));
}

} // namespace
} // namespace fusion::test
