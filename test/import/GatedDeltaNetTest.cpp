// com.microsoft GatedDeltaNet and what exporters put beside it.
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

/// 2 heads of queries and keys of 4, 4 heads of values of 8; `inputs` name what stands at each place.
ModelBuilder deltaNet(const std::vector<std::string> &inputs,
                      const std::vector<std::string> &outputs = {"y", "present"}) {
  ModelBuilder b(24);
  b.importDomain(microsoft, 1);
  b.input("q", TensorProto::FLOAT16, {"b", "t", "2", "4"})
      .input("k", TensorProto::FLOAT16, {"b", "t", "2", "4"});
  b.input("v", TensorProto::FLOAT16, {"b", "t", "4", "8"})
      .input("state", TensorProto::FLOAT, {"b", "4", "8", "4"});
  b.input("packed", TensorProto::FLOAT16, {"b", "t", "48"})
      .input("ragged", TensorProto::FLOAT16, {"t", "48"});
  b.input("g", TensorProto::FLOAT16, {"b", "t", "4"}).input("beta", TensorProto::FLOAT16, {"b", "t", "4"});
  b.input("wide", TensorProto::FLOAT, {"b", "t", "4", "4"}).input("log", TensorProto::FLOAT, {"4"});
  b.input("bias", TensorProto::FLOAT, {"4"}).input("biases", TensorProto::FLOAT, {"16"});
  b.input("lengths", TensorProto::INT32, {"n"});
  for (const std::string &name : outputs)
    b.output(name);
  b.node("GatedDeltaNet", inputs, outputs, microsoft);
  return b;
}

TEST(GatedDeltaNet, Rules) {
  const std::string types =
      "(tensor<?x2x?x4xf16>, tensor<?x2x?x4xf16>, tensor<?x4x?x8xf16>, tensor<?x4x4x8xf32>, "
      "tensor<?x4x?x1xf32>, tensor<?x4x?x1xf32>) -> (tensor<?x4x?x8xf16>, tensor<?x4x4x8xf32>)";
  const std::vector<std::string> full = {"q", "k", "v", "", "g", "beta", "state", "log", "bias"};
  EXPECT_THAT(Importer().text(deltaNet(full)),
              AllOf(HasSubstr("scale = 5.000000e-01"), HasSubstr(types), Not(HasSubstr("nn.softplus"))));
  EXPECT_THAT(Importer().text(deltaNet({"packed", "", "", "", "g", "beta", "state"})),
              AllOf(HasSubstr("nn.slice"), HasSubstr(types)));
  // Gates, rates and lengths are taken in f32.
  ModelBuilder gated = deltaNet(full);
  auto &node = *gated.graph().mutable_node(0);
  ModelBuilder::attribute(node, "gate_activation", std::string("softplus"));
  ModelBuilder::attribute(node, "beta_activation", std::string("sigmoid"));
  ModelBuilder::attribute(node, "qk_l2_norm", int64_t(1));
  EXPECT_THAT(Importer().text(gated),
              AllOf(HasSubstr("nn.softplus"), HasSubstr("nn.sigmoid"), HasSubstr("nn.rsqrt"),
                    HasSubstr("(tensor<?x2x?x4xf32>, tensor<?x2x?x4xf32>, tensor<?x4x?x8xf16>")));
  // A decay for each element of a key.
  ModelBuilder bounded = deltaNet({"q", "k", "v", "", "wide", "beta", "state", "log", "biases"});
  ModelBuilder::attribute(*bounded.graph().mutable_node(0), "gate_activation", std::string("kda"));
  EXPECT_THAT(Importer().text(bounded), AllOf(HasSubstr("-5.0"), HasSubstr("tensor<?x4x?x4xf32>")));
}

TEST(GatedDeltaNet, ThatCannotBe) {
  auto fails = [](const ModelBuilder &b, const std::string &text) {
    EXPECT_THAT(Importer().text(b), AllOf(StartsWith("error: "), HasSubstr(text)));
  };
  fails(deltaNet({"q", "k", "v", "", "g"}), "are not what update_rule 'gated_delta' takes");
  fails(deltaNet({"q", "k", "v", "lengths", "g", "beta", "state"}), "cu_seqlens (input 3) beside a batch");
  fails(deltaNet({"q", "k", "v", "", "g", "beta", "state"}, {"y", "present", "update"}),
        "state_update_capacity is not supported");
  fails(deltaNet({"packed", "", "", "", "g", "beta"}), "need initial_state (input 6)");
  fails(deltaNet({"ragged", "", "", "", "g", "beta", "state"}), "tokens do not divide into b sequences");
  ModelBuilder gated = deltaNet({"q", "k", "v", "", "g", "beta", "state"});
  ModelBuilder::attribute(*gated.graph().mutable_node(0), "gate_activation", std::string("softplus"));
  fails(gated, "needs a_log and dt_bias");
}

