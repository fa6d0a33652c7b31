#include "test/reference/Testing.h"

namespace fusion::testing {
namespace {

struct Case {
  int64_t batch = 2, queryHeads = 2, keyHeads = 2, heads = 2, tokens = 5, width = 4, valueWidth = 3;
  bool decays = true, decayPerKey = false, corrects = true, sharedBeta = false;
  double scale = 0.3;
};

using Matrix = std::vector<std::vector<double>>;

Matrix times(const Matrix &a, const Matrix &b) {
  Matrix c(a.size(), std::vector<double>(b[0].size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t k = 0; k < b.size(); ++k)
      for (size_t j = 0; j < b[0].size(); ++j)
        c[i][j] += a[i][k] * b[k][j];
  return c;
}

struct Results {
  std::vector<double> y, state;
};

/// By matrices: S_t = (I - beta k kᵀ) diag(e^g) S_(t-1) + beta k vᵀ; without beta, S_t = diag(e^g) S_(t-1) +
/// k vᵀ.
Results byMatrices(const Case &c, const std::vector<Tensor> &operands) {
  auto at = [&](size_t operand, int64_t b, int64_t head, int64_t of, int64_t row, int64_t column) {
    const Shape &shape = operands[operand].shape();
    const int64_t shared = head / (of / shape[1]);
    return values(operands[operand])[static_cast<size_t>(
        ((b * shape[1] + shared) * shape[2] + row) * shape[3] + column)];
  };
  const int64_t results = std::max(c.queryHeads, c.heads);
  const auto d = static_cast<size_t>(c.width), dv = static_cast<size_t>(c.valueWidth);
  Results made;
  made.y.resize(static_cast<size_t>(c.batch * results * c.tokens * c.valueWidth));
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h) {
      Matrix state(d, std::vector<double>(dv));
      for (size_t i = 0; i < d; ++i)
        for (size_t j = 0; j < dv; ++j)
          state[i][j] = at(3, b, h, c.heads, static_cast<int64_t>(i), static_cast<int64_t>(j));
      for (int64_t t = 0; t < c.tokens; ++t) {
        const double beta = c.corrects ? at(c.decays ? 5 : 4, b, h, c.heads, t, 0) : 1;
        Matrix forget(d, std::vector<double>(d)), add(d, std::vector<double>(dv));
        for (size_t i = 0; i < d; ++i) {
          const auto row = static_cast<int64_t>(i);
          const double key = at(1, b, h, c.heads, t, row);
          for (size_t j = 0; j < d; ++j) {
            const double decay =
                c.decays ? std::exp(at(4, b, h, c.heads, t, c.decayPerKey ? static_cast<int64_t>(j) : 0)) : 1;
            const double known =
                c.corrects ? beta * key * at(1, b, h, c.heads, t, static_cast<int64_t>(j)) : 0;
            forget[i][j] = ((i == j ? 1 : 0) - known) * decay;
          }
          for (size_t j = 0; j < dv; ++j)
            add[i][j] = beta * key * at(2, b, h, c.heads, t, static_cast<int64_t>(j));
        }
        state = times(forget, state);
        for (size_t i = 0; i < d; ++i)
          for (size_t j = 0; j < dv; ++j)
            state[i][j] += add[i][j];
        for (int64_t q = h * results / c.heads; q < (h + 1) * results / c.heads; ++q)
          for (size_t j = 0; j < dv; ++j) {
            double sum = 0;
            for (size_t i = 0; i < d; ++i)
              sum += at(0, b, q, results, t, static_cast<int64_t>(i)) * state[i][j];
            made.y[static_cast<size_t>(((b * results + q) * c.tokens + t) * c.valueWidth) + j] =
                c.scale * sum;
          }
      }
      for (const std::vector<double> &row : state)
        made.state.insert(made.state.end(), row.begin(), row.end());
    }
  return made;
}

void checkCase(const Case &c, DType type = DType::F32, DType stateType = DType::F32) {
  std::vector<Tensor> operands = {randomTensor(type, {c.batch, c.queryHeads, c.tokens, c.width}, 1),
                                  randomTensor(type, {c.batch, c.keyHeads, c.tokens, c.width}, 2, 0.5),
                                  randomTensor(type, {c.batch, c.heads, c.tokens, c.valueWidth}, 3),
                                  randomTensor(stateType, {c.batch, c.heads, c.width, c.valueWidth}, 4)};
  if (c.decays)
    operands.push_back(
        randomTensor(type, {c.batch, c.heads, c.tokens, c.decayPerKey ? c.width : 1}, 5, 0.2, -0.4));
  if (c.corrects)
    operands.push_back(randomTensor(type, {c.batch, c.sharedBeta ? 1 : c.heads, c.tokens, 1}, 6, 0.2, 0.5));
  auto made = tryOp("nn.linear_attention", operands,
                    fmt::format("{{scale = {} : f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, {}, {}>}}",
                                c.scale, c.decays ? 1 : 0, c.corrects ? 1 : 0),
                    {typeText(type, {c.batch, std::max(c.queryHeads, c.heads), c.tokens, c.valueWidth}),
                     typeText(stateType, operands[3].shape())});
  ASSERT_TRUE(made) << made.error().message;
  const Results expected = byMatrices(c, operands);
  expectNear((*made)[0], expected.y, tolerance(type), 3e-6);
  expectNear((*made)[1], expected.state, tolerance(stateType), 3e-6);
}

TEST(LinearAttention, Rules) {
  for (bool decays : {false, true})
    for (bool corrects : {false, true})
      for (DType type : modelTypes)
        checkCase({.decays = decays, .corrects = corrects}, type);
  checkCase({.decayPerKey = true});
  checkCase({.decayPerKey = true, .corrects = false});
}

TEST(LinearAttention, StateOfEachType) {
  for (DType stateType : modelTypes)
    checkCase({}, DType::BF16, stateType);
}

TEST(LinearAttention, SharedHeads) {
  checkCase({.queryHeads = 2, .keyHeads = 2, .heads = 4});
  checkCase({.queryHeads = 4, .keyHeads = 1, .heads = 2, .sharedBeta = true});
  checkCase({.queryHeads = 1, .keyHeads = 3, .heads = 3});
}

TEST(LinearAttention, NoTokens) { checkCase({.tokens = 0}); }

} // namespace
} // namespace fusion::testing
