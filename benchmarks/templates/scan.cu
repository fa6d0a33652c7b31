// Running sums and places of the largest element, of f32 rows: a vocabulary's, and many short ones.
#include "scan.cuh"

#include "runner.cuh"

struct Config {
  static constexpr int threads = 128;
  static constexpr bool reverse = false, exclusive = false;
  using Held = f32;
};

struct Sums {
  const f32 *x;
  f32 *y;
  i64 length;
  const f32 *from = nullptr;
  f32 *to = nullptr;
  DEVICE void begin_row(i64 row) {
    from = x + row * length;
    to = y + row * length;
  }
  DEVICE f32 element(i64 at) const { return load(from + at); }
  DEVICE void put(i64 at, f32 sum) const { store(to + at, sum); }
};
KERNEL(128) running_sums(const f32 *x, f32 *y, i64 rows, i64 length) {
  running_sum<Config>(Sums{x, y, length}, rows, length);
}

struct Largest {
  const f32 *x;
  i64 *y;
  i64 length;
  const f32 *from = nullptr;
  DEVICE void begin_row(i64 row) { from = x + row * length; }
  DEVICE f32 element(i64 at) const { return load(from + at); }
  DEVICE void put(i64 row, i64 place) const { store(y + row, place); }
};
KERNEL(128) largest(const f32 *x, i64 *y, i64 rows, i64 length) {
  arg_max<Config>(Largest{x, y, length}, rows, length);
}

i64 *places(i64 count) {
  i64 *memory = nullptr;
  bench::check(cudaMalloc(&memory, size_t(count) * sizeof(i64)));
  return memory;
}

int main() {
  const i64 shapes[][2] = {{1, 128256}, {32, 128256}, {65536, 512}};
  for (const auto &[rows, length] : shapes) {
    const size_t count = size_t(rows * length);
    const unsigned grid = unsigned((rows + 3) / 4);
    std::vector<std::tuple<const f32 *, f32 *, i64, i64>> sums;
    std::vector<std::tuple<const f32 *, i64 *, i64, i64>> maxima;
    for (size_t i = 0; i < bench::rotations(4. * double(count)); ++i) {
      sums.push_back({bench::random<f32>(count), bench::random<f32>(count), rows, length});
      maxima.push_back({bench::random<f32>(count), places(rows), rows, length});
    }
    char text[64];
    std::snprintf(text, sizeof(text), "running sum, %lld x %lld", rows, length);
    bench::time(text, running_sums, {grid, 128, 0}, 8. * double(count), 0, sums);
    std::snprintf(text, sizeof(text), "arg max, %lld x %lld", rows, length);
    bench::time(text, largest, {grid, 128, 0}, 4. * double(count), 0, maxima);
  }
}
