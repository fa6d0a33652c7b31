// Weights, functions, branches, constants, order and locations.
#include "ModelBuilder.h"

#include "ir/dialect/Types.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusion::test {
namespace {

using proto::AttributeProto;
using proto::TensorProto;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

ModelBuilder vectorModel() {
  ModelBuilder b(18);
  b.input("x", TensorProto::FLOAT, {"n", "40"}).output("y");
  return b;
}

TEST(ImportStructure, EmbeddedWeightsStayInTheFile) {
  Importer importer;
  ModelBuilder b = vectorModel();
  b.weight("w", {40});
  b.node("Mul", {"x", "w"}, {"y"});
  std::string path = importer.folder / "model.onnx";
  writeFile(path, b.model.SerializeAsString());
  auto module = importer.import(path);
  ASSERT_TRUE(module) << module.error().message;
  int weights = 0;
  (**module)->walk([&](nn::WeightOp weight) {
    ++weights;
    EXPECT_EQ(weight.getPath(), "model.onnx");
    EXPECT_EQ(weight.getLength(), 160u);
    std::string bytes = readFile(path).substr(weight.getOffset(), weight.getLength());
    EXPECT_EQ(bytes, b.graph().initializer(0).raw_data());
  });
  EXPECT_EQ(weights, 1);
}

TEST(ImportStructure, ExternalWeights) {
  Importer importer;
  ModelBuilder b = vectorModel();
  b.weight("w", {40});
  b.node("Mul", {"x", "w"}, {"y"});
  auto *tensor = b.graph().mutable_initializer(0);
  tensor->clear_raw_data();
  tensor->set_data_location(TensorProto::EXTERNAL);
  for (auto [key, value] :
       {std::pair("location", "w.bin"), std::pair("offset", "64"), std::pair("length", "160")}) {
    auto *entry = tensor->add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }
  writeFile(importer.folder / "w.bin", std::string(224, '\0'));
  EXPECT_THAT(importer.text(b),
              HasSubstr(R"(length = 160 : i64, name = "w", offset = 64 : i64, path = "w.bin")"));
}

TEST(ImportStructure, SmallTensorsAreConstants) {
  ModelBuilder b(18);
  b.input("x", TensorProto::FLOAT, {"n"}).output("y");
  auto *half = b.graph().add_initializer();
  half->set_name("half");
  half->set_data_type(TensorProto::FLOAT16);
  half->add_int32_data(0x3800);
  auto *nibbles = b.graph().add_initializer();
  nibbles->set_name("nibbles");
  nibbles->set_data_type(TensorProto::INT4);
  nibbles->add_dims(3);
  nibbles->set_raw_data("\x2f\x07", 2);
  ModelBuilder::attribute(b.node("Cast", {"half"}, {"f"}), "to", TensorProto::FLOAT);
  b.node("Mul", {"x", "f"}, {"y"});
  ModelBuilder::attribute(b.node("Cast", {"nibbles"}, {"z"}), "to", TensorProto::FLOAT);
  b.output("z");
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr("dense<5.000000e-01> : tensor<f16>"),
                                        HasSubstr("tensor<3xi4>"), HasSubstr("[-1, 2, 7]")));
}

TEST(ImportStructure, NodesInAnyOrder) {
  ModelBuilder b = vectorModel();
  b.node("Relu", {"a"}, {"y"});
  b.node("Abs", {"x"}, {"a"});
  EXPECT_THAT(Importer().text(b), HasSubstr("nn.relu"));
}

TEST(ImportStructure, ConstantNodes) {
  ModelBuilder b = vectorModel();
  auto *value = b.node("Constant", {}, {"c"}).add_attribute();
  value->set_name("value_float");
  value->set_type(AttributeProto::FLOAT);
  value->set_f(2.5f);
  b.node("Mul", {"x", "c"}, {"m"});
  auto *shape = b.node("Constant", {}, {"s"}).add_attribute();
  shape->set_name("value");
  shape->set_type(AttributeProto::TENSOR);
  *shape->mutable_t() = ModelBuilder::intTensor("", {-1});
  b.node("Reshape", {"m", "s"}, {"y"});
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr("2.500000e+00"), HasSubstr(R"(shape = ["40*n"])")));
}

TEST(ImportStructure, TheBranchTakenIsInlined) {
  ModelBuilder b = vectorModel();
  b.ints("zero", {0}, true).ints("one", {1}, true);
  b.node("Less", {"zero", "one"}, {"condition"});
  auto &node = b.node("If", {"condition"}, {"chosen"});
  for (auto [name, op] : {std::pair("then_branch", "Exp"), std::pair("else_branch", "Log")}) {
    auto *attribute = node.add_attribute();
    attribute->set_name(name);
    attribute->set_type(AttributeProto::GRAPH);
    ModelBuilder::fill(*attribute->mutable_g()->add_node(), op, {"x"}, {"inner"}); // x is captured
    attribute->mutable_g()->add_output()->set_name("inner");
  }
  b.node("Relu", {"chosen"}, {"y"});
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr("nn.exp"), Not(HasSubstr("nn.log")), HasSubstr("nn.relu")));
}

