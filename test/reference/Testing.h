// Running single ops, and independent double arithmetic to compare with.
#pragma once

#include "ir/reference/Reference.h"

#include "ir/dialect/Dialect.h"
#include "ir/dialect/Types.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include <fmt/format.h>

namespace fusion::testing {

inline mlir::MLIRContext &context() {
  static auto made = [] {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    auto fresh = std::make_unique<mlir::MLIRContext>(registry);
    fresh->loadAllAvailableDialects();
    return fresh;
  }();
  return *made;
}

inline mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string &text) {
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context());
  if (!module)
    ADD_FAILURE() << "does not parse: " << text;
  return module;
}

inline std::string typeText(DType type, const Shape &shape) {
  return fmt::format("tensor<{}{}>", shape.empty() ? "" : shapeString(shape) + "x", name(type));
}

/// Values converted to `type` as nn.cast does.
inline Tensor tensor(DType type, Shape shape, std::vector<double> values) {
  Tensor wide = Tensor::of<double>(DType::F64, std::move(shape), std::span<const double>(values));
  return wide.convertedTo(type);
}

inline std::vector<double> values(const Tensor &tensor) {
  Tensor wide = tensor.convertedTo(DType::F64);
  return {wide.as<double>(), wide.as<double>() + wide.size()};
}

/// Normal random values, the same for the same seed.
inline Tensor randomTensor(DType type, Shape shape, unsigned seed, double spread = 1, double shift = 0) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(shift, spread);
  std::vector<double> numbers(static_cast<size_t>(elementCount(shape)));
  for (double &number : numbers)
    number = normal(engine);
  return tensor(type, std::move(shape), numbers);
}

/// Evaluates `name` with attributes such as "{axis = 1 : i64}"; results are "tensor<…>" texts.
inline Result<std::vector<Tensor>> tryOp(const std::string &name, const std::vector<Tensor> &operands,
                                         const std::string &attributes,
                                         const std::vector<std::string> &results,
                                         const SymbolValues &symbols = {},
                                         const ReferenceOptions &options = {}) {
  std::string arguments, uses, types, resultTypes;
  for (size_t i = 0; i < operands.size(); ++i) {
    std::string comma = i == 0 ? "" : ", ";
    std::string type = typeText(operands[i].type(), operands[i].shape());
    arguments += fmt::format("{}%a{}: {}", comma, i, type);
    uses += fmt::format("{}%a{}", comma, i);
    types += comma + type;
  }
  for (size_t i = 0; i < results.size(); ++i)
    resultTypes += (i == 0 ? "" : ", ") + results[i];
  auto module = parse(fmt::format("func.func @f({}) {{ %r:{} = {} {} {} : ({}) -> ({}) return }}", arguments,
                                  results.size(), name, uses, attributes, types, resultTypes));
  if (!module)
    return badInput("the op does not parse");
  auto function = *module->getOps<mlir::func::FuncOp>().begin();
  return evaluate(&function.getBody().front().front(), operands, symbols, options);
}

/// The first result of an op that must succeed.
inline Tensor runOp(const std::string &name, const std::vector<Tensor> &operands,
                    const std::string &attributes, DType resultType, const Shape &resultShape) {
  auto results = tryOp(name, operands, attributes, {typeText(resultType, resultShape)});
  if (!results) {
    ADD_FAILURE() << results.error().message;
    return Tensor::zeros(resultType, resultShape);
  }
  EXPECT_EQ(results->front().shape(), resultShape);
  EXPECT_EQ(results->front().type(), resultType);
  return results->front();
}

/// Half a unit in the last place, twice.
inline double tolerance(DType type) {
  switch (type) {
  case DType::F64:
    return 1e-12;
  case DType::F32:
    return 2e-6;
  case DType::F16:
    return 1.0 / 1024;
  case DType::BF16:
    return 1.0 / 128;
  default:
    return isFloat(type) ? 0.25 : 0;
  }
}

/// Element by element: NaN meets NaN, infinities are equal, the rest is near.
inline void expectNear(const Tensor &actual, const std::vector<double> &expected, double relative,
                       double absolute = 1e-6) {
  std::vector<double> got = values(actual);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i]))
      EXPECT_TRUE(std::isnan(got[i])) << "element " << i << " is " << got[i];
    else if (std::isinf(expected[i]))
      EXPECT_EQ(got[i], expected[i]) << "element " << i;
    else
      EXPECT_NEAR(got[i], expected[i], relative * std::fabs(expected[i]) + absolute) << "element " << i;
  }
}
inline void expectNear(const Tensor &actual, const std::vector<double> &expected) {
  expectNear(actual, expected, tolerance(actual.type()));
}
inline void expectEqual(const Tensor &actual, const std::vector<double> &expected) {
  expectNear(actual, expected, 0, 0);
}

inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr DType modelTypes[] = {DType::F32, DType::F16, DType::BF16};

} // namespace fusion::testing
