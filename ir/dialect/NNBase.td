// The `nn` dialect: what a transformer graph computes.
#ifndef FUSION_NN_BASE
#define FUSION_NN_BASE

include "ir/dialect/NNInterfaces.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def NN_Dialect : Dialect {
  let name = "nn";
  let cppNamespace = "::fusion::nn";
  let summary = "Operators of a transformer graph";
  let description = [{
    Values are ranked tensors of builtin element types; `?` dims are bound at run time. The arguments and
    results of the entry function carry `nn.name` and `nn.dims`, an array of integers and of strings
    such as `"batch"` or `"s15 + 1"`, which name the symbols that shape attributes inside may use.

    Every op rounds to its result's element type. Arithmetic on floats narrower than f32 is done in f32;
    reductions and matrix products accumulate in f32. Binary ops and `where` broadcast as numpy does.
    The executable meaning of each op is in `ir/reference`.
  }];
  let hasConstantMaterializer = 1;
  let hasOperationAttrVerify = 1;
  let useDefaultAttributePrinterParser = 0;
}

// Traits; their contracts stand in Dialect.h.
class NN_Trait<string name> : NativeOpTrait<name> { let cppNamespace = "::fusion::nn"; }
def NN_Pointwise : NN_Trait<"Pointwise">;
def NN_BoolResult : NN_Trait<"BoolResult">;
def NN_Activation : NN_Trait<"Activation">;
def NN_View : NN_Trait<"View">;
def NN_Indexed : NN_Trait<"Indexed">;
def NN_Stored : NN_Trait<"Stored">;
def NN_Costly : NN_Trait<"Costly">;
def NN_Commutative : NativeOpTrait<"IsCommutative"> { let cppNamespace = "::mlir::OpTrait"; }

def NN_Tensor
    : Type<CPred<"::llvm::isa<::mlir::RankedTensorType>($_self)">, "ranked tensor",
           "::mlir::RankedTensorType">;
def NN_FloatTensor : Type<CPred<[{::llvm::isa<::mlir::RankedTensorType>($_self) &&
  ::llvm::isa<::mlir::FloatType>(::llvm::cast<::mlir::RankedTensorType>($_self).getElementType())}]>,
  "ranked tensor of floats", "::mlir::RankedTensorType">;
def NN_IntTensor : Type<CPred<[{::llvm::isa<::mlir::RankedTensorType>($_self) &&
  ::llvm::cast<::mlir::RankedTensorType>($_self).getElementType().isIntOrIndex()}]>,
  "ranked tensor of integers", "::mlir::RankedTensorType">;
def NN_BoolTensor : Type<CPred<[{::llvm::isa<::mlir::RankedTensorType>($_self) &&
  ::llvm::cast<::mlir::RankedTensorType>($_self).getElementType().isInteger(1)}]>,
  "ranked tensor of i1", "::mlir::RankedTensorType">;

/// Integers and strings that parse as symbolic dims.
def NN_DimsAttr : Attr<CPred<"::fusion::nn::isDimsAttr($_self)">, "array of integers and symbolic dims"> {
  let storageType = "::mlir::ArrayAttr";
  let returnType = "::mlir::ArrayAttr";
  let convertFromStorage = "$_self";
}

/// For an op with a rule of its own for its axes, in ShardRules.cpp.
def NN_ShardRule : DeclareOpInterfaceMethods<NN_Shardable, ["shardAxes"]>;

class NN_Op<string mnemonic, list<Trait> traits = []>
    : Op<NN_Dialect, mnemonic, !listconcat([Pure, DeclareOpInterfaceMethods<NN_ShapeInterface>], traits)> {
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  /// Statements of the verifier before it looks at shapes.
  code checks = "";
  /// The definition of inferShapes, where it is not in a Shapes….cpp.
  code inference = "";
  let extraClassDefinition = !strconcat([{
    ::llvm::LogicalResult $cppClass::verify() {
  }], checks, [{
      return ::fusion::nn::verifyShapes(getOperation());
    }
  }], inference);
}

#endif
