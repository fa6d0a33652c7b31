// Attention, a block of queries at a time: all scores of the block, softmax, product with the values.
#include "ir/base/Parallel.h"
#include "ir/reference/Gemm.h"
#include "ir/reference/Support.h"

#include <cmath>
#include <limits>

namespace fusion::reference {
namespace {

constexpr int64_t queryBlock = 64;
constexpr float minusInfinity = -std::numeric_limits<float>::infinity();

struct Problem {
  const Tensor &q, &k, &v;
  const Tensor *mask;
  int64_t batch, heads, kvHeads, queries, keys, width, valueWidth;
  float scale, softcap;
  bool causal, zeroMaskedRows;
  int64_t window;
};

const char *matrixAt(const Tensor &tensor, int64_t index) {
  int64_t size = tensor.shape()[2] * tensor.shape()[3];
  return tensor.as<char>() + static_cast<size_t>(index * size) * byteSize(tensor.type());
}

/// Softcap, mask and the causal window on the scores of one query.
void maskScores(const Problem &p, const StridedView *maskView, int64_t maskRow, int64_t query, float *scores,
                std::vector<float> &maskValues, std::vector<char> &rawMask) {
  for (int64_t j = 0; j < p.keys; ++j)
    scores[j] *= p.scale;
  if (p.softcap > 0)
    for (int64_t j = 0; j < p.keys; ++j)
      scores[j] = p.softcap * std::tanh(scores[j] / p.softcap);
  if (maskView) {
    maskView->copy(p.mask->data(), byteSize(p.mask->type()), maskRow * p.keys, p.keys, rawMask.data());
    convertToF32(p.mask->type(), rawMask.data(), maskValues.data(), static_cast<size_t>(p.keys));
    bool keeps = p.mask->type() == DType::Bool;
    for (int64_t j = 0; j < p.keys; ++j) {
      float value = maskValues[static_cast<size_t>(j)];
      scores[j] = !keeps ? scores[j] + value : value != 0 ? scores[j] : minusInfinity;
    }
  }
  int64_t diagonal = query + (p.keys - p.queries);
  for (int64_t j = 0; j < p.keys; ++j)
    if ((p.causal && j > diagonal) || (p.window > 0 && j <= diagonal - p.window))
      scores[j] = minusInfinity;
}

/// In place; false if nothing is kept.
bool softmaxScores(float *scores, int64_t count) {
  float largest = minusInfinity;
  for (int64_t j = 0; j < count; ++j)
    if (scores[j] > largest || scores[j] != scores[j])
      largest = largest != largest ? largest : scores[j];
  if (largest == minusInfinity)
    return false;
  double sum = 0;
  for (int64_t j = 0; j < count; ++j) {
    scores[j] = std::exp(scores[j] - largest);
    sum += scores[j];
  }
  auto total = static_cast<float>(sum);
  for (int64_t j = 0; j < count; ++j)
    scores[j] /= total;
  return true;
}

/// Queries [begin, end) of one head of one batch entry; `head` counts over both.
void attendBlock(const Problem &p, const StridedView *maskView, int64_t head, int64_t begin, int64_t end,
                 Tensor &result) {
  int64_t rows = end - begin;
  int64_t kvHead = head / p.heads * p.kvHeads + head % p.heads / (p.heads / p.kvHeads);
  std::vector<float> scores(static_cast<size_t>(rows * p.keys));
  size_t queryBytes = static_cast<size_t>(begin * p.width) * byteSize(p.q.type());
  multiplySequentially({{matrixAt(p.q, head) + queryBytes, p.q.type(), p.width, 1},
                        {matrixAt(p.k, kvHead), p.k.type(), 1, p.width},
                        rows,
                        p.keys,
                        p.width,
                        scores.data(),
                        DType::F32});
  std::vector<float> maskValues(static_cast<size_t>(p.keys));
  std::vector<char> rawMask(maskView ? maskValues.size() * byteSize(p.mask->type()) : 0);
  std::vector<bool> kept(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) {
    float *row = scores.data() + i * p.keys;
    maskScores(p, maskView, head * p.queries + begin + i, begin + i, row, maskValues, rawMask);
    kept[static_cast<size_t>(i)] = softmaxScores(row, p.keys);
  }
  Tensor block = Tensor::uninitialized(DType::F32, {rows, p.valueWidth});
  multiplySequentially({{scores.data(), DType::F32, p.keys, 1},
                        {matrixAt(p.v, kvHead), p.v.type(), p.valueWidth, 1},
                        rows,
                        p.valueWidth,
                        p.keys,
                        block.data(),
                        DType::F32});
  for (int64_t i = 0; i < rows; ++i)
    if (!kept[static_cast<size_t>(i)])
      std::fill_n(block.as<float>() + i * p.valueWidth, p.valueWidth,
                  p.zeroMaskedRows || p.keys == 0 ? 0.0f : std::numeric_limits<float>::quiet_NaN());
  storeElements(result, (head * p.queries + begin) * p.valueWidth, rows * p.valueWidth, block.as<float>());
}

Result<Tensors> attention(const Call &call) {
  auto op = llvm::cast<nn::AttentionOp>(call.op);
  // Wider operands are taken as f32, as the definition says.
  auto narrowed = [](const Tensor &tensor) {
    return tensor.type() == DType::F64 ? tensor.convertedTo(DType::F32) : tensor;
  };
  Tensor q = narrowed(call.operand(0)), k = narrowed(call.operand(1)), v = narrowed(call.operand(2));
  const Shape &qs = q.shape(), &ks = k.shape(), &vs = v.shape();
  if (ks[0] != qs[0] || vs[0] != qs[0] || vs[1] != ks[1] || vs[2] != ks[2] || ks[3] != qs[3])
    return problem("q of {}, k of {} and v of {} do not fit together", shapeString(qs), shapeString(ks),
                   shapeString(vs));
  if (ks[1] == 0 ? qs[1] != 0 : qs[1] % ks[1] != 0)
    return problem("{} heads are no multiple of {} key/value heads", qs[1], ks[1]);
  const Tensor *mask = call.hasOperand(3) ? &call.operand(3) : nullptr;
  Shape scoreShape = {qs[0], qs[1], qs[2], ks[2]};
  std::optional<StridedView> maskView;
  if (mask) {
    if (mask->type() != DType::Bool && !isFloat(mask->type()))
      return problem("the mask is {}, neither i1 nor a float", name(mask->type()));
    auto joint = broadcastShapes({mask->shape(), scoreShape});
    if (!joint || *joint != scoreShape)
      return problem("a mask of {} does not fit scores of {}", shapeString(mask->shape()),
                     shapeString(scoreShape));
    maskView.emplace(scoreShape, broadcastStrides(mask->shape(), scoreShape));
  }
  Tensor result = Tensor::uninitialized(call.resultType(), {qs[0], qs[1], qs[2], vs[3]});
  if (result.size() == 0)
    return Tensors{result};
  Problem p{q,
            k,
            v,
            mask,
            qs[0],
            qs[1],
            ks[1],
            qs[2],
            ks[2],
            qs[3],
            vs[3],
            op.getScale().convertToFloat(),
            op.getSoftcap().convertToFloat(),
            op.getCausal(),
            op.getZeroMaskedRows(),
            static_cast<int64_t>(op.getWindow())};
  int64_t blocks = (p.queries + queryBlock - 1) / queryBlock;
  int64_t cost = std::min(queryBlock, p.queries) * p.keys * (p.width + p.valueWidth + 64) / 16;
  parallelFor(p.batch * p.heads * blocks, grainFor(cost), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t first = i % blocks * queryBlock;
      attendBlock(p, maskView && p.keys > 0 ? &*maskView : nullptr, i / blocks, first,
                  std::min(p.queries, first + queryBlock), result);
    }
  });
  return Tensors{result};
}

} // namespace

llvm::ArrayRef<Entry> attentionEntries() {
  static constexpr Entry entries[] = {{"nn.attention", attention}};
  return entries;
}

} // namespace fusion::reference
