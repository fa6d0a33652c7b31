// silu(gate) * up of bf16, all values one run, and the same from rows that hold both side by side.
#include "pointwise.cuh"

#include "runner.cuh"

struct Config {
  static constexpr int threads = 256, width = 8, perRow = 14336 / 8;
  static constexpr bool rest = false;
};

DEVICE Vec<bf16, 8> gated(const Vec<bf16, 8> &gate, const Vec<bf16, 8> &up) {
  Vec<f32, 8> activated;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    activated[i] = silu_near(element_f32(gate, i));
  return mul_vec(vec_from_f32<bf16>(activated), up);
}

struct Flat {
  const bf16 *gate, *up;
  bf16 *y;
  DEVICE void constants() {}
  DEVICE void uniforms() {}
  DEVICE void vector(i64 element) const {
    store_vec(y + element, gated(load_vec<bf16, 8>(gate + element), load_vec<bf16, 8>(up + element)));
  }
};
KERNEL(256) gated_flat(const bf16 *gate, const bf16 *up, bf16 *y, i64 count) {
  pointwise_flat<Config>(Flat{gate, up, y}, count);
}

struct Packed {
  static constexpr i64 width = 14336;
  const bf16 *x;
  bf16 *y;
  DEVICE void constants() {}
  DEVICE void uniforms() {}
  DEVICE void vector(i64 row, i64 column, i64 element) const {
    const bf16 *from = x + row * 2 * width + column;
    store_vec(y + element, gated(load_vec<bf16, 8>(from), load_vec<bf16, 8>(from + width)));
  }
};
KERNEL(256) gated_packed(const bf16 *x, bf16 *y, i64 vectors) {
  pointwise_rows<Config>(Packed{x, y}, vectors);
}

int main() {
  for (i64 rows : {1, 128, 2048}) {
    const size_t count = size_t(rows * Packed::width);
    const double bytes = 6. * double(count);
    const unsigned grid = unsigned((count / 8 + 255) / 256);
    std::vector<std::tuple<const bf16 *, const bf16 *, bf16 *, i64>> flat;
    std::vector<std::tuple<const bf16 *, bf16 *, i64>> packed;
    for (size_t i = 0; i < bench::rotations(bytes); ++i) {
      flat.push_back({bench::random<bf16>(count), bench::random<bf16>(count), bench::random<bf16>(count),
                      i64(count)});
      packed.push_back({bench::random<bf16>(2 * count), bench::random<bf16>(count), i64(count / 8)});
    }
    char text[64];
    std::snprintf(text, sizeof(text), "gated 14336, flat, %lld rows", rows);
    bench::time(text, gated_flat, {grid, 256, 0}, bytes, 0, flat);
    std::snprintf(text, sizeof(text), "gated 14336, packed, %lld rows", rows);
    bench::time(text, gated_packed, {grid, 256, 0}, bytes, 0, packed);
  }
}
