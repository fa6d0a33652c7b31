// Bad input: one line that says what is wrong and where.
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

auto oneLine() { return AllOf(StartsWith("error: "), Not(HasSubstr("\n"))); }

#define EXPECT_IMPORT_ERROR(BUILDER, TEXT)                                                                   \
  EXPECT_THAT(Importer().text(BUILDER), AllOf(oneLine(), HasSubstr(TEXT)))

ModelBuilder oneNode(const std::string &op, const std::string &domain = "", int64_t opset = 18) {
  ModelBuilder b(opset);
  b.input("x", TensorProto::FLOAT, {"n", "4"}).output("y");
  b.node(op, {"x"}, {"y"}, domain);
  return b;
}

TEST(ImportErrors, Files) {
  Importer importer;
  EXPECT_THAT(importer.text("/nonexistent/model.onnx"), AllOf(oneLine(), HasSubstr("No such file")));
  std::string path = importer.folder / "file.onnx";
  writeFile(path, "");
  EXPECT_THAT(importer.text(path), AllOf(oneLine(), HasSubstr("empty")));
  writeFile(path, "this is a text file and no model at all\n");
  EXPECT_THAT(importer.text(path), AllOf(oneLine(), HasSubstr("not an ONNX model")));
  EXPECT_THAT(importer.text(importer.folder / ""), oneLine());
}

TEST(ImportErrors, Versions) {
  ModelBuilder b = oneNode("Relu");
  b.model.set_ir_version(2);
  EXPECT_IMPORT_ERROR(b, "IR version 2");
  b.model.clear_ir_version();
  EXPECT_IMPORT_ERROR(b, "no IR version");
  b.model.set_ir_version(99); // newer than known is fine
  EXPECT_THAT(Importer().text(b), HasSubstr("nn.relu"));
  EXPECT_IMPORT_ERROR(oneNode("Relu", "", 6), "opset 6");
  EXPECT_IMPORT_ERROR(oneNode("Relu", "", 29), "opset 29");
  b.model.clear_opset_import();
  EXPECT_IMPORT_ERROR(b, "no opset");
  b.importDomain("", 18);
  b.model.clear_graph();
  EXPECT_IMPORT_ERROR(b, "no graph");
}

TEST(ImportErrors, UnknownOpNamesEverything) {
  EXPECT_IMPORT_ERROR(oneNode("Frobnicate"),
                      "node 'node_y' (ai.onnx.Frobnicate, opset 18): this op is not supported");
  ModelBuilder b = oneNode("Frobnicate", "com.example");
  b.importDomain("com.example", 3);
  EXPECT_IMPORT_ERROR(b, "(com.example.Frobnicate, opset 3)");
  EXPECT_IMPORT_ERROR(oneNode("Loop"), "the body is missing");
}

TEST(ImportErrors, Structure) {
  ModelBuilder missing;
  missing.input("x", TensorProto::FLOAT, {"n"}).output("y");
  missing.node("Add", {"x", "ghost"}, {"y"});
  EXPECT_IMPORT_ERROR(missing, "input 'ghost' is not defined");

  ModelBuilder absent;
  absent.input("x", TensorProto::FLOAT, {"n"}).output("y");
  absent.node("Add", {"x", ""}, {"y"});
  EXPECT_IMPORT_ERROR(absent, "input 1 is missing");

  ModelBuilder cycle;
  cycle.input("x", TensorProto::FLOAT, {"n"}).output("y");
  cycle.node("Add", {"x", "b"}, {"a"});
  cycle.node("Relu", {"a"}, {"b"});
  cycle.node("Relu", {"b"}, {"y"});
  EXPECT_IMPORT_ERROR(cycle, "cycle");

  ModelBuilder twice = oneNode("Relu");
  twice.node("Abs", {"x"}, {"y"});
  EXPECT_IMPORT_ERROR(twice, "'y' is defined twice");

  ModelBuilder noOutput = oneNode("Relu");
  noOutput.output("z");
  EXPECT_IMPORT_ERROR(noOutput, "output 'z' is not defined");
}

