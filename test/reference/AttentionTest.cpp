#include "test/reference/Testing.h"

namespace fusion::testing {
namespace {

struct Case {
  int64_t batch = 2, heads = 4, kvHeads = 2, queries = 5, keys = 7, width = 6, valueWidth = 3;
  double scale = 0.4, softcap = 0;
  bool causal = false, zeroRows = false;
  int64_t window = 0;
};

/// By the definition, one score at a time; `mask(b, h, i, j)` gives a number to add, -inf to drop.
template <class Mask>
std::vector<double> naive(const Case &c, const Tensor &qt, const Tensor &kt, const Tensor &vt, Mask mask) {
  std::vector<double> q = values(qt), k = values(kt), v = values(vt), y;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t i = 0; i < c.queries; ++i) {
        int64_t kv = b * c.kvHeads + h / (c.heads / c.kvHeads);
        std::vector<double> scores;
        double largest = -infinity, sum = 0;
        for (int64_t j = 0; j < c.keys; ++j) {
          double s = 0;
          for (int64_t d = 0; d < c.width; ++d)
            s += q[static_cast<size_t>(((b * c.heads + h) * c.queries + i) * c.width + d)] *
                 k[static_cast<size_t>((kv * c.keys + j) * c.width + d)];
          s *= c.scale;
          if (c.softcap > 0)
            s = c.softcap * std::tanh(s / c.softcap);
          s += mask(b, h, i, j);
          int64_t offset = i + c.keys - c.queries;
          if ((c.causal && j > offset) || (c.window > 0 && j <= offset - c.window))
            s = -infinity;
          scores.push_back(s);
          largest = std::max(largest, s);
        }
        for (double s : scores)
          sum += std::exp(s - largest);
        for (int64_t d = 0; d < c.valueWidth; ++d) {
          double total = 0;
          for (int64_t j = 0; j < c.keys; ++j)
            total += std::exp(scores[static_cast<size_t>(j)] - largest) / sum *
                     v[static_cast<size_t>((kv * c.keys + j) * c.valueWidth + d)];
          y.push_back(largest == -infinity ? (c.zeroRows || c.keys == 0 ? 0 : nan) : total);
        }
      }
  return y;
}

std::string attributes(const Case &c) {
  return fmt::format("{{scale = {:.6f} : f32, causal = {}, softcap = {:.6f} : f32, window = {} : i64, "
                     "zero_masked_rows = {}}}",
                     c.scale, c.causal, c.softcap, c.window, c.zeroRows);
}

std::vector<Tensor> operands(const Case &c, DType type) {
  return {randomTensor(type, {c.batch, c.heads, c.queries, c.width}, 51),
          randomTensor(type, {c.batch, c.kvHeads, c.keys, c.width}, 52),
          randomTensor(type, {c.batch, c.kvHeads, c.keys, c.valueWidth}, 53)};
}

template <class Mask>
void check(const Case &c, DType type, std::vector<Tensor> qkv, const Tensor *maskTensor, Mask mask) {
  SCOPED_TRACE(attributes(c) + std::string(name(type)));
  auto expected = naive(c, qkv[0], qkv[1], qkv[2], mask);
  if (maskTensor)
    qkv.push_back(*maskTensor);
  Tensor y = runOp("nn.attention", qkv, attributes(c), type, {c.batch, c.heads, c.queries, c.valueWidth});
  expectNear(y, expected, tolerance(type), type == DType::F32 ? 1e-5 : tolerance(type) / 4);
}

auto unmasked = [](int64_t, int64_t, int64_t, int64_t) { return 0.0; };

TEST(Attention, PlainCausalWindowAndSoftcap) {
  for (DType type : modelTypes) {
    check({}, type, operands({}, type), nullptr, unmasked);
    for (Case c :
         {Case{.causal = true}, Case{.causal = true, .window = 3}, Case{.window = 2}, Case{.softcap = 1.5},
          Case{.heads = 1, .kvHeads = 1, .queries = 1, .keys = 1},
          Case{.queries = 70, .keys = 70, .causal = true},
          Case{.heads = 6, .kvHeads = 1, .queries = 1, .keys = 300, .causal = true},
          Case{.queries = 7, .keys = 5, .causal = true, .zeroRows = true}, // early queries see no key
          Case{.queries = 7, .keys = 5, .causal = true}, Case{.batch = 1, .queries = 2, .keys = 0}})
      check(c, type, operands(c, type), nullptr, unmasked);
  }
}

TEST(Attention, Masks) {
  for (DType type : modelTypes) {
    Case c{.zeroRows = true};
    Tensor additive = randomTensor(type, {c.heads, 1, c.keys}, 54);
    std::vector<double> added = values(additive);
    check(c, type, operands(c, type), &additive,
          [&](int64_t, int64_t h, int64_t, int64_t j) { return added[static_cast<size_t>(h * c.keys + j)]; });
    // Rows: batch 0 keeps some keys, batch 1 none.
    std::vector<double> kept(static_cast<size_t>(c.batch * c.keys), 0);
    kept[0] = kept[3] = kept[4] = 1;
    Tensor keep = tensor(DType::Bool, {c.batch, 1, 1, c.keys}, kept);
    auto dropped = [&](int64_t b, int64_t, int64_t, int64_t j) {
      return kept[static_cast<size_t>(b * c.keys + j)] != 0 ? 0.0 : -infinity;
    };
    check(c, type, operands(c, type), &keep, dropped);
    c.zeroRows = false;
    check(c, type, operands(c, type), &keep, dropped);
  }
}

TEST(Attention, LargeFiniteMasksKeepTheRow) {
  Case c{.batch = 1, .heads = 1, .kvHeads = 1, .queries = 1, .keys = 2, .width = 1, .valueWidth = 1};
  Tensor mask = tensor(DType::F32, {1, 2}, {-1e30, -1e30});
  Tensor y = runOp("nn.attention",
                   {tensor(DType::F32, {1, 1, 1, 1}, {0}), tensor(DType::F32, {1, 1, 2, 1}, {1, 2}),
                    tensor(DType::F32, {1, 1, 2, 1}, {2, 4}), mask},
                   attributes(c), DType::F32, {1, 1, 1, 1});
  expectEqual(y, {3});
}

TEST(Attention, NanPropagates) {
  Case c{.batch = 1, .heads = 1, .kvHeads = 1, .queries = 2, .keys = 2, .width = 1, .valueWidth = 1};
  Tensor y = runOp("nn.attention",
                   {tensor(DType::F32, {1, 1, 2, 1}, {nan, 1}), tensor(DType::F32, {1, 1, 2, 1}, {1, 1}),
                    tensor(DType::F32, {1, 1, 2, 1}, {2, 4})},
                   attributes(c), DType::F32, {1, 1, 2, 1});
  expectEqual(y, {nan, 3});
}

} // namespace
} // namespace fusion::testing
