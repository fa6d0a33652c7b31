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
  EXPECT_THAT(Importer().text(contribModel("AllGather", {"x"})), Not(HasSubstr("nn.all_reduce")))
      << "of one rank";
}

// torch.onnx spells a norm without a weight as one whose scale is a one expanded to the shape of x.
TEST(Contrib, ScalesThatDifferFromRowToRow) {
  ModelBuilder b(23);
  b.input("x", TensorProto::FLOAT, {"n", "4"}).input("s", TensorProto::FLOAT, {"n", "4"}).output("y");
  b.node("RMSNormalization", {"x", "s"}, {"y"});
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr("nn.rms_norm"), HasSubstr("nn.mul")));
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
              AllOf(HasSubstr("nn.mesh = {tp = 2 : i64}"), HasSubstr("tp_rank"), HasSubstr("nn.where"),
                    HasSubstr("tensor<?x8xf16>"), HasSubstr("nn.all_reduce")));
  EXPECT_THAT(Importer().text(model(3, 0)), HasSubstr("nn.concat"));
  EXPECT_THAT(Importer().text(model(0, 0)), HasSubstr("group_size is 0"));
  EXPECT_THAT(Importer().text(model(2, 2)), AllOf(StartsWith("error: "), HasSubstr("axis")));
  EXPECT_THAT(Importer().text(model(2, 0, TensorProto::BOOL)), HasSubstr("gathering booleans"));
}

void textAttribute(proto::NodeProto &node, const std::string &name, const std::string &value) {
  auto &attribute = ModelBuilder::attribute(node, name, 0);
  attribute.set_type(proto::AttributeProto::STRING);
  attribute.set_s(value);
}

/// A MoE node, or a QMoE node with weights of 4 bits, of three experts.
ModelBuilder routedModel(const std::string &op, const std::string &attribute, const std::string &value) {
  ModelBuilder b(17);
  b.importDomain(microsoft, 1);
  b.input("x", TensorProto::FLOAT, {"n", "4"}).input("r", TensorProto::FLOAT, {"n", "3"}).output("y");
  b.input("w1", TensorProto::FLOAT, {"3", "8", "4"}).input("w2", TensorProto::FLOAT, {"3", "4", "8"});
  const bool quantised = op == "QMoE";
  auto &node = b.node(op, quantised ? std::vector<std::string>{"x", "r", "w1", "s1", "", "w2", "s2"}
                                    : std::vector<std::string>{"x", "r", "w1", "", "w2"},
                      {"y"}, microsoft);
  if (quantised)
    b.input("s1", TensorProto::FLOAT, {"3", "8"}).input("s2", TensorProto::FLOAT, {"3", "4"});
  textAttribute(node, attribute, value);
  return b;
}

TEST(Contrib, RoutedExpertsThatAreNotTakenSayWhy) {
  EXPECT_THAT(Importer().text(routedModel("MoE", "activation_type", "relu")),
              AllOf(HasSubstr("nn.expert_matmul"), HasSubstr("nn.top_k"), Not(HasSubstr("error"))));
  EXPECT_THAT(Importer().text(routedModel("MoE", "activation_type", "tanh")),
              HasSubstr("activation_type 'tanh' is not supported"));
  EXPECT_THAT(Importer().text(routedModel("MoE", "activation_type", "swiglu")),
              HasSubstr("activation_type 'swiglu' needs swiglu_fusion or a third weight"));
  EXPECT_THAT(Importer().text(routedModel("QMoE", "quant_type", "fp4")),
              HasSubstr("experts of quant_type 'fp4' without their scales"));
  EXPECT_THAT(Importer().text(routedModel("QMoE", "quant_type", "wfp4afp8")),
              HasSubstr("quant_type 'wfp4afp8' is none of int, fp4, nvfp4 and fp8"));
  EXPECT_THAT(Importer().text(routedModel("QMoE", "activation_type", "silu")),
              HasSubstr("is not an initializer"));
}

