// The options that tools have in common: how a graph is compiled.
#pragma once

#include "Options.h"

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
  WordOption profit;
  llvm::cl::list<std::string> patterns;
  NumberOption<int64_t> kvCapacity;
  llvm::cl::opt<bool> sharedCaches;
  llvm::cl::list<std::string> dims, constants;
  NumberOption<int> tensorParallel;
  llvm::cl::opt<bool> noAssumeFinite, batchInvariant;
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
WordOption targetOption(llvm::cl::OptionCategory &category);

/// The fusions that --fuse-disable and --require may name without --patterns.
std::vector<Word> fusionWords();

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
