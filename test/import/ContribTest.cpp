// Contrib ops and attention: what the values of node tests do not show.
#include "ModelBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusion::test {
namespace {

using proto::TensorProto;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string microsoft = "com.microsoft";

ModelBuilder contribModel(const std::string &op, const std::vector<std::string> &inputs) {
  ModelBuilder b(17);
  b.importDomain(microsoft, 1);
  b.input("x", TensorProto::FLOAT16, {"n", "4"}).output("y");
  b.node(op, inputs, {"y"}, microsoft);
  return b;
}

TEST(Contrib, Collectives) {
  EXPECT_THAT(Importer().text(contribModel("AllReduce", {"x"})), HasSubstr("nn.all_reduce"));
  EXPECT_THAT(Importer().text(contribModel("AllGather", {"x"})), Not(HasSubstr("nn.all_reduce"))) << "of one rank";
}

TEST(Contrib, WhatOthersGatherIsAddedAsZeros) {
  auto model = [](int64_t ranks, int64_t axis, TensorProto::DataType type = TensorProto::FLOAT16) {
    ModelBuilder b(17);
    b.importDomain(microsoft, 1);
    b.input("x", type, {"n", "4"}).output("y");
    auto &node = b.node("AllGather", {"x"}, {"y"}, microsoft);
    ModelBuilder::attribute(node, "group_size", ranks);
    ModelBuilder::attribute(node, "axis", axis);
    return b;
  };
  EXPECT_THAT(Importer().text(model(2, -1)),
              AllOf(HasSubstr("nn.mesh = {tp = 2 : i64}"), HasSubstr("tp_rank"), HasSubstr("nn.where"), HasSubstr("tensor<?x8xf16>"), HasSubstr("nn.all_reduce")));
  EXPECT_THAT(Importer().text(model(3, 0)), HasSubstr("nn.concat"));
  EXPECT_THAT(Importer().text(model(0, 0)), HasSubstr("group_size is 0"));
  EXPECT_THAT(Importer().text(model(2, 2)), AllOf(StartsWith("error: "), HasSubstr("axis")));
  EXPECT_THAT(Importer().text(model(2, 0, TensorProto::BOOL)), HasSubstr("gathering booleans"));
}

/// The contrib norms stay in f32 until their end, ONNX's own round before the scale.
TEST(Contrib, NormsRoundOnce) {
  ModelBuilder b = contribModel("SkipSimplifiedLayerNormalization", {"x", "x", "w"});
  b.input("w", TensorProto::FLOAT16, {"4"});
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr("nn.add"), HasSubstr("scale_in = f32")));
  ModelBuilder plain(23);
  plain.input("x", TensorProto::FLOAT16, {"n", "4"}).input("w", TensorProto::FLOAT16, {"4"}).output("y");
  plain.node("RMSNormalization", {"x", "w"}, {"y"});
  EXPECT_THAT(Importer().text(plain), AllOf(HasSubstr("nn.rms_norm"), Not(HasSubstr("scale_in"))));
}

/// A decoding step: cache of `past`, total length of `total`, each a number or a symbol.
ModelBuilder decodingStep(const std::string &past, const std::string &total, const std::string &batch = "b") {
  ModelBuilder b(17);
  b.importDomain(microsoft, 1);
  for (const char *name : {"q", "k", "v"})
    b.input(name, TensorProto::FLOAT16, {batch, "1", "32"});
  for (const char *name : {"past_key", "past_value"})
    b.input(name, TensorProto::FLOAT16, {batch, "2", past, "16"});
  b.input("lengths", TensorProto::INT32, {batch}).input("mask", TensorProto::INT64, {batch, total});
  b.output("y").output("key").output("value");
  b.ints("one", {1}, true);
  b.node("Shape", {"mask"}, {"shape"});
  b.node("Gather", {"shape", "one"}, {"size"});
  ModelBuilder::attribute(b.node("Cast", {"size"}, {"total"}), "to", TensorProto::INT32);
  auto &node = b.node("GroupQueryAttention", {"q", "k", "v", "past_key", "past_value", "lengths", "total"},
                      {"y", "key", "value"}, microsoft);
  ModelBuilder::attribute(node, "num_heads", 2);
  ModelBuilder::attribute(node, "kv_num_heads", 2);
  return b;
}

