// Resize along dims whose sizes are symbols: tables are computed in the run, and choose and weigh as the
// constant ones of known sizes do.
#include "ModelBuilder.h"

#include "ir/reference/Reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace fusion::test {
namespace {

using proto::TensorProto;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct Mode {
  std::string mode, coordinates, rounding = "floor";
  bool excludesOutside = false;
  bool antialias = false;
};

proto::NodeProto &resize(ModelBuilder &b, const Mode &how, const std::string &scales,
                         const std::string &sizes) {
  std::vector<std::string> inputs = {"x", "", scales};
  if (!sizes.empty())
    inputs.push_back(sizes);
  auto &node = b.node("Resize", inputs, {"y"});
  ModelBuilder::attribute(node, "mode", how.mode);
  ModelBuilder::attribute(node, "coordinate_transformation_mode", how.coordinates);
  ModelBuilder::attribute(node, "nearest_mode", how.rounding);
  if (how.excludesOutside)
    ModelBuilder::attribute(node, "exclude_outside", 1);
  if (how.antialias)
    ModelBuilder::attribute(node, "antialias", 1);
  return node;
}

ModelBuilder graphOf(const Dims &x, const Dims &like = {}, int32_t type = TensorProto::FLOAT) {
  ModelBuilder b;
  b.input("x", type, x).output("y");
  if (!like.empty()) {
    b.input("like", TensorProto::FLOAT, like);
    b.node("Shape", {"like"}, {"sizes"});
  }
  return b;
}

void floats(ModelBuilder &b, const std::string &name, const std::vector<float> &values) {
  auto *tensor = b.graph().add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(TensorProto::FLOAT);
  tensor->add_dims(static_cast<int64_t>(values.size()));
  for (float value : values)
    tensor->add_float_data(value);
}

/// x to the sizes of `like`.
ModelBuilder toSizes(const Dims &x, const Dims &like, const Mode &how, int32_t type = TensorProto::FLOAT) {
  ModelBuilder b = graphOf(x, like, type);
  resize(b, how, "", "sizes");
  return b;
}

ModelBuilder byScales(const Dims &x, const std::vector<float> &scales, const Mode &how) {
  ModelBuilder b = graphOf(x);
  floats(b, "scales", scales);
  resize(b, how, "scales", "");
  return b;
}

/// By scales that are the sizes of `like` through those of x, or of `other`.
ModelBuilder byQuotients(const Dims &x, const Dims &like, const std::string &other = "x") {
  ModelBuilder b = graphOf(x, like);
  b.node("Shape", {other}, {"own"});
  ModelBuilder::attribute(b.node("Cast", {"sizes"}, {"above"}), "to", TensorProto::FLOAT);
  ModelBuilder::attribute(b.node("Cast", {"own"}, {"below"}), "to", TensorProto::FLOAT);
  b.node("Div", {"above", "below"}, {"scales"});
  resize(b, {"linear", "half_pixel"}, "scales", "");
  return b;
}

TEST(ImportResize, ChoosesByIndicesOfTheRun) {
  EXPECT_THAT(Importer().text(toSizes({"4", "n"}, {"4", "m"}, {"nearest", "asymmetric"}, TensorProto::INT64)),
              AllOf(HasSubstr("nn.iota"), HasSubstr("nn.div"), HasSubstr("axis = 1"),
                    Not(HasSubstr("axis = 0")), HasSubstr("nn.dims = [4, \"m\"]"),
                    Not(HasSubstr("nn.matmul"))));
}

TEST(ImportResize, HalvesAreSummedInF32) {
  EXPECT_THAT(
      Importer().text(toSizes({"n", "4"}, {"m", "4"}, {"linear", "half_pixel"}, TensorProto::FLOAT16)),
      AllOf(HasSubstr("nn.gather"), HasSubstr("(tensor<?x4xf32>) -> tensor<?x4xf16>"),
            Not(HasSubstr("nn.matmul"))));
}

TEST(ImportResize, SizesThatAreTheSameStay) {
  for (const char *mode : {"nearest", "linear", "cubic"})
    EXPECT_THAT(Importer().text(toSizes({"n", "m"}, {"n", "m"}, {mode, "half_pixel"})),
                Not(HasSubstr("nn.gather")));
}

TEST(ImportResize, KnownSizesHaveConstantTables) {
  EXPECT_THAT(Importer().text(toSizes({"n", "4"}, {"n", "6"}, {"linear", "half_pixel"})),
              AllOf(HasSubstr("nn.matmul"), Not(HasSubstr("nn.gather"))));
}

TEST(ImportResize, ScalesOfSymbols) {
  EXPECT_THAT(Importer().text(byScales({"n", "m"}, {0.375F, 2.5F}, {"linear", "half_pixel"})),
              HasSubstr("nn.dims = [\"(3*n)//8\", \"2*m + m//2\"]"));
  EXPECT_THAT(Importer().text(byScales({"n", "m"}, {3, 1}, {"nearest", "asymmetric"})),
              AllOf(HasSubstr("nn.dims = [\"3*n\", \"m\"]"), Not(HasSubstr("nn.gather"))));
  EXPECT_THAT(Importer().text(byScales({"n", "m"}, {1, 2}, {"nearest", "align_corners"})),
              AllOf(HasSubstr("nn.dims = [\"n\", \"2*m\"]"), HasSubstr("nn.gather")));
}

TEST(ImportResize, ScalesThatAreQuotientsOfSizes) {
  EXPECT_THAT(Importer().text(byQuotients({"n", "4"}, {"m", "4"})),
              AllOf(HasSubstr("nn.gather"), HasSubstr("nn.dims = [\"m\", 4]")));
  EXPECT_THAT(Importer().text(byQuotients({"n", "4"}, {"m", "4"}, "like")),
              HasSubstr("nn.dims = [\"n\", 4]"));
  ModelBuilder other = byQuotients({"n", "4"}, {"m", "4"}, "else");
  other.input("else", TensorProto::FLOAT, {"k", "4"});
  EXPECT_THAT(Importer().text(other), HasSubstr("the scale of each dim (input 2) depends on run-time data"));
}

TEST(ImportResize, WhatNeedsNumbers) {
  auto refused = [](const ModelBuilder &b, const std::string &text) {
    EXPECT_THAT(Importer().text(b), AllOf(StartsWith("error: "), Not(HasSubstr("\n")), HasSubstr(text)));
  };
  ModelBuilder smooth = graphOf({"n", "4"}, {"m", "4"});
  ModelBuilder::attribute(resize(smooth, {"linear", "half_pixel"}, "", "sizes"), "antialias", 1);
  refused(smooth,
          "antialias without exclude_outside needs sizes that are numbers: dim 0 goes from 'n' to 'm'");
  ModelBuilder kept = graphOf({"n", "4"}, {"m", "4"});
  ModelBuilder::attribute(resize(kept, {"linear", "half_pixel"}, "", "sizes"), "keep_aspect_ratio_policy",
                          std::string("not_larger"));
  refused(kept, "keep_aspect_ratio_policy needs sizes that are numbers");
  ModelBuilder cropped = graphOf({"n", "4"}, {"m", "4"});
  floats(cropped, "part", {0, 0, 1, 1});
  resize(cropped, {"linear", "tf_crop_and_resize"}, "", "sizes").set_input(1, "part");
  refused(cropped, "tf_crop_and_resize needs sizes that are numbers: dim 0 goes from 'n' to 'm'");
  refused(byScales({"n", "4"}, {0.3F, 1}, {"linear", "half_pixel"}),
          "dim 0 has 'n' elements and a scale of 0.3");
  refused(toSizes({"0", "4"}, {"m", "4"}, {"nearest", "asymmetric"}), "dim 0 has no elements");
}

/// The result of x, [rows, columns] of any numbers.
std::vector<float> run(const ModelBuilder &b, const Shape &x, const Shape &like) {
  Importer importer;
  const std::string path = importer.folder / "model.onnx";
  writeFile(path, b.model.SerializeAsString());
  auto module = importer.import(path);
  EXPECT_TRUE(module) << module.error().message;
  if (!module)
    return {};
  std::vector<float> values;
  for (int64_t i = 0; i < elementCount(x); ++i)
    values.push_back(static_cast<float>(std::sin(i * i)));
  NamedTensors inputs = {{"x", Tensor::of<float>(DType::F32, x, values)}};
  if (!like.empty())
    inputs.emplace("like", Tensor::zeros(DType::F32, like));
  auto interpreter = Interpreter::create((*module)->lookupSymbol<mlir::func::FuncOp>("main"), path);
  EXPECT_TRUE(interpreter) << interpreter.error().message;
  auto outputs = interpreter->run(inputs);
  EXPECT_TRUE(outputs) << outputs.error().message;
  return outputs ? outputs->at("y").toFloats() : std::vector<float>();
}

Dims text(const Shape &shape) { return {std::to_string(shape[0]), std::to_string(shape[1])}; }

std::vector<Mode> modes() {
  std::vector<Mode> all;
  for (const char *coordinates :
       {"half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric"}) {
    for (const char *rounding : {"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"})
      all.push_back({"nearest", coordinates, rounding});
    all.push_back({"linear", coordinates});
    all.push_back({"cubic", coordinates});
    all.push_back({"cubic", coordinates, "floor", true});
    all.push_back({"linear", coordinates, "floor", true, true});
    all.push_back({"cubic", coordinates, "floor", true, true});
  }
  all.push_back({"nearest", "tf_half_pixel_for_nn"});
  return all;
}

std::string nameOf(const Mode &how) {
  return how.mode + ", " + how.coordinates + ", " + how.rounding + (how.antialias ? ", antialias" : "");
}

// Of two neighbours as near, constant tables of doubles may choose the other: scales are powers of two here,
// or few bits.
TEST(ImportResize, SizesOfSymbolsAreAsNumbers) {
  const std::vector<std::pair<Shape, Shape>> sizes = {
      {{8, 6}, {16, 9}}, {{8, 4}, {3, 5}}, {{16, 1}, {1, 4}}, {{12, 3}, {9, 3}}, {{32, 2}, {20, 7}}};
  for (const Mode &how : modes())
    for (const auto &[from, to] : sizes)
      EXPECT_THAT(
          run(toSizes({"a", "b"}, {"c", "d"}, how), from, to),
          testing::Pointwise(testing::FloatNear(1e-5F), run(toSizes(text(from), text(to), how), from, to)))
          << nameOf(how) << " from " << shapeString(from) << " to " << shapeString(to);
}

TEST(ImportResize, ScalesOfSymbolsAreAsNumbers) {
  const std::vector<std::pair<Shape, std::vector<float>>> scales = {
      {{8, 6}, {2, 1.5F}}, {{6, 5}, {0.5F, 3}}, {{9, 3}, {0.375F, 0.5F}}};
  for (const Mode &how : modes())
    for (const auto &[from, by] : scales)
      EXPECT_THAT(run(byScales({"a", "b"}, by, how), from, {}),
                  testing::Pointwise(testing::FloatNear(1e-5F), run(byScales(text(from), by, how), from, {})))
          << nameOf(how) << " from " << shapeString(from) << " by " << by[0] << " and " << by[1];
}

TEST(ImportResize, SizesThatAreNoPowersWeighAsNumbers) {
  const Shape from = {7, 30}, to = {11, 13};
  for (const Mode &how : modes())
    if (how.mode != "nearest")
      EXPECT_THAT(
          run(toSizes({"a", "b"}, {"c", "d"}, how), from, to),
          testing::Pointwise(testing::FloatNear(1e-5F), run(toSizes(text(from), text(to), how), from, to)))
          << nameOf(how);
}

/// What onnxruntime 1.32 chooses: 2 / f32(4 / 14) is below 7, and 0.5 / f32(1 / 14) - 0.5 is as good as 6.5.
TEST(ImportResize, NeighboursAsNear) {
  auto chosen = [](int64_t to, const Mode &how) {
    return run(toSizes({"n", "1"}, {"m", "1"}, how), {14, 1}, {to, 1})[to / 2];
  };
  EXPECT_EQ(chosen(4, {"nearest", "asymmetric", "floor"}), static_cast<float>(std::sin(6 * 6)));
  EXPECT_EQ(chosen(1, {"nearest", "half_pixel", "round_prefer_ceil"}), static_cast<float>(std::sin(7 * 7)));
  EXPECT_EQ(chosen(1, {"nearest", "half_pixel", "round_prefer_floor"}), static_cast<float>(std::sin(6 * 6)));
}

} // namespace
} // namespace fusion::test