TEST(ImportErrors, Types) {
  ModelBuilder strings;
  strings.input("x", TensorProto::STRING, {"n"}).output("y");
  strings.node("Identity", {"x"}, {"y"});
  EXPECT_IMPORT_ERROR(strings, "element type STRING is not supported");

  ModelBuilder sequence;
  sequence.output("y");
  auto *info = sequence.graph().add_input();
  info->set_name("x");
  info->mutable_type()->mutable_sequence_type();
  sequence.node("Identity", {"x"}, {"y"});
  EXPECT_IMPORT_ERROR(sequence, "input 'x' is not a tensor");

  ModelBuilder mixed;
  mixed.input("x", TensorProto::FLOAT, {"n"}).input("i", TensorProto::INT64, {"n"}).output("y");
  mixed.node("Add", {"x", "i"}, {"y"});
  EXPECT_IMPORT_ERROR(mixed, "node 'node_y' (ai.onnx.Add, opset 18): operands have different element types");

  ModelBuilder integers;
  integers.input("x", TensorProto::INT64, {"n"}).output("y");
  integers.node("IsNaN", {"x"}, {"y"});
  EXPECT_IMPORT_ERROR(integers, "floats");
}

TEST(ImportErrors, Shapes) {
  ModelBuilder broadcast;
  broadcast.input("x", TensorProto::FLOAT, {"2", "3"}).input("z", TensorProto::FLOAT, {"4"}).output("y");
  broadcast.node("Add", {"x", "z"}, {"y"});
  EXPECT_IMPORT_ERROR(broadcast, "cannot broadcast");

  ModelBuilder dynamic;
  dynamic.input("x", TensorProto::FLOAT, {"n"}).input("s", TensorProto::INT64, {"2"}).output("y");
  dynamic.node("Reshape", {"x", "s"}, {"y"});
  EXPECT_IMPORT_ERROR(
      dynamic, "node 'node_y' (ai.onnx.Reshape, opset 18): shape (input 1, 's') depends on run-time data");

  ModelBuilder reshape;
  reshape.input("x", TensorProto::FLOAT, {"7"}).ints("s", {2, -1}).output("y");
  reshape.node("Reshape", {"x", "s"}, {"y"});
  EXPECT_IMPORT_ERROR(reshape, "cannot infer -1");

  ModelBuilder axis = oneNode("Softmax");
  ModelBuilder::attribute(*axis.graph().mutable_node(0), "axis", 5);
  ModelBuilder index(18);
  index.input("x", TensorProto::FLOAT, {"4", "n"}).ints("far", {0, 4}).output("y");
  index.node("Gather", {"x", "far"}, {"y"});
  EXPECT_IMPORT_ERROR(index, "index 4 (input 1, 'far') is out of range for dim 0 of size 4");
  EXPECT_IMPORT_ERROR(axis, "axis 5 is out of range");
}

TEST(ImportErrors, NothingExplodes) {
  // Every function calls the next one four times.
  ModelBuilder calls = oneNode("f0", "local");
  calls.importDomain("local", 1);
  for (int i = 0; i < 24; ++i) {
    auto *function = calls.model.add_functions();
    function->set_domain("local");
    function->set_name("f" + std::to_string(i));
    function->add_input("a");
    function->add_output("r3");
    std::string callee = i < 23 ? "f" + std::to_string(i + 1) : "f99";
    for (int j = 0; j < 4; ++j)
      ModelBuilder::fill(*function->add_node(), callee, {"a"}, {"r" + std::to_string(j)}, "local");
  }
  EXPECT_THAT(Importer().text(calls), oneLine());
  calls.model.mutable_functions()->rbegin()->mutable_node()->Clear();
  ModelBuilder::fill(*calls.model.mutable_functions()->rbegin()->add_node(), "Identity", {"a"}, {"r3"});
  EXPECT_IMPORT_ERROR(calls, "too many nodes");

  // A dim that is squared again and again.
  ModelBuilder squares(18);
  squares.input("x", TensorProto::FLOAT, {"a", "b"}).output("y");
  squares.node("Shape", {"x"}, {"s0"});
  squares.node("ReduceSum", {"s0"}, {"t0"});
  for (int i = 0; i < 40; ++i)
    squares.node("Mul", {"t" + std::to_string(i), "t" + std::to_string(i)}, {"t" + std::to_string(i + 1)});
  squares.node("Expand", {"x", "t40"}, {"y"});
  EXPECT_IMPORT_ERROR(squares, "too complicated");

  ModelBuilder huge(18);
  huge.ints("s", {int64_t(1) << 40, int64_t(1) << 40}).output("y");
  huge.node("ConstantOfShape", {"s"}, {"y"});
  EXPECT_IMPORT_ERROR(huge, "impossible shape");
}

