// A module of one function and the region in it that a schedule is tried on.
#pragma once

#include "Harness.h"

#include "test/codegen/spills/Spills.h"

#include "ir/base/Tensor.h"
#include "ir/dialect/Types.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

namespace fusion::test {

struct Parsed {
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::func::FuncOp function;
  mlir::Operation *target = nullptr;
  std::optional<nn::SymbolicShapes> shapes;
  std::optional<Views> views;
  Region region;
  std::vector<View> inputs;
  std::vector<View> outputs; ///< of the region, where some lie in memory of arguments; else empty

  explicit Parsed(const std::string &text) {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    if (!module)
      return;
    function = *module->getOps<mlir::func::FuncOp>().begin();
    mlir::FailureOr<nn::SymbolicShapes> computed = nn::SymbolicShapes::compute(function);
    if (mlir::failed(computed))
      return;
    shapes = std::move(*computed);
    views = Views::compute(function, *shapes);
    target = function.front().getTerminator()->getOperand(0).getDefiningOp();
    auto group = llvm::dyn_cast<GroupOp>(target);
    region = group ? Region::of(group) : Region::of(target);
    for (auto [index, input] : llvm::enumerate(region.inputs))
      inputs.push_back((*views)[group ? group.getInputs()[index] : input]);
    if (llvm::any_of(target->getResults(), [&](mlir::Value result) { return views->isInPlace(result); }))
      for (mlir::Value result : target->getResults())
        outputs.push_back((*views)[result]);
  }
  KernelContext kernelContext(uint32_t arch) const { return {*shapes, inputs, targetOf(arch), {}, outputs}; }
  /// 90: sm_90a.
  static const TargetInfo &targetOf(uint32_t number) {
    static std::map<uint32_t, TargetInfo> known;
    return known.try_emplace(number, *TargetInfo::find("sm_" + std::to_string(number))).first->second;
  }
};

Shape evaluated(const DimShape &dims, const SymbolValues &symbols);

} // namespace fusion::test
