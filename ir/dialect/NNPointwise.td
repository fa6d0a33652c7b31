// Elementwise ops. Operands broadcast as in numpy.
#ifndef FUSION_NN_POINTWISE
#define FUSION_NN_POINTWISE

include "ir/dialect/NNBase.td"

/// An op on single elements. An activation is one line below with [NN_Activation], and its formula.
class NN_PointwiseOp<string mnemonic, list<Trait> traits = []>
    : NN_Op<mnemonic, !listconcat([NN_Pointwise, NN_Shardable], traits)> {
  let inference = [{
    ::llvm::LogicalResult $cppClass::inferShapes(::fusion::nn::ShapeContext &context) {
      return ::fusion::nn::inferElementwise(getOperation(), context);
    }
  }];
}

class NN_Unary<string mnemonic, string formula, string where = "", list<Trait> traits = []>
    : NN_PointwiseOp<mnemonic, traits> {
  let summary = formula;
  let description = !strconcat("Elementwise. ", where, [{

    ```mlir
    %y = nn.}], mnemonic, [{ %x : (tensor<?x128xbf16>) -> tensor<?x128xbf16>
    ```
  }]);
  let arguments = (ins NN_Tensor:$x);
  let results = (outs NN_Tensor:$y);
}

class NN_Binary<string mnemonic, string formula, list<Trait> traits = []> : NN_PointwiseOp<mnemonic, traits> {
  let summary = formula;
  let description = !strconcat([{
    Elementwise with broadcasting; both operands have one element type.

    ```mlir
    %y = nn.}], mnemonic, [{ %a, %b : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
    ```
  }]);
  let arguments = (ins NN_Tensor:$lhs, NN_Tensor:$rhs);
  let results = (outs NN_Tensor:$y);
}

class NN_Compare<string mnemonic, string formula, list<Trait> traits = []>
    : NN_PointwiseOp<mnemonic, !listconcat([NN_BoolResult], traits)> {
  let summary = formula;
  let description = !strconcat([{
    Elementwise with broadcasting; the result is i1. A comparison with NaN is false.

    ```mlir
    %y = nn.}], mnemonic, [{ %a, %b : (tensor<?xi64>, tensor<1xi64>) -> tensor<?xi1>
    ```
  }]);
  let arguments = (ins NN_Tensor:$lhs, NN_Tensor:$rhs);
  let results = (outs NN_Tensor:$y);
}

def NN_NegOp : NN_Unary<"neg", "-x">;
def NN_AbsOp : NN_Unary<"abs", "|x|">;
def NN_SignOp : NN_Unary<"sign", "-1, 0 or 1", "NaN stays NaN, -0 becomes 0.">;
def NN_ExpOp : NN_Unary<"exp", "e^x", "", [NN_Costly]>;
def NN_LogOp : NN_Unary<"log", "natural logarithm", "", [NN_Costly]>;
def NN_SqrtOp : NN_Unary<"sqrt", "square root", "", [NN_Costly]>;
def NN_RsqrtOp : NN_Unary<"rsqrt", "1 / sqrt(x)", "", [NN_Costly]>;
def NN_ReciprocalOp : NN_Unary<"reciprocal", "1 / x", "", [NN_Costly]>;
def NN_SquareOp : NN_Unary<"square", "x * x">;
def NN_SinOp : NN_Unary<"sin", "sine", "", [NN_Costly]>;
def NN_CosOp : NN_Unary<"cos", "cosine", "", [NN_Costly]>;
def NN_TanhOp : NN_Unary<"tanh", "hyperbolic tangent", "", [NN_Activation, NN_Costly]>;
def NN_ErfOp : NN_Unary<"erf", "error function", "", [NN_Costly]>;
def NN_SigmoidOp : NN_Unary<"sigmoid", "1 / (1 + e^-x)", "", [NN_Activation, NN_Costly]>;
def NN_SiluOp
    : NN_Unary<"silu", "x * sigmoid(x)", "Computed in f32 and rounded once.", [NN_Activation, NN_Costly]>;
def NN_ReluOp : NN_Unary<"relu", "max(x, 0)", "NaN stays NaN, -0 becomes 0.", [NN_Activation]>;
def NN_SoftplusOp : NN_Unary<"softplus", "log(1 + e^x)", "", [NN_Costly]>;
def NN_FloorOp : NN_Unary<"floor", "largest integer not above x">;
def NN_CeilOp : NN_Unary<"ceil", "smallest integer not below x">;
def NN_RoundOp : NN_Unary<"round", "nearest integer, halves to even">;
def NN_NotOp : NN_Unary<"not", "logical or bitwise complement", "On i1 logical, on other integers bitwise.">;

