#include "GraphCase.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace fusion::test {

static std::filesystem::path root() {
  if (const char *folder = std::getenv("FUSION_GRAPHS"))
    return folder;
  return std::filesystem::path(FUSION_SOURCE_DIR) / "test/data/graphs";
}

std::vector<std::string> graphNames() {
  std::vector<std::string> names;
  if (std::filesystem::exists(root()))
    for (const auto &entry : std::filesystem::directory_iterator(root()))
      if (std::filesystem::exists(entry.path() / "model.onnx"))
        names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string graphFile(const std::string &graph, const std::string &file) {
  return (root() / graph / file).string();
}

double modelTolerance(DType type) {
  switch (type) {
  case DType::F16: return 2e-3;
  case DType::BF16: return 1.5e-2;
  default: return 1e-5;
  }
}

NamedTensors makeInputs(const std::vector<Port> &ports, int64_t batch, int64_t sequence, int64_t past,
                        std::mt19937 &random) {
  NamedTensors inputs;
  for (const Port &port : ports) {
    Shape shape;
    for (size_t axis = 0; axis < port.shape.size(); ++axis) {
      const Dim &dim = port.shape[axis];
      if (auto constant = dim.constant())
        shape.push_back(*constant);
      else if (axis == 0)
        shape.push_back(batch);
      else if (port.name.starts_with("past_"))
        shape.push_back(past);
      else
        shape.push_back(port.name == "attention_mask" ? past + sequence : sequence);
    }
    int64_t count = elementCount(shape);
    if (isFloat(port.type)) {
      std::normal_distribution<float> normal;
      std::vector<float> values(count);
      std::generate(values.begin(), values.end(), [&] { return normal(random); });
      inputs[port.name] = Tensor::of<float>(DType::F32, shape, values).convertedTo(port.type);
      continue;
    }
    std::uniform_int_distribution<int64_t> token(0, 255);
    std::vector<int64_t> values(count);
    for (int64_t i = 0; i < count; ++i)
      values[i] = port.name == "attention_mask" ? 1
                  : port.name == "position_ids" ? past + i % shape.back()
                                                : token(random);
    inputs[port.name] = Tensor::of<int64_t>(DType::I64, shape, values).convertedTo(port.type);
  }
  return inputs;
}

void expectClose(Program &program, const NamedTensors &actual, const NamedTensors &expected) {
  auto fetched = program.fetch(actual);
  ASSERT_TRUE(bool(fetched)) << fetched.error().message;
  for (const auto &[name, value] : expected) {
    auto difference = compare(fetched->at(name), value);
    ASSERT_TRUE(bool(difference)) << difference.error().message;
    EXPECT_LE(difference->relativeL2, modelTolerance(value.type())) << name;
  }
}

} // namespace fusion::test