/// Halves of a product are columns of it, which its kernel has beside each other. Behind a cast they are
/// none.
TEST(Contrib, HalvesOfExpertsAreThoseOfTheProduct) {
  ModelBuilder b(17);
  b.importDomain(microsoft, 1);
  b.input("x", TensorProto::FLOAT16, {"n", "4"}).input("r", TensorProto::FLOAT16, {"n", "3"}).output("y");
  b.input("w1", TensorProto::FLOAT16, {"3", "8", "4"}).input("w2", TensorProto::FLOAT16, {"3", "4", "4"});
  auto &node = b.node("MoE", {"x", "r", "w1", "", "w2"}, {"y"}, microsoft);
  textAttribute(node, "activation_type", "swiglu");
  ModelBuilder::attribute(node, "swiglu_fusion", 1);
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr("(tensor<?x1x8xf16>) -> tensor<?x1x4xf16>"),
                                        HasSubstr("nn.silu"), Not(HasSubstr("tensor<?x1x8xf32>"))));
}

/// Many indices: single elements by nn.scatter_nd, and no reduction.
TEST(Contrib, ScatterOfManyElements) {
  auto model = [](const std::string &reduction) {
    ModelBuilder b(18);
    b.input("x", TensorProto::FLOAT, {"n", "4"}).input("i", TensorProto::INT64, {"n", "4"});
    b.input("u", TensorProto::FLOAT, {"n", "4"}).output("y");
    textAttribute(b.node("ScatterElements", {"x", "i", "u"}, {"y"}), "reduction", reduction);
    return b;
  };
  EXPECT_THAT(Importer().text(model("none")), HasSubstr("nn.scatter_nd"));
  EXPECT_THAT(Importer().text(model("add")),
              AllOf(HasSubstr("nn.scatter_reduce"), HasSubstr("kind = \"add\"")));
  EXPECT_THAT(Importer().text(model("mean")), HasSubstr("reduction 'mean' is not supported"));
}

/// A row of a cache: no search for the first of several updates of a place.
TEST(Contrib, ScatterOfOneUpdateIsASelection) {
  ModelBuilder b(18);
  b.input("x", TensorProto::FLOAT, {"n", "8", "4"}).input("i", TensorProto::INT64, {"n", "1", "4"});
  b.input("u", TensorProto::FLOAT, {"n", "1", "4"}).output("y");
  proto::AttributeProto *axis = b.node("ScatterElements", {"x", "i", "u"}, {"y"}).add_attribute();
  axis->set_name("axis");
  axis->set_type(proto::AttributeProto::INT);
  axis->set_i(1);
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr("nn.where"), Not(HasSubstr("nn.arg_max"))));
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

/// Behind the node as long as before it: the new tokens are written into it.
TEST(Contrib, CachesOfFullCapacity) {
  EXPECT_THAT(Importer().text(decodingStep("16", "16")),
              HasSubstr("nn.cache_write %arg3, %3, %16 {axis = 2 : i64} :"));
  ModelBuilder b = decodingStep("past", "total");
  b.graph().mutable_node(3)->set_input(6, "given"); // a length that only the run knows
  b.input("given", TensorProto::INT32, {});
  EXPECT_THAT(Importer().text(b), AllOf(StartsWith("error: "), HasSubstr("total_sequence_length (input 6)"),
                                        HasSubstr("run-time data")));
}

/// Declared to grow, given as buffers.
TEST(Contrib, SharedCaches) {
  ImportOptions shared;
  shared.sharedCaches = true;
  const std::string text = Importer().text(decodingStep("past", "total"), shared);
  EXPECT_THAT(text, AllOf(HasSubstr("nn.cache_write"), Not(HasSubstr("grows"))));
  EXPECT_THAT(Importer().text(decodingStep("past", "total")), HasSubstr("grows"));
}

ModelBuilder decodingStepWith(const std::string &name, int64_t value) {
  ModelBuilder b = decodingStep("past", "total");
  ModelBuilder::attribute(*b.graph().mutable_node(3), name, value);
  return b;
}

