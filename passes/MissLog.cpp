#include "passes/MissLog.h"

#include "ir/dialect/Types.h"

#include "mlir/IR/Remarks.h"

namespace fusion {

namespace {
thread_local MissLog *current = nullptr;
} // namespace

MissLog::Note *MissLog::find(mlir::Operation *root, llvm::StringRef pattern) {
  auto same = [&](const Note &note) {
    return note.root == root && note.miss.pattern == pattern &&
           note.miss.location == locationName(root->getLoc());
  };
  auto found = llvm::find_if(notes, same);
  return found == notes.end() ? nullptr : &*found;
}

void MissLog::note(mlir::Operation *root, llvm::StringRef pattern, std::string reason) {
  if (Note *earlier = find(root, pattern))
    earlier->miss.reason = std::move(reason);
  else
    notes.push_back({root, {pattern.str(), locationName(root->getLoc()), std::move(reason)}});
}

void MissLog::noteRaised(mlir::Operation *root, llvm::StringRef op, std::string assumes) {
  raises.push_back(
      {op.str(), locationName(root->getLoc()), root->getName().getStringRef().str(), std::move(assumes)});
  if (Note *earlier = find(root, op))
    earlier->raised = true;
}

std::vector<Miss> MissLog::misses() const {
  std::vector<Miss> left;
  for (const Note &note : notes)
    if (!note.raised)
      left.push_back(note.miss);
  return left;
}

MissLog::Scope::Scope(MissLog &log) : outer(current) { current = &log; }
MissLog::Scope::~Scope() { current = outer; }

void noteMiss(mlir::Operation *root, llvm::StringRef pattern, std::string reason) {
  mlir::remark::missed(root->getLoc(), mlir::remark::RemarkOpts::name(pattern).category("raise")) << reason;
  if (current)
    current->note(root, pattern, std::move(reason));
}

void noteRaised(mlir::Operation *root, llvm::StringRef op, std::string assumes) {
  mlir::remark::passed(root->getLoc(), mlir::remark::RemarkOpts::name(op).category("raise"))
      << mlir::remark::reason("replaces what ends in {0}{1}{2}", root->getName().getStringRef().str(),
                              assumes.empty() ? "" : "; ", assumes);
  if (current)
    current->noteRaised(root, op, std::move(assumes));
}

} // namespace fusion
