// The row templates with bodies that a test writes: emulated against host loops, and compiled for all
// targets.
#include "codegen/device/Includes.h"
#include "runtime/cuda/Nvrtc.h"
#include "test/codegen/device/Emulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

using namespace fusion;

namespace {

/// y = x - the largest of the row; statistics: sum, largest, smallest, sum of squares about the mean, mean.
struct Case {
  int width = 64, threads = 128, threadsPerRow = 32, vector = 1, chunks = 0;
  bool shifted = false;
  int rows = 5;

  bool held() const { return chunks > 0; }
  int rowsPerBlock() const { return threads / threadsPerRow; }
};

const std::vector<Case> &cases() {
  static const std::vector<Case> all = {
      {.width = 64, .threadsPerRow = 8, .vector = 4, .chunks = 2},  // 16 rows a block
      {.width = 1, .threadsPerRow = 1, .chunks = 1},                // one thread a row
      {.width = 50, .threadsPerRow = 16, .vector = 2, .chunks = 2}, // threads beyond the end
      {.width = 33, .threadsPerRow = 32, .chunks = 2},              // chunks beyond the end
      {.width = 1024, .threads = 128, .threadsPerRow = 128, .vector = 4, .chunks = 2},
      {.width = 1000, .threads = 128, .threadsPerRow = 128, .vector = 4, .chunks = 2},
      {.width = 1000, .threads = 512, .threadsPerRow = 512, .vector = 2, .chunks = 1},
      {.width = 1001, .threads = 256, .threadsPerRow = 256, .vector = 4, .chunks = 1, .shifted = true},
      {.width = 301, .threadsPerRow = 32, .vector = 4, .chunks = 3, .shifted = true},
      {.width = 3000, .threads = 256, .threadsPerRow = 256, .vector = 4}, // each pass reads the row again
      {.width = 77, .threadsPerRow = 32},
  };
  return all;
}

std::string configText(const Case &c, const std::string &base = "RowConfig",
                       const std::string &members = "") {
  return fmt::format(R"(
struct Config : {} {{
  static constexpr int threads = {}, threadsPerRow = {}, vector = {}, chunks = {}, passes = 3;
  static constexpr i64 width = {};
  static constexpr bool shifted = {};
  {}
}};
)",
                     base, c.threads, c.threadsPerRow, c.vector, c.chunks, c.held() ? c.width : 0, c.shifted,
                     members);
}

/// Squares about the mean: by moments where the thread has the row in registers, else about the mean of the
/// pass before.
std::string bodyText(const Case &c) {
  const bool inside = c.shifted;
  return fmt::format(R"(
struct Body {{
  const f32 *x;
  f32 *y, *statistics;
  i64 count, columns;
  using Thread = RowThread<Config>;
  using Vector = Vec<f32, Config::vector>;
  struct Row {{
    const f32 *from;
    f32 *to, *out;
    Accumulator<Sum, f32> sum, squares;
    Accumulator<Mean<true>, f32> average;
    Accumulator<Max, f32> most;
    Accumulator<Min, f32> least;
    RowMoments moments;
    f32 total, largest, smallest, mean, deviations;
  }};
  struct Live {{
    Vector x[{0}];
  }};
  DEVICE i64 rows() const {{ return count; }}
  DEVICE i64 width() const {{ return columns; }}
  DEVICE Row row(i64 index) const {{
    Row row;
    row.from = x + index * columns;
    row.to = y + index * columns;
    row.out = statistics + index * 5;
    return row;
  }}
  DEVICE i64 misalignment(const Row &row) const {{ return (row.from - x) % Config::vector; }}
  DEVICE Vector loaded(const RowChunk &at, const Row &row) const {{
    if constexpr (Config::shifted)
      return load_edge_vec<f32, Config::vector, false>(row.from, at.column, columns);
    else
      return load_vec<f32, Config::vector>(row.from + at.column);
  }}
  DEVICE bool counts(const RowChunk &at, int i) const {{ return {1}; }}
  DEVICE void request(AfterWait, const RowChunk &at, const Row &row, Live &live) const {{ live.x[at.k] = loaded(at, row); }}
  DEVICE Vector values(const RowChunk &at, const Row &row, const Live &live) const {{
    return Thread::held ? live.x[at.k] : loaded(at, row);
  }}
  DEVICE void pass(Pass<0>, const RowChunk &at, Row &row, Live &live) const {{
    const Vector values = this->values(at, row, live);
#pragma unroll
    for (int i = 0; i < Config::vector; ++i)
      if (counts(at, i)) {{
        row.sum.add(values[i]);
        row.average.add(values[i]);
        row.most.add(values[i]);
        row.least.add(values[i]);
      }}
  }}
  DEVICE void finish(Pass<0>, const Thread &thread, Row &row, Live &) const {{
    row.largest = thread.total<0>(row.most);
    row.smallest = thread.total<1>(row.least);
    row.total = thread.total<2>(row.sum);
    row.mean = thread.total<5>(row.average, (f32)columns);
    if constexpr (Thread::held)
      row.moments = thread.moments(row.average);
  }}
  DEVICE void pass(Pass<1>, const RowChunk &at, Row &row, Live &live) const {{
    const Vector values = this->values(at, row, live);
#pragma unroll
    for (int i = 0; i < Config::vector; ++i)
      if (counts(at, i)) {{
        if constexpr (Thread::held)
          row.moments.add(values[i]);
        else
          row.squares.add_square(values[i] - row.mean);
      }}
  }}
  DEVICE void finish(Pass<1>, const Thread &thread, Row &row, Live &) const {{
    if constexpr (Thread::held) {{
      const Moments moments = thread.total<3>(row.moments);
      row.mean = moments.mean;
      row.deviations = moments.squares;
    }} else {{
      row.deviations = thread.total<4>(row.squares);
    }}
  }}
  DEVICE void pass(Pass<2>, const RowChunk &at, Row &row, Live &live) const {{
    Vector values = this->values(at, row, live);
#pragma unroll
    for (int i = 0; i < Config::vector; ++i)
      values[i] = values[i] - row.largest;
    if constexpr (Config::shifted) {{
      if (at.writes)
        store_edge_vec(row.to, at.column, columns, values);
    }} else if (at.writes) {{
      store_vec(row.to + at.column, values);
    }}
  }}
  DEVICE void store_row(Row &row) const {{
    store(row.out, row.total);
    store(row.out + 1, row.largest);
    store(row.out + 2, row.smallest);
    store(row.out + 3, row.deviations);
    store(row.out + 4, row.mean);
  }}
}};
)",
                     std::max(c.chunks, 1), inside ? "is_inside(at.column + i, columns)" : "at.inside");
}