def NN_IsNanOp : NN_PointwiseOp<"is_nan", [NN_BoolResult]> {
  let summary = "whether x is NaN";
  let description = [{
    ```mlir
    %y = nn.is_nan %x : (tensor<?xf16>) -> tensor<?xi1>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$x);
  let results = (outs NN_BoolTensor:$y);
}

def NN_IsInfOp : NN_PointwiseOp<"is_inf", [NN_BoolResult]> {
  let summary = "whether x is an infinity of a sign that is enabled";
  let description = [{
    ```mlir
    %y = nn.is_inf %x {negative = true, positive = true} : (tensor<?xf16>) -> tensor<?xi1>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$x, DefaultValuedAttr<BoolAttr, "true">:$negative,
                       DefaultValuedAttr<BoolAttr, "true">:$positive);
  let results = (outs NN_BoolTensor:$y);
}

def NN_GeluOp : NN_PointwiseOp<"gelu", [NN_Activation, NN_Costly]> {
  let summary = "Gaussian error linear unit: exact (erf), tanh or quick (x * sigmoid(1.702 x))";
  let description = [{
    Computed in f32 and rounded once.

    ```mlir
    %y = nn.gelu %x {approximate = "tanh"} : (tensor<?x256xf16>) -> tensor<?x256xf16>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$x, DefaultValuedStrAttr<StrAttr, "none">:$approximate);
  let results = (outs NN_FloatTensor:$y);
  let checks = [{
    auto form = getApproximate();
    if (form != "none" && form != "tanh" && form != "quick") {
      return emitOpError("approximate must be none, tanh or quick, not ") << form;
    }
  }];
}

def NN_CastOp : NN_PointwiseOp<"cast"> {
  let summary = "the same values in another element type";
  let description = [{
    Floats round to nearest even; f8 saturates; float to integer truncates toward zero; to i1 is `x != 0`.

    ```mlir
    %y = nn.cast %x : (tensor<?x128xbf16>) -> tensor<?x128xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$x);
  let results = (outs NN_Tensor:$y);
  let hasFolder = 1;
}

def NN_BitcastOp : NN_PointwiseOp<"bitcast"> {
  let summary = "the same bits in another element type of as many";
  let description = [{
    i1 counts as a byte of 0 or 1. Of floats of 16 bits and fewer, a NaN may become another one.

    ```mlir
    %y = nn.bitcast %x : (tensor<?x128xf32>) -> tensor<?x128xi32>
    ```
  }];
  let arguments = (ins NN_Tensor:$x);
  let results = (outs NN_Tensor:$y);
  let checks = [{
    const ::fusion::DType from = ::fusion::dtype(getX()), to = ::fusion::dtype(getY());
    auto hasOwnBits = [](::fusion::DType type) {
      return type != ::fusion::DType::I4 && type != ::fusion::DType::U4 && type != ::fusion::DType::F8E5M2;
    };
    if (::fusion::byteSize(from) != ::fusion::byteSize(to) || !hasOwnBits(from) || !hasOwnBits(to)) {
      return emitOpError("the bits of ") << ::fusion::name(from) << " are not those of a "
                                         << ::fusion::name(to);
    }
  }];
}

def NN_AddOp : NN_Binary<"add", "a + b", [NN_Commutative]>;
def NN_SubOp : NN_Binary<"sub", "a - b">;
def NN_MulOp : NN_Binary<"mul", "a * b", [NN_Commutative]>;
def NN_DivOp : NN_Binary<"div", "a / b; integers truncate toward zero", [NN_Costly]>;
def NN_ModOp : NN_Binary<"mod", "remainder with the sign of the divisor", [NN_Costly]>;
def NN_FmodOp : NN_Binary<"fmod", "remainder with the sign of the dividend", [NN_Costly]>;
def NN_PowOp : NN_Binary<"pow", "a to the power b", [NN_Costly]>;
def NN_MaxOp : NN_Binary<"max", "the larger; NaN if either is; 0 is above -0", [NN_Commutative]>;
def NN_MinOp : NN_Binary<"min", "the smaller; NaN if either is; 0 is above -0", [NN_Commutative]>;
def NN_AndOp : NN_Binary<"and", "logical or bitwise and", [NN_Commutative]>;
def NN_OrOp : NN_Binary<"or", "logical or bitwise or", [NN_Commutative]>;
def NN_XorOp : NN_Binary<"xor", "logical or bitwise exclusive or", [NN_Commutative]>;
def NN_EqualOp : NN_Compare<"equal", "a == b", [NN_Commutative]>;
def NN_LessOp : NN_Compare<"less", "a < b">;
def NN_LessEqualOp : NN_Compare<"less_equal", "a <= b">;
def NN_GreaterOp : NN_Compare<"greater", "a > b">;
def NN_GreaterEqualOp : NN_Compare<"greater_equal", "a >= b">;

def NN_WhereOp : NN_PointwiseOp<"where"> {
  let summary = "x where the condition holds, else y";
  let description = [{
    ```mlir
    %z = nn.where %c, %x, %y : (tensor<?x1x?x?xi1>, tensor<f16>, tensor<f16>) -> tensor<?x1x?x?xf16>
    ```
  }];
  let arguments = (ins NN_BoolTensor:$condition, NN_Tensor:$x, NN_Tensor:$y);
  let results = (outs NN_Tensor:$z);
}

#endif
