#include "api/Sampling.h"

#include "ir/base/PlainText.h"
#include "ir/dialect/Build.h"
#include "ir/dialect/Sample.h"
#include "ir/dialect/SymbolicShapes.h"
#include "ir/dialect/Types.h"

#include <fmt/format.h>

#include <charconv>

using namespace mlir;

namespace fusion {

namespace {
std::optional<double> number(std::string_view text) {
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

Status check(const Sampling &sampling) {
  if (sampling.temperature != 0 && !(sampling.temperature >= 1e-4 && sampling.temperature <= 1e4))
    return badInput(
        fmt::format("a temperature of {}: give one from 0.0001 to 10000, or 0 for the most likely token",
                    sampling.temperature));
  if (sampling.topK < 0)
    return badInput(fmt::format("a choice among the {} most likely tokens", sampling.topK));
  if (!(sampling.topP > 0 && sampling.topP <= 1))
    return badInput(
        fmt::format("a choice among tokens of probability {}: give one above 0, at most 1", sampling.topP));
  return {};
}

/// Appends ops to one function.
class Appender {
public:
  explicit Appender(func::FuncOp entry)
      : entry(entry), end(entry.getBody().front().getTerminator()), builder(end), location(end->getLoc()) {}

  Status run(const Sampling &sampling) {
    auto computed = nn::SymbolicShapes::compute(entry);
    if (failed(computed))
      return badInput("shapes do not fit together");
    shapes.emplace(std::move(*computed));
    const std::optional<unsigned> result = logitsResult();
    if (!result)
      return badInput("there is no result of logits to choose a token from: a float tensor called logits, or "
                      "the first result, of "
                      "2 or 3 dims");
    for (unsigned i = 0; i < entry.getNumResults(); ++i)
      if (resultName(i) == StringRef(nextTokensName))
        return badInput(fmt::format("a result is called {} already", nextTokensName));
    Value logits = end->getOperand(*result);
    if (Operation *head = logits.getDefiningOp()) // where reports find what is appended
      location = head->getLoc();
    if (rank(logits) == 3) {
      const Value before = logits;
      logits = lastOf(logits, 1);
      end->setOperand(*result, logits);
      if (entry.getResultAttr(*result, nn::dimsAttr)) {
        DimShape dims = (*shapes)[before];
        dims[1] = Dim(1);
        entry.setResultAttr(*result, nn::dimsAttr, nn::dimsToAttr(builder.getContext(), dims));
      }
    }
    Value token = sampling.temperature == 0 ? mostLikely(logits) : drawn(logits, sampling);
    const DType wanted = idsType();
    if (dtype(token) != wanted)
      token = nn::build<nn::CastOp>(builder, location, token, {}, mlirType(builder.getContext(), wanted));
    if (rank(token) == 1) {
      auto dims = nn::SymbolicShapes::compute(entry);
      token = nn::buildReshape(builder, location, token, {(*dims)[token][0], Dim(1)});
    }
    end->insertOperands(end->getNumOperands(), token);
    const unsigned last = entry.getNumResults();
    if (failed(entry.insertResult(last, token.getType(), {})))
      return badInput("the function takes no more results");
    entry.setResultAttr(last, nn::nameAttr, builder.getStringAttr(StringRef(nextTokensName)));
    if (!sampling.keepsLogits) {
      end->eraseOperand(*result);
      (void)entry.eraseResult(*result);
    }
    entry.setType(builder.getFunctionType(entry.getArgumentTypes(), end->getOperandTypes()));
    return {};
  }

private:
  static int64_t rank(Value value) { return llvm::cast<RankedTensorType>(value.getType()).getRank(); }

  StringRef resultName(unsigned index) {
    auto name = entry.getResultAttrOfType<StringAttr>(index, nn::nameAttr);
    return name ? name.getValue() : StringRef();
  }

  std::optional<unsigned> logitsResult() {
    auto fits = [&](unsigned index) {
      Value value = end->getOperand(index);
      return isFloat(dtype(value)) && (rank(value) == 2 || rank(value) == 3);
    };
    for (unsigned i = 0; i < entry.getNumResults(); ++i)
      if (resultName(i) == "logits")
        return fits(i) ? std::optional(i) : std::nullopt;
    return entry.getNumResults() > 0 && fits(0) ? std::optional(0u) : std::nullopt;
  }

  /// That of the graph's token ids, which the choice becomes in the next step.
  DType idsType() {
    for (BlockArgument argument : entry.getArguments())
      if (auto name = entry.getArgAttrOfType<StringAttr>(argument.getArgNumber(), nn::nameAttr);
          name && name.getValue() == StringRef(tokenIdsName) && isInteger(dtype(argument)))
        return dtype(argument);
    return DType::I64;
  }

  /// The last of `value` along `axis`: of the head's matmul, and of the elementwise ops after it, that row
  /// alone is computed.
  Value lastOf(Value value, int64_t axis) {
    const DimShape &shape = (*shapes)[value];
    if (shape[static_cast<size_t>(axis)] == Dim(1))
      return value;
    Operation *op = value.getDefiningOp();
    const int64_t fromBack = static_cast<int64_t>(shape.size()) - axis;
    if (op && op->hasTrait<nn::Pointwise>()) {
      SmallVector<Value> operands;
      for (Value operand : op->getOperands()) {
        const int64_t at = rank(operand) - fromBack;
        operands.push_back(at < 0 ? operand : lastOf(operand, at));
      }
      return again(op, operands, value);
    }
    if (auto matmul = llvm::dyn_cast_or_null<nn::MatmulOp>(op);
        matmul && fromBack == 2 && !matmul.getTransposeA() && rank(matmul.getA()) == rank(value) &&
        rank(matmul.getB()) == 2)
      return again(op, {sliceOfLast(matmul.getA(), axis), matmul.getB()}, value);
    return sliceOfLast(value, axis);
  }

  Value sliceOfLast(Value value, int64_t axis) {
    const DimShape &shape = (*shapes)[value];
    DimShape starts(shape.size(), Dim(0)), sizes = shape;
    starts[static_cast<size_t>(axis)] = shape[static_cast<size_t>(axis)] - Dim(1);
    sizes[static_cast<size_t>(axis)] = Dim(1);
    const SmallVector<int64_t> steps(shape.size(), 1);
    return nn::build<nn::SliceOp>(
        builder, location, value,
        {builder.getNamedAttr("starts", nn::dimsToAttr(builder.getContext(), starts)),
         builder.getNamedAttr("sizes", nn::dimsToAttr(builder.getContext(), sizes)),
         builder.getNamedAttr("steps", builder.getDenseI64ArrayAttr(steps))});
  }

  Value again(Operation *op, ArrayRef<Value> operands, Value value) {
    std::string error;
    Operation *made =
        nn::createInferred(builder, op->getLoc(), op->getName().getStringRef(), operands, op->getAttrs(),
                           llvm::cast<RankedTensorType>(value.getType()).getElementType(), error);
    assert(made && "a row of what fits");
    return made->getResult(0);
  }

  Value mostLikely(Value logits) {
    return nn::build<nn::ArgMaxOp>(builder, location, logits,
                                   {builder.getNamedAttr("axis", builder.getI64IntegerAttr(rank(logits) - 1)),
                                    builder.getNamedAttr("keepdims", builder.getBoolAttr(false))},
                                   builder.getI64Type());
  }

  Value drawn(Value logits, const Sampling &sampling) {
    const unsigned index = entry.getNumArguments();
    auto type = RankedTensorType::get({2}, builder.getI64Type());
    const auto name = builder.getDictionaryAttr(
        builder.getNamedAttr(nn::nameAttr, builder.getStringAttr(StringRef(sampleSeedName))));
    (void)entry.insertArgument(index, type, name, location);
    return nn::build<nn::SampleOp>(
        builder, location, {logits, entry.getArgument(index)},
        {builder.getNamedAttr("temperature",
                              builder.getF32FloatAttr(static_cast<float>(sampling.temperature))),
         builder.getNamedAttr("top_k", builder.getI64IntegerAttr(sampling.topK)),
         builder.getNamedAttr("top_p", builder.getF64FloatAttr(sampling.topP))},
        builder.getI64Type());
  }

  func::FuncOp entry;
  Operation *end;
  OpBuilder builder;
  Location location;
  std::optional<nn::SymbolicShapes> shapes;
};
} // namespace

Result<Sampling> samplingNamed(std::string_view text) {
  const Error refused =
      badInput(fmt::format("sampling is greedy, or some of temperature=0.8,top-k=50,top-p=0.9, "
                           "and perhaps no-logits, not '{}'",
                           plainText(text)));
  Sampling sampling;
  sampling.temperature = 1;
  bool isGreedy = false, draws = false;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size()),
                 equals = std::min(text.find('=', begin), comma);
    const std::string_view key = text.substr(begin, equals - begin);
    const std::optional<double> value =
        number(text.substr(std::min(equals + 1, comma), comma - std::min(equals + 1, comma)));
    const bool isWord = equals == comma;
    if (isWord && key == "greedy")
      isGreedy = true;
    else if (isWord && key == "no-logits")
      sampling.keepsLogits = false;
    else if (value && key == "temperature" && *value > 0)
      sampling.temperature = *value;
    else if (value && key == "top-k" && *value >= 1 && *value < 1e9 &&
             *value == static_cast<double>(static_cast<int64_t>(*value)))
      sampling.topK = static_cast<int64_t>(*value);
    else if (value && key == "top-p")
      sampling.topP = *value;
    else
      return refused;
    draws = draws || !isWord;
    begin = comma + 1;
  }
  if (isGreedy == draws)
    return refused;
  if (isGreedy)
    sampling.temperature = 0;
  if (Status status = check(sampling); !status)
    return status.error();
  return sampling;
}

Status appendSampling(func::FuncOp entry, const Sampling &sampling) {
  if (Status status = check(sampling); !status)
    return status;
  return Appender(entry).run(sampling);
}

} // namespace fusion
