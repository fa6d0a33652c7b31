// Templates of codegen/device with functors written by hand.
#pragma once

#include "codegen/plan/ProgramPlan.h"

#include <string>
#include <vector>

namespace fusion::samples {

/// A kernel whose text is complete; "const f32 *x" is a pointer parameter, "i64 n" an integer.
inline KernelPlan whole(std::string name, uint32_t threads, std::vector<std::string> parameters,
                        std::string source) {
  KernelPlan plan;
  plan.name = std::move(name);
  plan.schedule = "sample";
  plan.blockX = threads;
  for (const std::string &parameter : parameters) {
    const size_t cut = parameter.find_last_of(" *") + 1;
    plan.parameters.push_back({parameter.find('*') != std::string::npos ? KernelPlan::Parameter::Kind::Pointer
                                                                        : KernelPlan::Parameter::Kind::Scalar,
                               parameter.substr(0, cut), parameter.substr(cut)});
  }
  plan.source = std::move(source);
  return plan;
}

/// y = x * scale + 1, in vectors of 4 and one by one at the end.
inline KernelPlan flatScale() {
  return whole("flat_scale", 128, {"const f32 *x", "const f32 *scale", "f32 *y", "i64 n"},
               R"(#include "pointwise.cuh"
struct Config {
  static constexpr int threads = 128;
  static constexpr int width = 4;
  static constexpr bool rest = true;
};
struct Body {
  const f32 *x, *scale;
  f32 *y;
  f32 factor, shift;
  DEVICE void constants() { factor = load(scale); }
  DEVICE void uniforms() { shift = 1.f; }
  DEVICE void vector(i64 element) const {
    Vec<f32, 4> v = load_vec<f32, 4>(x + element);
    for (int lane = 0; lane < 4; ++lane)
      v[lane] = v[lane] * factor + shift;
    store_vec<f32, 4>(y + element, v);
  }
  DEVICE void element(i64 element) const { store(y + element, load(x + element) * factor + shift); }
};
KERNEL(128) flat_scale(const f32 *x, const f32 *scale, f32 *y, i64 n) {
  pointwise_flat<Config>(Body{x, scale, y}, n);
}
)");
}

/// y[row][column] = x[row][column] + 1000 row + column: rows of 12, in vectors of 4.
inline KernelPlan rowsPlace() {
  return whole("rows_place", 64, {"const f32 *x", "f32 *y", "i64 vectors"}, R"(#include "pointwise.cuh"
struct Config {
  static constexpr int threads = 64;
  static constexpr int width = 4;
  static constexpr int perRow = 3;
};
struct Body {
  const f32 *x;
  f32 *y;
  DEVICE void constants() {}
  DEVICE void uniforms() {}
  DEVICE void vector(i64 row, i64 column, i64 element) const {
    Vec<f32, 4> v = load_vec<f32, 4>(x + element);
    for (int lane = 0; lane < 4; ++lane)
      v[lane] = v[lane] + (f32)(1000 * row + column + lane);
    store_vec<f32, 4>(y + element, v);
  }
};
KERNEL(64) rows_place(const f32 *x, f32 *y, i64 vectors) { pointwise_rows<Config>(Body{x, y}, vectors); }
)");
}

/// y[i] = x[n - 1 - i], each thread several.
inline KernelPlan indexedReverse() {
  return whole("indexed_reverse", 32, {"const i64 *x", "i64 *y", "i64 n"}, R"(#include "pointwise.cuh"
struct Config {
  static constexpr int threads = 32;
};
struct Body {
  const i64 *x;
  i64 *y, n;
  DEVICE void vector(i64 vector) const { store(y + vector, load(x + (n - 1 - vector))); }
};
KERNEL(32) indexed_reverse(const i64 *x, i64 *y, i64 n) { pointwise_indexed<Config>(Body{x, y, n}, n); }
)");
}

/// Running sums of rows of i64.
inline KernelPlan runningSum(bool reverse, bool exclusive) {
  const std::string name =
      std::string("sums") + (reverse ? "_reverse" : "") + (exclusive ? "_exclusive" : "");
  return whole(name, 64,
               {"const i64 *x", "i64 *y", "i64 rows", "i64 length"}, std::string(R"(#include "scan.cuh"
struct Config {
  static constexpr int threads = 64;
  static constexpr bool reverse = )") + (reverse ? "true" : "false") + R"(;
  static constexpr bool exclusive = )" + (exclusive ? "true" : "false") + R"(;
  using Held = u64;
};
struct Body {
  const i64 *x;
  i64 *y, length, from;
  DEVICE void begin_row(i64 row) { from = row * length; }
  DEVICE u64 element(i64 at) const { return (u64)load(x + from + at); }
  DEVICE void put(i64 at, u64 sum) const { store(y + from + at, (i64)sum); }
};
KERNEL(64) )" + name + R"((const i64 *x, i64 *y, i64 rows, i64 length) {
  running_sum<Config>(Body{x, y, length}, rows, length);
}
)");
}

/// Where the largest of each row of f32 is: by "arg_max", or by "arg_max_of_block", which reads so many
/// neighbours at a time.
inline KernelPlan argMax(const std::string &function, int cluster = 1, int width = 1) {
  const std::string name = function + "_rows" + std::to_string(cluster) + "_" + std::to_string(width),
                    blocks = std::to_string(cluster),
                    bounds = cluster > 1 ? "KERNEL_CLUSTER(64, 1, " + blocks + ") " : "KERNEL(64) ";
  return whole(name, 64,
               {"const f32 *x", "i64 *y", "i64 rows", "i64 length"}, std::string(R"(#include "scan.cuh"
struct Config {
  static constexpr int threads = 64, cluster = )") + blocks + ", width = " + std::to_string(width) + R"(;
  using Held = f32;
};
struct Body {
  const f32 *x;
  i64 *y, length, from;
  DEVICE void begin_row(i64 row) { from = row * length; }
  DEVICE f32 element(i64 at) const { return load(x + from + at); }
  DEVICE void elements(i64 at, f32 (&held)[Config::width]) const {
    const Vec<f32, Config::width> loaded = load_vec<f32, Config::width>(x + from + at);
    for (int i = 0; i < Config::width; ++i)
      held[i] = held_as<f32>(loaded, i);
  }
  DEVICE void put(i64 row, i64 place) const { store(y + row, place); }
};
)" + bounds + name + R"((const f32 *x, i64 *y, i64 rows, i64 length) {
  )" + function + R"(<Config>(Body{x, y, length}, rows, length);
}
)");
}

/// Where the largest three of each row of i64 are.
inline KernelPlan topThree() {
  return whole("top_three", 64, {"const i64 *x", "i64 *y", "i64 rows", "i64 length"}, R"(#include "scan.cuh"
struct Config {
  static constexpr int threads = 64;
  static constexpr int held = 0; // the row is walked for each
  using Held = i64;
};
struct Body {
  const i64 *x;
  i64 *y, length, from;
  DEVICE void begin_row(i64 row) { from = row * length; }
  DEVICE i64 element(i64 at) const { return load(x + from + at); }
  DEVICE void put(i64 row, i64 rank, i64 place) const { store(y + row * 3 + rank, place); }
};
KERNEL(64) top_three(const i64 *x, i64 *y, i64 rows, i64 length) {
  top_k<Config>(Body{x, y, length}, rows, length, 3);
}
)");
}

inline std::vector<KernelPlan> templates() {
  return {flatScale(),
          rowsPlace(),
          indexedReverse(),
          runningSum(false, false),
          runningSum(true, false),
          runningSum(false, true),
          runningSum(true, true),
          argMax("arg_max"),
          argMax("arg_max_of_block"),
          argMax("arg_max_of_block", 8),
          argMax("arg_max_of_block", 8, 4),
          topThree()};
}

} // namespace fusion::samples
