// add + RMSNorm of bf16 rows of 4096 and 8192 columns.
#include "row.cuh"

#include "runner.cuh"

template <int Width, int Chunks>
struct Config : RowConfig {
  static constexpr int threads = Width / 8 / Chunks, threadsPerRow = threads, vector = 8, passes = 2;
  static constexpr int chunks = Chunks;
  static constexpr i64 width = Width;
};

template <class Config>
struct AddRmsNorm {
  const bf16 *x, *residual, *weight;
  bf16 *normal, *sum;
  i64 count;
  using Thread = RowThread<Config>;
  using Vector = Vec<bf16, 8>;
  struct Row {
    i64 begin;
    Accumulator<Sum, f32> squares;
    f32 inverse;
  };
  struct Live {
    Vector x[Config::chunks], residual[Config::chunks], weight[Config::chunks];
  };
  DEVICE i64 rows() const { return count; }
  DEVICE Row row(i64 index) const {
    Row row;
    row.begin = index * Config::width;
    return row;
  }
  DEVICE void request(BeforeWait, const RowChunk &at, const Row &, Live &live) const {
    live.weight[at.k] = load_vec<bf16, 8>(weight + at.column);
  }
  DEVICE void request(AfterWait, const RowChunk &at, const Row &row, Live &live) const {
    live.x[at.k] = load_vec<bf16, 8>(x + row.begin + at.column);
    live.residual[at.k] = load_vec<bf16, 8>(residual + row.begin + at.column);
  }
  DEVICE void pass(Pass<0>, const RowChunk &at, Row &row, Live &live) const {
    live.x[at.k] = add_vec(live.x[at.k], live.residual[at.k]);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      row.squares.add_square(element_f32(live.x[at.k], i));
    store_vec(sum + row.begin + at.column, live.x[at.k]);
  }
  DEVICE void finish(Pass<0>, const Thread &thread, Row &row, Live &) const {
    row.inverse = inverse_sqrt_(thread.template total<0>(row.squares) * (1.f / Config::width) + 1e-6f);
  }
  DEVICE void pass(Pass<1>, const RowChunk &at, Row &row, Live &live) const {
    Vec<f32, 8> scaled;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      scaled[i] = element_f32(live.x[at.k], i) * row.inverse;
    store_vec(normal + row.begin + at.column, mul_vec(vec_from_f32<bf16>(scaled), live.weight[at.k]));
  }
};

#define ADD_RMS_NORM(name, width, chunks)                                                                    \
  KERNEL(width / 8 / chunks)                                                                                 \
  name(const bf16 *x, const bf16 *residual, const bf16 *weight, bf16 *normal, bf16 *sum, i64 count) {        \
    using C = Config<width, chunks>;                                                                         \
    row_kernel<C>(AddRmsNorm<C>{x, residual, weight, normal, sum, count});                                   \
  }
ADD_RMS_NORM(add_rms_norm_4096_2, 4096, 2)
ADD_RMS_NORM(add_rms_norm_4096_1, 4096, 1)
ADD_RMS_NORM(add_rms_norm_8192_2, 8192, 2)

template <class Kernel>
void time(const char *label, Kernel kernel, i64 width, unsigned threads, i64 rows) {
  const double bytes = 8. * double(rows * width);
  std::vector<std::tuple<const bf16 *, const bf16 *, const bf16 *, bf16 *, bf16 *, i64>> arguments;
  const size_t count = size_t(rows * width);
  for (size_t i = 0; i < bench::rotations(bytes); ++i)
    arguments.push_back({bench::random<bf16>(count), bench::random<bf16>(count),
                         bench::random<bf16>(size_t(width)), bench::random<bf16>(count),
                         bench::random<bf16>(count), rows});
  char text[64];
  std::snprintf(text, sizeof(text), "%s, %lld rows", label, rows);
  bench::time(text, kernel, {unsigned(rows), threads, 0}, bytes, 0, arguments);
}

int main() {
  for (i64 rows : {1, 16})
    time("add_rms_norm 4096", add_rms_norm_4096_2, 4096, 256, rows);
  for (i64 rows : {128, 1024, 8192})
    time("add_rms_norm 4096", add_rms_norm_4096_1, 4096, 512, rows);
  time("add_rms_norm 8192", add_rms_norm_8192_2, 8192, 512, 8192);
}
