#include "passes/raise/SimplifyAttention.h"

#include "passes/raise/KeyColumns.h"
#include "passes/raise/MaskArithmetic.h"

#include <limits>

using namespace mlir;

namespace fusion::raise {

void dropRepeats(ArrayRef<Value *> keysAndValues, Raiser &raiser) {
  SmallVector<Repeat, 3> repeats;
  for (const Value *x : keysAndValues) {
    auto repeat = matchRepeat(*x, raiser.shapes);
    if (!repeat || (!repeats.empty() && !(repeat->groups == repeats.front().groups)))
      return;
    repeats.push_back(*repeat);
  }
  for (auto [x, repeat] : llvm::zip_equal(keysAndValues, repeats))
    *x = withoutRepeat(repeat, raiser);
}

void simplifyAttention(nn::AttentionOp attention, Raiser &raiser) {
  raiser.rewriter.setInsertionPoint(attention);
  Value k = attention.getK(), v = attention.getV(), mask = attention.getMask();
  dropRepeats({&k, &v}, raiser);
  shareColumns(k, v, raiser);
  Pattern pattern;
  if (mask) {
    SmallVector<MaskTerm> terms = {{mask}};
    if (!isFloat(mask))
      terms[0].lowest = -std::numeric_limits<double>::infinity();
    pattern = takePattern(terms, raiser.shapes.of(attention.getQ())[2], raiser.shapes.of(k)[2], raiser);
    mask = buildMask(terms, attention.getLoc(), raiser);
  }
  if (k == attention.getK() && v == attention.getV() && mask == attention.getMask())
    return;
  replaceByChanged(raiser.rewriter, attention, [&](nn::AttentionOp changed) {
    changed.getKMutable().assign(k);
    changed.getVMutable().assign(v);
    changed.getMaskMutable().clear();
    if (mask)
      changed.getMaskMutable().assign(mask);
    changed.setCausal(attention.getCausal() || pattern.causal);
    if (pattern.window != 0 &&
        (attention.getWindow() == 0 || pattern.window < static_cast<int64_t>(attention.getWindow())))
      changed.setWindow(pattern.window);
  });
}

} // namespace fusion::raise