KernelPlan kernel(const Case &c) {
  return samples::kernel("row_statistics", static_cast<uint32_t>(c.threads),
                         {"const f32 *x", "f32 *y", "f32 *statistics", "i64 count", "i64 columns"},
                         "  row_kernel<Config>(Body{x, y, statistics, count, columns});\n",
                         "#include \"row.cuh\"\n" + configText(c) + bodyText(c));
}

std::string textOf(const Case &c) {
  return fmt::format("{} width, {} threads, {} a row, vectors of {}, {} held{}", c.width, c.threads,
                     c.threadsPerRow, c.vector, c.chunks, c.shifted ? ", shifted" : "");
}

void checkEmulated(const Case &c) {
  SCOPED_TRACE(textOf(c));
  std::mt19937 random(static_cast<unsigned>(c.width * 7 + c.threads));
  const size_t count = static_cast<size_t>(c.rows * c.width);
  std::vector<float> x(count + 8), y(count + 8, -1), statistics(static_cast<size_t>(c.rows) * 5);
  for (float &value : x)
    value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 8;
  const uint32_t grid = static_cast<uint32_t>((c.rows + c.rowsPerBlock() - 1) / c.rowsPerBlock());
  const Status status =
      samples::run(kernel(c), grid, x.data(), y.data(), statistics.data(), int64_t(c.rows), int64_t(c.width));
  ASSERT_TRUE(status) << samples::messageOf(status);
  for (int row = 0; row < c.rows; ++row) {
    const auto from = x.begin() + row * c.width, to = from + c.width;
    double sum = 0, squares = 0;
    for (auto at = from; at != to; ++at)
      sum += *at;
    for (auto at = from; at != to; ++at)
      squares += (*at - sum / c.width) * (*at - sum / c.width);
    const float largest = *std::max_element(from, to), smallest = *std::min_element(from, to);
    const float *found = &statistics[static_cast<size_t>(row) * 5];
    EXPECT_NEAR(found[0], sum, 1e-5 * c.width * 125);
    EXPECT_EQ(found[1], largest);
    EXPECT_EQ(found[2], smallest);
    EXPECT_NEAR(found[3], squares, 1e-5 * squares + 1e-3);
    EXPECT_NEAR(found[4], sum / c.width, 1e-3);
    for (int column = 0; column < c.width; ++column)
      ASSERT_EQ(y[static_cast<size_t>(row * c.width + column)], from[column] - largest)
          << row << ", " << column;
  }
  EXPECT_EQ(y[count], -1) << "written beyond the last row";
}

