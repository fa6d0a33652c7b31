// Real exported graphs: they import, keep no shape arithmetic, survive a round trip; damaged ones are
// refused.
#include "ModelBuilder.h"

#include "ir/dialect/SymbolicShapes.h"
#include "ir/dialect/Types.h"

#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>
#include <random>

using namespace mlir;

namespace fusion::test {
namespace {

std::string graphFolder() { return FUSION_SOURCE_DIR "/test/data/graphs"; }

std::vector<std::string> graphNames() {
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(graphFolder()))
    if (entry.is_directory())
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

class RealGraph : public testing::TestWithParam<std::string> {
protected:
  Importer importer;
  std::string path = graphFolder() + "/" + GetParam() + "/model.onnx";
};

TEST_P(RealGraph, RoundTripsThroughText) {
  auto module = importer.import(path);
  ASSERT_TRUE(module) << module.error().message;
  std::string first, second;
  llvm::raw_string_ostream(first) << **module;
  auto parsed = parseSourceString<ModuleOp>(first, &importer.context);
  ASSERT_TRUE(parsed);
  llvm::raw_string_ostream(second) << *parsed;
  EXPECT_EQ(first, second);
}

TEST_P(RealGraph, LeavesNoShapeArithmetic) {
  auto module = importer.import(path);
  ASSERT_TRUE(module) << module.error().message;
  (**module)->walk([&](Operation *op) {
    if (op->getNumOperands() == 0 || op->getNumResults() == 0)
      return;
    auto type = cast<RankedTensorType>(op->getResult(0).getType());
    bool small = type.getElementType().isInteger(64) && type.hasStaticShape() && type.getNumElements() <= 8;
    bool fromConstants = llvm::all_of(op->getOperands(), [](Value operand) {
      return operand.getDefiningOp() && operand.getDefiningOp()->getNumOperands() == 0;
    });
    EXPECT_FALSE(small && fromConstants) << op->getName().getStringRef().str();
  });
}

TEST_P(RealGraph, HasSymbolicShapesAndLocations) {
  auto module = importer.import(path);
  ASSERT_TRUE(module) << module.error().message;
  auto function = *(**module).getOps<func::FuncOp>().begin();
  auto shapes = nn::SymbolicShapes::compute(function);
  ASSERT_TRUE(succeeded(shapes));
  bool named = false;
  function.walk([&](Operation *op) {
    named |= locationName(op->getLoc()).find(".layers.0.") != std::string::npos ||
             locationName(op->getLoc()).find(".layer.0.") != std::string::npos ||
             locationName(op->getLoc()).find(".h.0.") != std::string::npos;
  });
  EXPECT_TRUE(named);
  auto results = function.getResultAttrOfType<ArrayAttr>(0, nn::dimsAttr);
  ASSERT_TRUE(results);
  EXPECT_EQ(nn::dimsFromAttr(results)[0], Dim::symbol("batch"));
}

INSTANTIATE_TEST_SUITE_P(All, RealGraph, testing::ValuesIn(graphNames()), [](const auto &info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

/// One line, and no path of any other file.
void expectOneLine(const std::string &text) {
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  EXPECT_GT(text.size(), 8u);
}

TEST(DamagedGraph, EveryPrefixIsRefusedOrWhole) {
  Importer importer;
  std::string whole = readFile(graphFolder() + "/llama-fp16-op20-eager/model.onnx");
  ASSERT_FALSE(whole.empty());
  std::string path = importer.folder / "prefix.onnx";
  for (size_t length = 0; length < whole.size(); length += length < 4096 ? 61 : 3989) {
    writeFile(path, std::string_view(whole).substr(0, length));
    auto module = importer.import(path);
    ASSERT_FALSE(module) << length;
    expectOneLine(module.error().message);
  }
}

TEST(DamagedGraph, FlippedBytesNeverCrash) {
  Importer importer;
  std::mt19937 random(7);
  for (const char *name : {"llama-fp16-decode", "gemma-bf16-op23"}) {
    std::string whole = readFile(graphFolder() + "/" + name + "/model.onnx");
    ASSERT_FALSE(whole.empty());
    std::string path = importer.folder / "flipped.onnx";
    for (int round = 0; round < 150; ++round) {
      std::string damaged = whole;
      for (int flips = 0; flips < 1 + round % 4; ++flips)
        damaged[random() % damaged.size()] = static_cast<char>(random());
      writeFile(path, damaged);
      auto module = importer.import(path);
      if (!module)
        expectOneLine(module.error().message);
    }
  }
}

} // namespace
} // namespace fusion::test