TEST(ImportErrors, Initialisers) {
  ModelBuilder wrong = oneNode("Relu");
  wrong.weight("w", {8});
  wrong.graph().mutable_initializer(0)->set_dims(0, 9);
  EXPECT_IMPORT_ERROR(wrong, "initializer 'w': 32 bytes of data where its type and dims need 36");
  wrong.graph().mutable_initializer(0)->set_dims(0, -9);
  EXPECT_IMPORT_ERROR(wrong, "dim -9");
  wrong.graph().mutable_initializer(0)->set_dims(0, int64_t(1) << 62);
  EXPECT_IMPORT_ERROR(wrong, "out of range");
  wrong.graph().mutable_initializer(0)->clear_raw_data();
  wrong.graph().mutable_initializer(0)->set_dims(0, 8);
  EXPECT_IMPORT_ERROR(wrong, "0 values where its dims need 8");
}

TEST(ImportErrors, ExternalData) {
  Importer importer;
  ModelBuilder b = oneNode("Relu");
  b.weight("w", {64});
  auto *tensor = b.graph().mutable_initializer(0);
  tensor->clear_raw_data();
  tensor->set_data_location(TensorProto::EXTERNAL);
  auto *location = tensor->add_external_data();
  location->set_key("location");
  location->set_value("weights.bin");
  EXPECT_THAT(importer.text(b), AllOf(oneLine(), HasSubstr("weights.bin' is missing")));
  writeFile(importer.folder / "weights.bin", std::string(255, 'x'));
  EXPECT_THAT(importer.text(b), AllOf(oneLine(), HasSubstr("too short")));
  writeFile(importer.folder / "weights.bin", std::string(256, 'x'));
  EXPECT_THAT(importer.text(b), HasSubstr("nn.relu"));
  for (const char *outside : {"../weights.bin", "/etc/passwd", "a/../../b", ""}) {
    location->set_value(outside);
    EXPECT_THAT(importer.text(b), oneLine()) << outside;
  }
  // By links.
  TemporaryFolder elsewhere;
  writeFile(elsewhere / "secret", std::string(256, 's'));
  std::filesystem::create_directory(importer.folder / "sub");
  std::filesystem::create_symlink(elsewhere / "secret", importer.folder / "soft.bin");
  std::filesystem::create_directory_symlink(elsewhere / "", importer.folder / "away");
  std::filesystem::create_hard_link(elsewhere / "secret", importer.folder / "hard.bin");
  std::filesystem::create_symlink("weights.bin", importer.folder / "inside.bin");
  ImportOptions trusting;
  trusting.trustPaths = true;
  for (const char *link : {"soft.bin", "away/secret", "hard.bin"}) {
    location->set_value(link);
    EXPECT_THAT(importer.text(b), AllOf(oneLine(), HasSubstr("--trust-paths"))) << link;
    EXPECT_THAT(importer.text(b, trusting), HasSubstr("nn.relu")) << link;
  }
  location->set_value("inside.bin");
  EXPECT_THAT(importer.text(b), HasSubstr("nn.relu"));
}

} // namespace
} // namespace fusion::test
