#include "passes/MissLog.h"

#include "ir/dialect/Types.h"

#include "mlir/IR/Remarks.h"

namespace fusion {

namespace {
thread_local MissLog *current = nullptr;
} // namespace

void MissLog::note(mlir::Operation *root, llvm::StringRef pattern, std::string reason) {
  Miss miss{pattern.str(), locationName(root->getLoc()), std::move(reason)};
  if (seen.insert(miss.pattern + '\n' + miss.location + '\n' + miss.reason).second)
    notes.push_back(std::move(miss));
}

void MissLog::noteRaised(mlir::Operation *root, llvm::StringRef op) {
  raises.push_back({op.str(), locationName(root->getLoc()), root->getName().getStringRef().str()});
}

MissLog::Scope::Scope(MissLog &log) : outer(current) { current = &log; }
MissLog::Scope::~Scope() { current = outer; }

void noteMiss(mlir::Operation *root, llvm::StringRef pattern, std::string reason) {
  mlir::remark::missed(root->getLoc(), mlir::remark::RemarkOpts::name(pattern).category("raise")) << reason;
  if (current)
    current->note(root, pattern, std::move(reason));
}

void noteRaised(mlir::Operation *root, llvm::StringRef op) {
  mlir::remark::passed(root->getLoc(), mlir::remark::RemarkOpts::name(op).category("raise"))
      << mlir::remark::reason("replaces what ends in {0}", root->getName().getStringRef().str());
  if (current)
    current->noteRaised(root, op);
}

} // namespace fusion