/// A sum over ranks with the body of an identity.
std::string allReduceText(bool twoShot, bool gathersRows, int cluster) {
  return configText(
             {.width = 4096,
              .threads = 512 / cluster,
              .threadsPerRow = 512 / cluster,
              .vector = 8,
              .chunks = cluster},
             "AllReduceRowConfig",
             fmt::format(
                 "static constexpr int ranks = 4, cluster = {};\n  static constexpr bool twoShot = {}, "
                 "gathersRows = {};\n  static constexpr i64 rowBytes = 8192, gatheredBytes = 8192;",
                 cluster, twoShot, gathersRows)) +
         R"(
struct Body {
  const bf16 *x;
  bf16 *y;
  i64 count;
  using Thread = RowThread<Config>;
  struct Row {
    const bf16 *from;
    bf16 *to;
    AllReduceRow<Config> ranks;
    Accumulator<Sum, f32> squares;
    f32 inverse;
  };
  struct Live {
    Vec<bf16, 8> sum[Thread::chunks];
  };
  DEVICE i64 rows() const { return count; }
  DEVICE i64 blocks() const { return count; }
  DEVICE i64 slot_bytes() const { return count * 8192; }
  DEVICE i64 gather_slot_bytes() const { return count * 8192; }
  DEVICE i64 area_bytes() const { return count * 8192 * 6; }
  DEVICE Row row(i64 index) const {
    Row row;
    row.from = x + index * 4096;
    row.to = y + index * 4096;
    return row;
  }
  DEVICE Vec<bf16, 8> addend(const RowChunk &at, const Row &row, const Live &) const {
    return load_vec<bf16, 8>(row.from + at.column);
  }
  DEVICE void set_sum(const RowChunk &at, Live &live, const Vec<bf16, 8> &sum) const { live.sum[at.k] = sum; }
  DEVICE void gather(const RowChunk &at, const Row &row) const {
    store_vec(row.to + at.column, row.ranks.gathered<bf16, 8>(at.column * 2));
  }
  DEVICE void gather(const Row &) const {}
  DEVICE void pass(Pass<0>, const RowChunk &at, Row &row, Live &live) const {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      row.squares.add_square(element_f32(live.sum[at.k], i));
  }
  DEVICE void finish(Pass<0>, const Thread &thread, Row &row, Live &) const {
    row.inverse = inverse_sqrt_(thread.total<0>(row.squares));
  }
  DEVICE void pass(Pass<1>, const RowChunk &, Row &, Live &) const {}
  DEVICE void pass(Pass<2>, const RowChunk &at, Row &row, Live &live) const {
    Vec<f32, 8> normal;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      normal[i] = element_f32(live.sum[at.k], i) * row.inverse;
    Vec<bf16, 8> result = vec_from_f32<bf16>(normal);
    if constexpr (Config::gathersRows)
      result = row.ranks.gather(at.column * 2, result);
    store_vec(row.to + at.column, result);
  }
};
)";
}

void compileFor(const char *target) {
  auto nvrtc = Nvrtc::instance();
  if (!nvrtc)
    GTEST_SKIP() << nvrtc.error().message;
  std::string source = "#include \"all_reduce_row.cuh\"\n";
  int number = 0;
  for (const Case &c : cases())
    source += fmt::format(
        "namespace of_{0} {{{1}{2}KERNEL_RESIDENT({3}, {4}) row_{0}(const f32 *x, f32 *y, f32 *statistics, "
        "i64 count, "
        "i64 columns) {{\n  row_kernel<Config>(Body{{x, y, statistics, count, columns}});\n}}\n}}\n",
        number++, configText(c), bodyText(c), c.threads, std::max(1, 1024 / c.threads));
  for (int cluster : {1, 4})
    for (int variant = 0; variant < 3; ++variant)
      source += fmt::format(
          "namespace of_{0} {{{1}{2} row_{0}(const bf16 *x, bf16 *y, Exchange *exchange, i64 count) {{\n"
          "  all_reduce_row_kernel<Config>(Body{{x, y, count}}, exchange);\n}}\n}}\n",
          number++, allReduceText(variant > 0, variant > 1, cluster),
          cluster > 1 ? fmt::format("KERNEL_CLUSTER({}, 1, {})", 512 / cluster, cluster)
                      : std::string("KERNEL_RESIDENT(512, 1)"));
  auto cubin = (*nvrtc)->compile(expandSource(source, Flavour::Cuda), "rows", target);
  ASSERT_TRUE(cubin) << cubin.error().message;
  EXPECT_EQ(cubin->spillBytes, 0) << cubin->log;
  EXPECT_EQ(cubin->log.find("warning"), std::string::npos) << cubin->log;
}

} // namespace

TEST(RowKernel, Emulated) {
  for (const Case &c : cases())
    checkEmulated(c);
}

TEST(RowKernel, CompilesForSm80) { compileFor("sm_80"); }
TEST(RowKernel, CompilesForSm90a) { compileFor("sm_90a"); }
TEST(RowKernel, CompilesForSm100a) { compileFor("sm_100a"); }
TEST(RowKernel, CompilesForSm120) { compileFor("sm_120"); }
