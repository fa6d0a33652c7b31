// Linear attention, one token after the other. The columns of a state are independent of each other.
#include "ir/base/Parallel.h"
#include "ir/reference/Support.h"

#include <algorithm>
#include <cmath>

namespace fusion::reference {
namespace {

std::vector<float> floats(const Tensor &tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.size()));
  loadElements(tensor, 0, tensor.size(), values.data());
  return values;
}

/// A [batch, heads, tokens, width] operand; where it has fewer heads, neighbours share one.
struct Heads {
  std::vector<float> values;
  int64_t heads, tokens, width;

  explicit Heads(const Tensor &tensor)
      : values(floats(tensor)), heads(tensor.shape()[1]), tokens(tensor.shape()[2]),
        width(tensor.shape()[3]) {}
  /// The entry of token `token` for head `head` of `of` heads.
  const float *at(int64_t batch, int64_t head, int64_t of, int64_t token) const {
    return values.data() + ((batch * heads + head * heads / of) * tokens + token) * width;
  }
};

Result<Tensors> linearAttention(const Call &call) {
  auto op = llvm::cast<nn::LinearAttentionOp>(call.op);
  const Shape &qs = call.operand(0).shape(), &ss = call.operand(3).shape();
  const Heads q(call.operand(0)), k(call.operand(1)), v(call.operand(2));
  std::optional<Heads> decay, beta;
  if (op.getDecay())
    decay.emplace(call.operand(4));
  if (op.getBeta())
    beta.emplace(call.operand(op.getDecay() ? 5 : 4));
  const int64_t batches = qs[0], heads = ss[1], tokens = qs[2], width = ss[2], valueWidth = ss[3];
  const int64_t outHeads = std::max(q.heads, heads);
  const float scale = op.getScale().convertToFloat();
  std::vector<float> state = floats(call.operand(3));
  std::vector<float> result(static_cast<size_t>(batches * outHeads * tokens * valueWidth));
  parallelFor(batches * heads, grainFor(tokens * width * valueWidth * 4), [&](int64_t begin, int64_t end) {
    std::vector<float> update(static_cast<size_t>(valueWidth));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / heads, head = i % heads;
      float *own = state.data() + i * width * valueWidth;
      for (int64_t t = 0; t < tokens; ++t) {
        const float *key = k.at(batch, head, heads, t), *value = v.at(batch, head, heads, t);
        if (decay) {
          const float *log = decay->at(batch, head, heads, t);
          for (int64_t r = 0; r < width; ++r) {
            const float factor = std::exp(log[decay->width == 1 ? 0 : r]);
            for (int64_t c = 0; c < valueWidth; ++c)
              own[r * valueWidth + c] *= factor;
          }
        }
        std::copy_n(value, valueWidth, update.begin());
        if (beta) {
          for (int64_t r = 0; r < width; ++r)
            for (int64_t c = 0; c < valueWidth; ++c)
              update[static_cast<size_t>(c)] -= key[r] * own[r * valueWidth + c];
          const float rate = *beta->at(batch, head, heads, t);
          for (float &entry : update)
            entry *= rate;
        }
        for (int64_t r = 0; r < width; ++r)
          for (int64_t c = 0; c < valueWidth; ++c)
            own[r * valueWidth + c] += key[r] * update[static_cast<size_t>(c)];
        for (int64_t out = head * outHeads / heads; out < (head + 1) * outHeads / heads; ++out) {
          const float *query = q.at(batch, out, outHeads, t);
          float *target = result.data() + ((batch * outHeads + out) * tokens + t) * valueWidth;
          std::fill_n(target, valueWidth, 0.0f);
          for (int64_t r = 0; r < width; ++r)
            for (int64_t c = 0; c < valueWidth; ++c)
              target[c] += query[r] * own[r * valueWidth + c];
          for (int64_t c = 0; c < valueWidth; ++c)
            target[c] *= scale;
        }
      }
    }
  });
  Tensor y = Tensor::uninitialized(call.resultType(0), {batches, outHeads, tokens, valueWidth});
  Tensor newState = Tensor::uninitialized(call.resultType(1), ss);
  storeElements(y, 0, y.size(), result.data());
  storeElements(newState, 0, newState.size(), state.data());
  return Tensors{y, newState};
}

} // namespace

llvm::ArrayRef<Entry> linearAttentionEntries() {
  static constexpr Entry entries[] = {{"nn.linear_attention", linearAttention}};
  return entries;
}

} // namespace fusion::reference
