#include "passes/fuse/FusePass.h"

#include "passes/fuse/Propose.h"

#include "mlir/Dialect/PDL/IR/PDL.h"

using namespace mlir;

namespace fusion {

namespace {
class FusePass : public PassWrapper<FusePass, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(FusePass)

  FusePass(FuseOptions options, OracleFactory oracle)
      : options(std::move(options)), oracle(std::move(oracle)) {}

  StringRef getArgument() const override { return argument; }
  StringRef getDescription() const override { return "Group what one fusion family matches"; }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<pdl::PDLDialect, FusionDialect>();
  }
  void runOnOperation() override {
    auto patterns = PatternSet::builtin(&getContext());
    if (!patterns) {
      getOperation().emitError(patterns.error().message);
      return signalPassFailure();
    }
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      FusionReport report;
      if (Status status = fuse(function, *patterns, options, *oracle(), report); !status) {
        function.emitError(status.error().message);
        return signalPassFailure();
      }
      for (const auto &[name, pattern] : report.patterns)
        for (const FusionReport::Miss &miss : pattern.missed)
          if (llvm::is_contained(options.only, name))
            emitRemark(function.getLoc()) << name << " missed at " << miss.location << ": " << miss.reason;
    }
  }
  void setArgument(std::string text) { argument = std::move(text); }

private:
  FuseOptions options;
  OracleFactory oracle;
  std::string argument = "fuse-all";
};
} // namespace

std::unique_ptr<Pass> createFusePass(FuseOptions options, OracleFactory oracle) {
  return std::make_unique<FusePass>(std::move(options), std::move(oracle));
}

void registerFamilyPasses(OracleFactory oracle) {
  std::vector<llvm::StringRef> families = builtinFamilies();
  for (const Proposer &proposer : proposers())
    families.push_back(proposer.family);
  for (llvm::StringRef family : families) {
    std::string argument = "fuse-" + family.str();
    std::replace(argument.begin(), argument.end(), '_', '-');
    registerPass([=]() -> std::unique_ptr<Pass> {
      FuseOptions options;
      options.only = {family.str()};
      auto pass = std::make_unique<FusePass>(options, oracle);
      pass->setArgument(argument);
      return pass;
    });
  }
}

} // namespace fusion