TEST(Contrib, CachesThatGrow) {
  EXPECT_THAT(Importer().text(decodingStep("past", "total")), HasSubstr("nn.attention"));
  EXPECT_THAT(Importer().text(decodingStep("15", "16")), HasSubstr("nn.attention"));
  // One entry has no padding between past and new: the plain form.
  EXPECT_THAT(
      Importer().text(decodingStep("past", "total", "1")),
      AllOf(HasSubstr("causal = true"), HasSubstr("nn.concat"), Not(HasSubstr("nn.gather_elements"))));
}

TEST(Contrib, SharedCacheBuffersAreRefused) {
  EXPECT_THAT(Importer().text(decodingStep("16", "16")), HasSubstr("shared buffer"));
  ModelBuilder b = decodingStep("past", "total");
  b.graph().mutable_node(3)->set_input(6, "given"); // a length that only the run knows
  b.input("given", TensorProto::INT32, {});
  EXPECT_THAT(Importer().text(b), AllOf(StartsWith("error: "), HasSubstr("total_sequence_length (input 6)"),
                                        HasSubstr("run-time data")));
}

TEST(Contrib, RefusedAttention) {
  auto with = [](const std::string &name, int64_t value) {
    ModelBuilder b = decodingStep("past", "total");
    ModelBuilder::attribute(*b.graph().mutable_node(3), name, value);
    return b;
  };
  EXPECT_THAT(Importer().text(with("sliding_window_cache", 1)), HasSubstr("sliding_window_cache"));
  EXPECT_THAT(Importer().text(with("qk_output", 1)), HasSubstr("qk_output"));
  // What a later version of an op says may change what it computes.
  EXPECT_THAT(Importer().text(with("frobnicate", 1)), HasSubstr("attribute 'frobnicate' is not supported"));
  EXPECT_THAT(Importer().text(with("causal", 1)), HasSubstr("nn.attention"));
}

/// Nobody reads the output that the importer does not make.
TEST(Contrib, OutputsThatAreNotMadeAreErrorsForTheirReaders) {
  ModelBuilder b = contribModel("SkipSimplifiedLayerNormalization", {"x", "x", "w"});
  b.input("w", TensorProto::FLOAT16, {"4"});
  b.graph().mutable_node(0)->add_output("mean");
  EXPECT_THAT(Importer().text(b), HasSubstr("nn.rms_norm"));
  b.output("z");
  b.node("Neg", {"mean"}, {"z"});
  EXPECT_THAT(Importer().text(b), HasSubstr("input 'mean' is an output of 'node_y' "
                                            "(com.microsoft.SkipSimplifiedLayerNormalization) that is not supported"));
}

/// ONNX counts causality from the first key, the dialect from the last.
/// Booleans choose keys, and all other masks are added to the scores.
TEST(Attention, IntegerMasksAreAdded) {
  ModelBuilder b(23);
  for (const char *name : {"q", "k", "v"})
    b.input(name, TensorProto::FLOAT, {"batch", "4", "seq", "16"});
  b.input("mask", TensorProto::INT64, {"seq", "seq"}).output("y");
  b.node("Attention", {"q", "k", "v", "mask"}, {"y"});
  EXPECT_THAT(Importer().text(b), HasSubstr("nn.cast %arg3 : (tensor<?x?xi64>) -> tensor<?x?xf32>"));
}

TEST(Attention, CausalIsAligned) {
  auto model = [](const std::string &keys) {
    ModelBuilder b(23);
    b.input("q", TensorProto::FLOAT, {"b", "2", "s", "8"}).output("y");
    b.input("k", TensorProto::FLOAT, {"b", "2", keys, "8"})
        .input("v", TensorProto::FLOAT, {"b", "2", keys, "8"});
    ModelBuilder::attribute(b.node("Attention", {"q", "k", "v"}, {"y"}), "is_causal", 1);
    return b;
  };
  EXPECT_THAT(Importer().text(model("s")),
              AllOf(HasSubstr("causal = true"), Not(HasSubstr("nn.less_equal"))));
  EXPECT_THAT(Importer().text(model("t")),
              AllOf(Not(HasSubstr("causal = true")), HasSubstr("nn.less_equal")));
}

} // namespace
} // namespace fusion::test