/// An If on an input; each branch is one node on `x`, which is of the graph around it.
ModelBuilder branchOnData(const std::string &yes, const std::string &no) {
  ModelBuilder b = vectorModel();
  b.input("c", TensorProto::BOOL, {});
  auto &node = b.node("If", {"c"}, {"y"});
  for (const auto &[name, op] :
       {std::pair(std::string("then_branch"), yes), std::pair(std::string("else_branch"), no)}) {
    auto *attribute = node.add_attribute();
    attribute->set_name(name);
    attribute->set_type(AttributeProto::GRAPH);
    auto *graph = attribute->mutable_g();
    ModelBuilder::fill(*graph->add_node(), op,
                       op == "MatMul" ? std::vector<std::string>{"x", "x"} : std::vector<std::string>{"x"},
                       {"r"});
    graph->add_output()->set_name("r");
  }
  return b;
}

TEST(ImportStructure, CheapBranchesOnDataAreSelectedFrom) {
  EXPECT_THAT(Importer().text(branchOnData("Neg", "Abs")),
              AllOf(HasSubstr("nn.neg"), HasSubstr("nn.abs"), HasSubstr("nn.where %arg1")));
  EXPECT_THAT(Importer().text(branchOnData("Neg", "MatMul")),
              AllOf(HasSubstr("condition (input 0, 'c') depends on run-time data"),
                    HasSubstr("too much to run both")));
  EXPECT_THAT(Importer().text(branchOnData("Neg", "Shape")),
              HasSubstr("the branches give tensors of different types"));
}

/// `node`: makes the condition `c` of what inputs there are.
ModelBuilder branchOn(const std::function<void(ModelBuilder &)> &node) {
  ModelBuilder b = branchOnData("Neg", "MatMul");
  b.graph().mutable_input()->RemoveLast();
  node(b);
  return b;
}

TEST(ImportStructure, AnInputThatAloneDecidesIsNamed) {
  const std::string remedy = "too much to run both and choose; input 'flag' alone decides it: say its value "
                             "before compiling: --constant=flag=";
  auto deciding = [](const ModelBuilder &model) {
    Importer importer;
    const std::string path = importer.folder / "model.onnx";
    writeFile(path, model.model.SerializeAsString());
    std::optional<DecidingInput> found;
    EXPECT_FALSE(importOnnx(importer.context, path, {}, &found));
    return found;
  };
  const ModelBuilder inverted = branchOn([](ModelBuilder &b) {
    b.input("flag", TensorProto::BOOL, {"1"});
    b.node("Not", {"flag"}, {"not"});
    b.node("Identity", {"not"}, {"same"});
    b.node("Squeeze", {"same"}, {"c"});
  });
  EXPECT_THAT(Importer().text(inverted), HasSubstr(remedy + "1"));
  auto found = deciding(inverted);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->name, "flag");
  EXPECT_EQ(found->index, 1u);
  EXPECT_EQ(found->shape, Shape{1});
  // A number has too many values to import them all.
  const ModelBuilder number = branchOn([](ModelBuilder &b) {
    b.input("flag", TensorProto::INT64, {}).ints("two", {2}, true);
    b.node("Greater", {"flag", "two"}, {"c"});
  });
  EXPECT_THAT(Importer().text(number), HasSubstr(remedy + "VALUE"));
  EXPECT_FALSE(deciding(number));
  // Two inputs, an input of more elements, computed data.
  for (const auto &node : std::vector<std::function<void(ModelBuilder &)>>{
           [](ModelBuilder &b) {
             b.input("flag", TensorProto::BOOL, {}).input("other", TensorProto::BOOL, {});
             b.node("And", {"flag", "other"}, {"c"});
           },
           [](ModelBuilder &b) {
             b.input("flag", TensorProto::FLOAT, {"4"}).ints("axes", {0});
             ModelBuilder::attribute(b.node("ReduceMax", {"flag", "axes"}, {"m"}), "keepdims", 0);
             ModelBuilder::attribute(b.node("Cast", {"m"}, {"c"}), "to", int64_t(TensorProto::BOOL));
           }}) {
    const ModelBuilder model = branchOn(node);
    EXPECT_THAT(Importer().text(model),
                AllOf(HasSubstr("too much to run both"), Not(HasSubstr("--constant"))));
    EXPECT_FALSE(deciding(model));
  }
}