TEST(Contrib, CachesOfAWindow) {
  ModelBuilder b = decodingStepWith("sliding_window_cache", 1);
  EXPECT_THAT(Importer().text(b), HasSubstr("sliding_window_cache needs local_window_size and caches"));
  ModelBuilder::attribute(*b.graph().mutable_node(3), "local_window_size", 4);
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr("nn.gather_elements"), HasSubstr("past - 3")));
}

TEST(Contrib, RefusedAttention) {
  auto with = decodingStepWith;
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
  EXPECT_THAT(Importer().text(b),
              HasSubstr("input 'mean' is an output of 'node_y' "
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

/// What masked keys get counts where there is a mask; exporters write it without one, too.
TEST(Contrib, AttentionWithoutTheMaskThatItFilters) {
  for (const bool isMasked : {false, true}) {
    ModelBuilder b(17);
    b.importDomain(microsoft, 1);
    b.input("x", TensorProto::FLOAT, {"b", "t", "8"}).input("w", TensorProto::FLOAT, {"8", "24"});
    b.input("bias", TensorProto::FLOAT, {"24"}).input("mask", TensorProto::INT32, {"b", "t"}).output("y");
    auto &node = b.node("Attention", {"x", "w", "bias", isMasked ? "mask" : ""}, {"y"}, microsoft);
    ModelBuilder::attribute(node, "num_heads", int64_t(2));
    auto *value = node.add_attribute();
    value->set_name("mask_filter_value");
    value->set_type(proto::AttributeProto::FLOAT);
    value->set_f(-512);
    const auto filters = HasSubstr("-5.120000e+02");
    const std::string text = Importer().text(b);
    EXPECT_THAT(text, HasSubstr("nn.attention"));
    EXPECT_EQ(testing::Value(text, filters), isMasked) << text;
  }
}

/// 2 heads of queries and keys of 4, 4 heads of values of 8.
ModelBuilder linearAttention(const std::string &domain, const std::string &rule,
                             std::vector<std::string> optional = {"past", "g", "beta"}) {
  ModelBuilder b(domain.empty() ? 27 : 24);
  if (!domain.empty())
    b.importDomain(domain, 1);
  b.input("q", TensorProto::FLOAT16, {"b", "t", "8"}).input("k", TensorProto::FLOAT16, {"b", "t", "8"});
  b.input("v", TensorProto::FLOAT16, {"b", "t", "32"})
      .input("past", TensorProto::FLOAT, {"b", "4", "4", "8"});
  b.input("g", TensorProto::FLOAT16, {"b", "t", "4"}).input("beta", TensorProto::FLOAT16, {"b", "t", "1"});
  b.output("y").output("present");
  std::vector<std::string> inputs = {"q", "k", "v"};
  inputs.insert(inputs.end(), optional.begin(), optional.end());
  auto &node = b.node("LinearAttention", inputs, {"y", "present"}, domain);
  ModelBuilder::attribute(node, "q_num_heads", int64_t(2));
  ModelBuilder::attribute(node, "kv_num_heads", int64_t(4));
  ModelBuilder::attribute(node, "update_rule", rule);
  return b;
}

TEST(Contrib, LinearAttention) {
  EXPECT_THAT(
      Importer().text(linearAttention(microsoft, "gated_delta")),
      AllOf(HasSubstr("nn.linear_attention"), HasSubstr("scale = 5.000000e-01"),
            HasSubstr("array<i32: 1, 1, 1, 1, 1, 1>"),
            HasSubstr(
                "(tensor<?x2x?x4xf16>, tensor<?x2x?x4xf16>, tensor<?x4x?x8xf16>, tensor<?x4x4x8xf32>, "
                "tensor<?x4x?x1xf16>, tensor<?x1x?x1xf16>) -> (tensor<?x4x?x8xf16>, tensor<?x4x4x8xf32>)")));
  // What a rule does not use is left out; without a past the state begins as zeros.
  EXPECT_THAT(Importer().text(linearAttention(microsoft, "linear")),
              HasSubstr("array<i32: 1, 1, 1, 1, 0, 0>"));
  EXPECT_THAT(Importer().text(linearAttention(microsoft, "gated", {"", "g"})),
              AllOf(HasSubstr("array<i32: 1, 1, 1, 1, 1, 0>"), HasSubstr("nn.expand"),
                    HasSubstr("tensor<?x4x4x8xf16>")));
}

TEST(Contrib, LinearAttentionThatCannotBe) {
  auto fails = [](ModelBuilder b, const std::string &text) {
    EXPECT_THAT(Importer().text(b), AllOf(StartsWith("error: "), HasSubstr(text)));
  };
  fails(linearAttention(microsoft, "softmax"),
        "update_rule 'softmax' is none of linear, gated, delta and gated_delta");
  fails(linearAttention("", "gated", {"past"}), "update_rule 'gated' needs decay (input 4)");
  fails(linearAttention("", "delta", {"past", "g"}), "update_rule 'delta' needs beta (input 5)");
  ModelBuilder windowed = linearAttention(microsoft, "gated_delta");
  ModelBuilder::attribute(*windowed.graph().mutable_node(0), "state_window", int64_t(2));
  fails(windowed, "state_window is not supported");
  ModelBuilder headless = linearAttention(microsoft, "gated_delta");
  headless.graph().mutable_node(0)->mutable_attribute(1)->set_i(0);
  fails(headless, "needs q_num_heads and kv_num_heads");
  ModelBuilder uneven = linearAttention(microsoft, "gated_delta");
  uneven.graph().mutable_node(0)->mutable_attribute(1)->set_i(3);
  fails(uneven, "LinearAttention");
}

/// A function of that name in the file, whose body is a Scan, is not looked at.
TEST(Contrib, LinearAttentionBeforeAFunction) {
  ModelBuilder b = linearAttention(microsoft, "gated_delta");
  auto *function = b.model.add_functions();
  function->set_domain(microsoft);
  function->set_name("LinearAttention");
  function->add_input("query");
  function->add_output("output");
  auto *node = function->add_node();
  node->set_op_type("Scan");
  node->add_output("output");
  EXPECT_THAT(Importer().text(b), HasSubstr("nn.linear_attention"));
}

ModelBuilder causalConv(const std::vector<std::string> &inputs) {
  ModelBuilder b(24);
  b.importDomain(microsoft, 1);
  b.input("x", TensorProto::FLOAT16, {"b", "6", "t"}).input("past", TensorProto::FLOAT16, {"b", "6", "3"});
  b.input("w", TensorProto::FLOAT16, {"6", "1", "4"}).input("bias", TensorProto::FLOAT16, {"6"});
  b.output("y").output("present");
  b.node("CausalConvWithState", inputs, {"y", "present"}, microsoft);
  return b;
}

TEST(Contrib, CausalConvWithState) {
  ModelBuilder full = causalConv({"x", "w", "bias", "past"});
  ModelBuilder::attribute(*full.graph().mutable_node(0), "activation", std::string("silu"));
  EXPECT_THAT(Importer().text(full),
              AllOf(HasSubstr("nn.concat"), HasSubstr("nn.silu"), HasSubstr("tensor<?x6x3xf16>")));
  EXPECT_THAT(Importer().text(causalConv({"x", "w"})), AllOf(HasSubstr("nn.pad"), Not(HasSubstr("nn.silu"))));
  ModelBuilder unknown = full;
  unknown.graph().mutable_node(0)->mutable_attribute(0)->set_s("relu");
  EXPECT_THAT(Importer().text(unknown), HasSubstr("activation 'relu' is none of none, silu and swish"));
  ModelBuilder windowed = full;
  ModelBuilder::attribute(*windowed.graph().mutable_node(0), "state_window", int64_t(1));
  EXPECT_THAT(Importer().text(windowed), HasSubstr("state_window is not supported"));
  EXPECT_THAT(Importer().text(causalConv({"x", "w", "bias", "x"})), HasSubstr("a past state of"));
}

} // namespace
} // namespace fusion::test
