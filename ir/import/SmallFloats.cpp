// Decoding of FLOAT4E2M1 and FLOAT8E8M0. Ops on weights alone run once, when they are loaded.
#include "ir/import/SmallFloats.h"

#include "ir/dialect/Build.h"
#include "ir/dialect/Types.h"

#include <limits>

using namespace mlir;

namespace fusion::onnx {

namespace {

class Decoder {
public:
  Decoder(OpBuilder &builder, Location location) : builder(builder), location(location) {}

  /// A sign, two bits of an exponent and one of a mantissa. Twice the magnitudes 0 to 7 are 0, 1, 2, 3, 4, 6,
  /// 8 and 12: lines that break at 4 and at 6.
  Value e2m1(Value codes) {
    const Value x = cast(codes, DType::F32);
    const Value isNegative = build<nn::GreaterEqualOp>({x, number(8)});
    const Value magnitude = build<nn::SubOp>({x, build<nn::WhereOp>({isNegative, number(8), number(0)})});
    const Value beyond4 = build<nn::ReluOp>({build<nn::SubOp>({magnitude, number(4)})});
    const Value beyond6 = build<nn::ReluOp>({build<nn::SubOp>({magnitude, number(6)})});
    const Value twice =
        build<nn::AddOp>({build<nn::AddOp>({magnitude, beyond4}), build<nn::MulOp>({beyond6, number(2)})});
    const Value value = build<nn::MulOp>({twice, number(0.5)});
    return cast(build<nn::WhereOp>({isNegative, build<nn::NegOp>({value}), value}), DType::F8E4M3);
  }

  /// 2^(code - 127); 255 is no number. The last bits in which powers may be off are beyond bf16.
  Value e8m0(Value codes) {
    const Value x = cast(codes, DType::F32);
    const Value power = build<nn::PowOp>({number(2), build<nn::SubOp>({x, number(127)})});
    const Value isNumber = build<nn::LessOp>({x, number(255)});
    return cast(build<nn::WhereOp>({isNumber, power, number(std::numeric_limits<double>::quiet_NaN())}),
                DType::BF16);
  }

private:
  OpBuilder &builder;
  Location location;

  template <typename Op>
  Value build(ArrayRef<Value> operands) {
    return nn::build<Op>(builder, location, ValueRange(operands));
  }
  Value number(double value) { return nn::buildScalar(builder, location, builder.getF32Type(), value); }
  Value cast(Value x, DType type) {
    return nn::build<nn::CastOp>(builder, location, x, {}, mlirType(builder.getContext(), type));
  }
};

} // namespace

DType decodedType(DType stored, FloatCode code) {
  switch (code) {
  case FloatCode::None:
    return stored;
  case FloatCode::E2M1:
    return DType::F8E4M3;
  case FloatCode::E8M0:
    return DType::BF16;
  }
  return stored;
}

Value decodedFloats(OpBuilder &builder, Location location, Value codes, FloatCode code) {
  Decoder decoder(builder, location);
  switch (code) {
  case FloatCode::None:
    return codes;
  case FloatCode::E2M1:
    return decoder.e2m1(codes);
  case FloatCode::E8M0:
    return decoder.e8m0(codes);
  }
  return codes;
}

} // namespace fusion::onnx