/// Tables of different length, chosen by a size: what is selected has the length of the table taken.
TEST(ImportStructure, BranchesOfOtherSizesAreSelectedBySizes) {
  ModelBuilder b = vectorModel();
  b.ints("limit", {64}, true).ints("zero", {0}, true);
  b.node("Shape", {"x"}, {"shape"});
  b.node("Gather", {"shape", "zero"}, {"size"});
  b.node("Greater", {"size", "limit"}, {"c"});
  auto &node = b.node("If", {"c"}, {"y"});
  for (const auto &[name, size] :
       {std::pair(std::string("then_branch"), 5), std::pair(std::string("else_branch"), 3)}) {
    auto *attribute = node.add_attribute();
    attribute->set_name(name);
    attribute->set_type(AttributeProto::GRAPH);
    auto *graph = attribute->mutable_g();
    *graph->add_initializer() = ModelBuilder::intTensor("r", std::vector<int64_t>(size, 1));
    graph->add_output()->set_name("r");
  }
  EXPECT_THAT(Importer().text(b),
              AllOf(HasSubstr("nn.where"), HasSubstr("nn.slice"), HasSubstr("2*min(1, max(0, n - 64)) + 3")));
}

/// x = x + i for i of 0 to `steps` - 1; what the body says of going on is an input of the graph if `endless`.
ModelBuilder counting(int64_t steps, bool endless = false) {
  ModelBuilder b = vectorModel();
  b.input("go", TensorProto::BOOL, {}).ints("steps", {steps}, true);
  auto &node = b.node("Loop", {"steps", "", "x"}, {"y", "all"});
  auto *attribute = node.add_attribute();
  attribute->set_name("body");
  attribute->set_type(AttributeProto::GRAPH);
  auto *graph = attribute->mutable_g();
  for (const char *input : {"i", "c", "s"})
    graph->add_input()->set_name(input);
  ModelBuilder::attribute(ModelBuilder::fill(*graph->add_node(), "Cast", {"i"}, {"f"}), "to",
                          TensorProto::FLOAT);
  ModelBuilder::fill(*graph->add_node(), "Add", {"s", "f"}, {"next"});
  for (const char *output : {endless ? "go" : "c", "next", "next"})
    graph->add_output()->set_name(output);
  return b;
}

TEST(ImportStructure, LoopsOfAKnownNumberOfStepsAreUnrolled) {
  const std::string text = Importer().text(counting(3));
  EXPECT_THAT(text, AllOf(HasSubstr("nn.add"), HasSubstr("nn.concat")));
  EXPECT_THAT(Importer().text(counting(65)), AllOf(HasSubstr("nn.loop"), HasSubstr("steps = [65]")));
  EXPECT_THAT(Importer().text(counting(3, true)), HasSubstr("how many there are depends on run-time data"));
}

/// `steps` and `go`: names of inputs of the graph or of constants; empty: left out.
std::string looping(const std::string &steps, const std::string &go) {
  ModelBuilder b = counting(2);
  b.input("given", TensorProto::INT64, {}).ints("zero", {0}, true);
  ModelBuilder::attribute(b.node("Cast", {"zero"}, {"never"}), "to", TensorProto::BOOL);
  b.output("all");
  auto *node = b.graph().mutable_node(0);
  node->set_input(0, steps);
  node->set_input(1, go);
  return Importer().text(b);
}

TEST(ImportStructure, LoopsOfNoSteps) {
  const std::string empty = "tensor<0x?x40xf32>";
  EXPECT_THAT(looping("steps", "never"), AllOf(HasSubstr(empty), HasSubstr("return %arg0")));
  EXPECT_THAT(looping("given", "never"), HasSubstr(empty)); // whatever the number
  EXPECT_THAT(looping("zero", ""), HasSubstr(empty));
  EXPECT_THAT(looping("", "never"), HasSubstr(empty));
  EXPECT_THAT(looping("given", ""), HasSubstr("how many there are depends on run-time data"));
  EXPECT_THAT(looping("", ""), HasSubstr("it never ends"));
}

TEST(ImportStructure, FunctionsAreInlinedWithTheirAttributes) {
  ModelBuilder b = vectorModel();
  b.importDomain("local", 1);
  auto *function = b.model.add_functions();
  function->set_domain("local");
  function->set_name("Sums");
  function->add_input("a");
  function->add_output("r");
  function->add_attribute("keep");
  auto *import = function->add_opset_import();
  import->set_domain("");
  import->set_version(18);
  auto &reduce = ModelBuilder::fill(*function->add_node(), "ReduceSum", {"a"}, {"t"});
  auto *keep = reduce.add_attribute();
  keep->set_name("keepdims");
  keep->set_type(AttributeProto::INT);
  keep->set_ref_attr_name("keep");
  ModelBuilder::fill(*function->add_node(), "Relu", {"t"}, {"r"});
  ModelBuilder::attribute(b.node("Sums", {"x"}, {"y"}, "local"), "keep", 0);
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr("keepdims = false"), HasSubstr("-> tensor<f32>")));
}

