// Masks of an attention: what nn.attention says by attributes, and one operand for the rest.
#pragma once

#include "passes/raise/Raise.h"

namespace fusion::raise {

/// One thing done to the scores before the softmax.
struct MaskTerm {
  mlir::Value mask;      ///< a float to add, or an i1
  bool inverted = false; ///< the i1 keeps where false
  double lowest = 0;     ///< what an i1 puts where it does not keep: -inf, or a finite number
  bool byKey = false;    ///< laid over scores of shape [.., keys, queries]
  bool onMerged = false; ///< laid over scores of shape [batch * heads, queries, keys]
  bool ofWindows = false; ///< laid over scores of shape [batch, windows, heads, queries, keys]
  double scale = 1;      ///< what the scores are multiplied by after the mask; included in `lowest`
  bool blended = false;  ///< the i1 is a factor of 0 or 1 on the scores, which makes NaN of infinite ones
  bool isFloat() const { return lowest == 0; }
};

/// A number that a softmax in f32 turns into 0 beside any ordinary score.
bool isMaskedScore(double value);
bool isMaskedScore(mlir::Value value);

/// The term, laid over scores that are multiplied by the positive `scale` afterwards. Nothing if what its i1
/// puts does not mask then.
std::optional<MaskTerm> scaledAfter(MaskTerm term, double scale);

/// The float terms multiplied by what the scores are multiplied by after them, in f32.
void applyScales(llvm::MutableArrayRef<MaskTerm> terms, mlir::Location location, Raiser &raiser);

/// What adding `mask` to scores says, if the sum has type `sum`. In f16 the lowest number swallows the score,
/// so that a wholly masked row gets an average: where(c, 0, lowest) is then a choice, not an addition in f32.
MaskTerm addedMask(mlir::Value mask, mlir::Type sum, Raiser &raiser);

/// A float term where(c, 0, -inf) becomes the condition c, which says the same.
MaskTerm asCondition(MaskTerm term);

/// Masks that depend on positions only.
struct Pattern {
  bool causal = false;
  int64_t window = 0;
};
/// Takes out of `terms` what keys j <= i + (keys - queries), and j > i + (keys - queries) - window, say for
/// query i, where that is proven for all sizes, and terms that mask nothing. A mask of a finite number goes
/// only if it is the one term and leaves a key to every query.
Pattern takePattern(llvm::SmallVector<MaskTerm> &terms, const Dim &queries, const Dim &keys, Raiser &raiser);

/// What holds for the scores of a trained model and not for any numbers, where the terms become one mask.
/// `zeroedNan`: rows of NaN become zeros behind the softmax.
std::string assumptionsOf(llvm::ArrayRef<MaskTerm> masks, bool zeroedNan);

/// One mask operand for nn.attention that does what the terms do; null if there is none.
mlir::Value buildMask(llvm::ArrayRef<MaskTerm> terms, mlir::Location location, Raiser &raiser);

} // namespace fusion::raise
