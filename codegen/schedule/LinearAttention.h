// A linear attention as its kernels see it. Its templates are codegen/device/linear_attention_*.cuh.
#pragma once

#include "codegen/Schedule.h"
#include "codegen/body/KernelSource.h"
#include "ir/dialect/Types.h"

namespace fusion::linear_attention {

constexpr int64_t largestHead = 256;

struct Problem {
  Problem(const Region &region, const KernelContext &context);
  Problem(const Region &, const KernelContext &&) = delete; ///< it refers to the context

  const Region &region;
  const KernelContext &context;
  nn::LinearAttentionOp op;
  Dim batch, tokens;
  int64_t heads = 0, keyHeads = 0, queryHeads = 0, resultHeads = 0;
  int64_t depth = 0, valueDepth = 0, decayWidth = 0;
  int64_t queries = 1;                        ///< heads of queries that read one state
  int64_t leastTokens = 0, mostTokens = INT64_MAX; ///< that the kernel is launched for

  unsigned inputOf(mlir::Value operand) const;
  const View &view(mlir::Value operand) const { return context.inputs[inputOf(operand)]; }
  /// Whether rows can be read `length` elements at a time.
  bool readsVectors(mlir::Value operand, int64_t length) const;
  /// The most elements of a row, a power of two up to 16 bytes, that can be read at a time.
  int64_t vectorOf(mlir::Value operand) const;
  Dim flops() const;
};

/// The reason why the region is no linear attention that these kernels compute, or nothing.
std::optional<std::string> refusal(const Region &region, const KernelContext &context);

/// The kernel that instantiates linear_attention_`variant`, with what all of them have in their Config and
/// Body.
class KernelBuilder {
public:
  KernelBuilder(const Problem &problem, llvm::StringRef variant);

  template <class T>
  void config(std::string_view name, T value) {
    source.config.set(name, value);
  }
  /// `columns`: of a state that a block has.
  /// `argument`: of the template, after Body.
  KernelDraft finish(int64_t warps, int64_t columns, int64_t dynamicSharedBytes, int64_t residentBlocks = 0,
                     const std::string &argument = {});
  std::string scratch(const Dim &words, bool written) { return source.scratch(words, written); }

private:
  void rows(const char *name, mlir::Value operand, const std::string &head, bool columnStride = true);
  void stores();
  std::string term(const std::string &index, const Dim &stride);
  void count(const std::string &name, const Dim &dim) {
    source.body.method("DEVICE i64 " + name + "() const", source.body.size(dim));
  }

  const Problem &problem;
  nn::LinearAttentionOp op;
  const std::string variant;
  body::KernelSource source;
};

/// From so many tokens on in chunks, where that can be.
constexpr int64_t leastChunked = 16;
/// Whether types, sizes and places allow chunks: bf16, whose range is that of f32, with decays of whole
/// heads.
bool isChunked(const Problem &problem);
KernelDraft emitChunked(const Problem &problem);
/// From so many tokens on the chunks' own matrices are computed by a kernel for all at once, where that can
/// be: first emitPrepare(), of a region without results, then emitPrepared().
constexpr int64_t leastPrepared = 256;
bool isPrepared(const Problem &problem);
KernelDraft emitPrepare(const Problem &problem);
KernelDraft emitPrepared(const Problem &problem);
KernelDraft emitRecurrent(const Problem &problem);
/// Bytes of shared memory that it takes there at least.
int64_t recurrentBytes(const Problem &problem);

} // namespace fusion::linear_attention