TEST(ImportStructure, FunctionsWithInputsLeftOut) {
  ModelBuilder b = vectorModel();
  b.importDomain("local", 1);
  auto define = [&](const char *name, const char *op, const char *domain) {
    auto *function = b.model.add_functions();
    function->set_domain("local");
    function->set_name(name);
    for (const char *input : {"a", "low", "high"})
      function->add_input(input);
    function->add_output("r");
    auto *import = function->add_opset_import();
    import->set_domain("");
    import->set_version(18);
    import = function->add_opset_import();
    import->set_domain("local");
    import->set_version(1);
    ModelBuilder::fill(*function->add_node(), op, {"a", "low", "high"}, {"r"}, domain);
  };
  define("Inner", "Clip", "");
  define("Outer", "Inner", "local");
  b.weight("bound", {});
  b.node("Outer", {"x", "", "bound"}, {"y"}, "local");
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr("nn.min"), Not(HasSubstr("nn.max"))));
  b.graph().mutable_node(0)->mutable_input()->RemoveLast();
  EXPECT_THAT(Importer().text(b), Not(HasSubstr("nn.min")));
}

TEST(ImportStructure, AnOutputThatIsListedTwiceIsOneResult) {
  ModelBuilder b;
  b.input("x", TensorProto::FLOAT, {"2"}).output("y").output("y").node("Relu", {"x"}, {"y"});
  EXPECT_THAT(Importer().text(b), HasSubstr("-> (tensor<2xf32> {nn.dims = [2], nn.name = \"y\"}) {"));
}

TEST(ImportStructure, AFunctionThatCallsItselfIsAnError) {
  ModelBuilder b = vectorModel();
  b.importDomain("local", 1);
  auto *function = b.model.add_functions();
  function->set_domain("local");
  function->set_name("Forever");
  function->add_input("a");
  function->add_output("r");
  ModelBuilder::fill(*function->add_node(), "Forever", {"a"}, {"r"}, "local");
  b.node("Forever", {"x"}, {"y"}, "local");
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr("error: "), HasSubstr("too deeply")));
}

TEST(ImportStructure, LocationsNameTheModule) {
  Importer importer;
  ModelBuilder b = vectorModel();
  auto *scope = b.node("Relu", {"x"}, {"a"}).add_metadata_props();
  scope->set_key("pkg.torch.onnx.name_scopes");
  scope->set_value("['', 'm', 'm.layers.0', \"m.layers.0.act\", 'relu']");
  auto *space = b.node("Abs", {"a"}, {"c"}).add_metadata_props();
  space->set_key("namespace");
  space->set_value(": M/m: pkg.Model/m.layers.1: pkg.Layer/abs: aten.abs.default");
  b.node("Exp", {"c"}, {"y"}).set_name("/layers.2/mlp/Exp");
  std::string path = importer.folder / "model.onnx";
  writeFile(path, b.model.SerializeAsString());
  auto module = importer.import(path);
  ASSERT_TRUE(module) << module.error().message;
  std::vector<std::string> names;
  (**module)->walk([&](mlir::Operation *op) {
    if (mlir::isa<nn::ReluOp, nn::AbsOp, nn::ExpOp>(op))
      names.push_back(locationName(op->getLoc()));
  });
  EXPECT_THAT(names, testing::ElementsAre("m.layers.0.act", "m.layers.1", "layers.2.mlp"));
}

TEST(ImportStructure, OldSoftmaxFlattens) {
  ModelBuilder b(11);
  b.input("x", TensorProto::FLOAT, {"2", "3", "4"}).output("y");
  b.node("Softmax", {"x"}, {"y"});
  EXPECT_THAT(Importer().text(b), AllOf(HasSubstr("shape = [2, 12]"), HasSubstr("shape = [2, 3, 4]")));
}

TEST(ImportStructure, GemmIsMatmulScaleAdd) {
  ModelBuilder b(13);
  b.input("x", TensorProto::FLOAT, {"n", "40"}).weight("w", {8, 40}).weight("b", {8}).output("y");
  auto &gemm = b.node("Gemm", {"x", "w", "b"}, {"y"});
  ModelBuilder::attribute(gemm, "transB", 1);
  auto *alpha = gemm.add_attribute();
  alpha->set_name("alpha");
  alpha->set_type(AttributeProto::FLOAT);
  alpha->set_f(0.5f);
  EXPECT_THAT(Importer().text(b),
              AllOf(HasSubstr("transpose_b = true"), HasSubstr("nn.mul"), HasSubstr("nn.add")));
}

} // namespace
} // namespace fusion::test
