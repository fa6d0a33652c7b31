// The options that tools have in common: how a graph is compiled.
#pragma once

#include "api/Fusion.h"

#include "llvm/Support/CommandLine.h"

namespace fusion {

/// Registers the options when it is made, in `category`.
class CompileFlags {
public:
  explicit CompileFlags(llvm::cl::OptionCategory &category);
  /// The first value that makes no sense, as BadInput.
  Status check() const;
  CompileOptions options(Target target) const;
  /// How the graph is read.
  LoadOptions loading() const;
  /// What --sample says; nothing without it.
  std::optional<Sampling> sampling() const;

  llvm::cl::list<std::string> fuseDisable;
  llvm::cl::opt<ProfitMode> profit;
  llvm::cl::list<std::string> patterns;
  llvm::cl::opt<int64_t> kvCapacity;
  llvm::cl::opt<bool> sharedCaches;
  llvm::cl::list<std::string> dims;
  llvm::cl::opt<int> tensorParallel;
  llvm::cl::opt<bool> noAssumeFinite;
  llvm::cl::opt<bool> trustPaths;
  llvm::cl::opt<std::string> sample;
  llvm::cl::opt<bool> quiet;
};

/// --tp-vocabulary, of tools that have it.
class VocabularyFlag {
public:
  explicit VocabularyFlag(llvm::cl::OptionCategory &category);
  Status check(const CompileFlags &flags) const;

  llvm::cl::opt<bool> value;
};

/// --target, of tools that need no GPU.
class TargetFlag {
public:
  explicit TargetFlag(llvm::cl::OptionCategory &category);
  Status check() const;

  llvm::cl::opt<std::string> value;
};

/// --kernel, of tools that run kernels.
class KernelFlag {
public:
  explicit KernelFlag(llvm::cl::OptionCategory &category);
  Status check() const;
  std::vector<KernelFile> files() const;

private:
  llvm::cl::list<std::string> values;
};

/// BadInput unless `path` is empty or has the end of a report's format.
Status checkReportFile(const std::string &path);

} // namespace fusion