TEST(GatedDeltaNet, GatesOfLinearAttention) {
  ModelBuilder b(24);
  b.importDomain(microsoft, 1);
  b.input("a", TensorProto::FLOAT16, {"b", "t", "4"}).input("bias", TensorProto::FLOAT, {"4"});
  b.input("scale", TensorProto::FLOAT, {"4"}).input("r", TensorProto::FLOAT16, {"b", "t", "4"});
  b.output("decay").output("beta");
  ModelBuilder alone = b;
  b.node("LinearAttentionGate", {"a", "bias", "scale", "r"}, {"decay", "beta"}, microsoft);
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr("nn.softplus %"), HasSubstr("nn.sigmoid"), HasSubstr("f32"),
                                        HasSubstr("tensor<?x?x4xf16>")));
  alone.node("LinearAttentionGate", {"a", "bias", "scale"}, {"decay", "beta"}, microsoft);
  EXPECT_THAT(Importer().text(alone), HasSubstr("output 1 needs b (input 3)"));
}

TEST(GatedDeltaNet, GatedRMSNorm) {
  ModelBuilder b(24);
  b.importDomain(microsoft, 1);
  b.input("x", TensorProto::FLOAT16, {"b", "t", "24"}).input("w", TensorProto::FLOAT16, {"8"});
  b.input("z", TensorProto::FLOAT16, {"b", "t", "24"}).output("y");
  auto &node = b.node("GatedRMSNorm", {"x", "w", "z"}, {"y"}, microsoft);
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr("nn.rms_norm"), HasSubstr("tensor<?x?x3x8xf32>"),
                                        HasSubstr("scale_in = f32"), HasSubstr("nn.silu")));
  ModelBuilder::attribute(node, "activation", std::string("gelu"));
  EXPECT_THAT(Importer().text(b), HasSubstr("activation 'gelu' is none of silu, swish and sigmoid"));
}

TEST(GatedDeltaNet, GatedAdd) {
  ModelBuilder b(24);
  b.importDomain(microsoft, 1);
  b.input("x", TensorProto::BFLOAT16, {"b", "t", "8"}).input("y", TensorProto::BFLOAT16, {"b", "t", "8"});
  b.input("gate", TensorProto::BFLOAT16, {"b", "t", "1"}).input("h", TensorProto::BFLOAT16, {"b", "t", "8"});
  b.input("w", TensorProto::BFLOAT16, {"8", "1"}).output("z");
  b.input("one", TensorProto::BFLOAT16, {});
  ModelBuilder projected = b, wide = b, scalar = b;
  b.node("GatedAdd", {"x", "y", "gate"}, {"z"}, microsoft);
  EXPECT_THAT(Importer().text(b),
              AllOf(HasSubstr("nn.mul"), HasSubstr("nn.add"), Not(HasSubstr("nn.matmul"))));
  projected.node("GatedAdd", {"x", "y", "h", "w"}, {"z"}, microsoft);
  EXPECT_THAT(Importer().text(projected), AllOf(HasSubstr("nn.matmul"), HasSubstr("nn.sigmoid")));
  wide.node("GatedAdd", {"x", "y", "h"}, {"z"}, microsoft);
  EXPECT_THAT(Importer().text(wide), HasSubstr("is not one for each row"));
  scalar.node("GatedAdd", {"x", "y", "one"}, {"z"}, microsoft);
  EXPECT_THAT(Importer().text(scalar), HasSubstr("is not one for each row"));
}

ModelBuilder streams(std::vector<int64_t> sections, int64_t layout, const std::string &leading = "3") {
  ModelBuilder b(24);
  b.importDomain(microsoft, 1);
  b.input("x", TensorProto::FLOAT16, {"b", "t", "32"}).input("ids", TensorProto::INT64, {leading, "b", "t"});
  b.input("cos", TensorProto::FLOAT16, {"64", "8"}).input("sin", TensorProto::FLOAT16, {"64", "8"});
  b.output("y");
  auto &node = b.node("MRotaryEmbedding", {"x", "ids", "cos", "sin"}, {"y"}, microsoft);
  ModelBuilder::attribute(node, "mrope_section", sections);
  ModelBuilder::attribute(node, "mrope_layout", layout);
  return b;
}

TEST(GatedDeltaNet, RotationByThreePositions) {
  EXPECT_THAT(
      Importer().text(streams({4, 2, 2}, 0)),
      AllOf(HasSubstr("nn.rope"), HasSubstr("nn.where"), HasSubstr("dense<[0, 0, 0, 0, 1, 1, 2, 2]>")));
  EXPECT_THAT(Importer().text(streams({5, 2, 1}, 1)), HasSubstr("dense<[0, 1, 2, 0, 1, 0, 0, 0]>"));
  EXPECT_THAT(Importer().text(streams({8, 0, 0}, 0)), Not(HasSubstr("nn.where"))); // one position
  EXPECT_THAT(Importer().text(streams({4, 2, 1}, 0)), HasSubstr("does not divide tables of width 8"));
  EXPECT_THAT(Importer().text(streams({4, 2, 2}, 2)), HasSubstr("mrope_layout is 2"));
  EXPECT_THAT(Importer().text(streams({4, 2, 2}, 0, "2")), HasSubstr("are not [3, batch, sequence]"));
}

} // namespace
} // namespace fusion::test
