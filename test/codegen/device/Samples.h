// Kernels in the form that the generator emits, each using one part of the prelude.
#pragma once

#include "codegen/plan/ProgramPlan.h"

#include <initializer_list>
#include <string>
#include <vector>

namespace fusion::samples {

/// "const f32 *x" is a pointer, "i64 n" an integer.
inline KernelPlan kernel(std::string name, uint32_t threads, std::initializer_list<std::string> parameters,
                         std::string body, std::string before = "") {
  KernelPlan plan;
  plan.name = std::move(name);
  plan.schedule = "sample";
  plan.blockX = threads;
  std::string list;
  for (const std::string &parameter : parameters) {
    const size_t cut = parameter.find_last_of(" *") + 1;
    const bool pointer = parameter.find('*') != std::string::npos;
    plan.parameters.push_back(
        {pointer ? KernelPlan::Parameter::Kind::Pointer : KernelPlan::Parameter::Kind::Scalar,
         parameter.substr(0, cut), parameter.substr(cut)});
    list += (list.empty() ? "" : ", ") + parameter;
  }
  plan.source =
      before + "KERNEL(" + std::to_string(threads) + ") " + plan.name + "(" + list + ") {\n" + body + "}\n";
  return plan;
}

/// y = x * scale, element by element: no thread knows of another.
inline KernelPlan scale() {
  return kernel("scale", 256, {"const bf16 *x", "f8e4m3 *y", "i64 count"}, R"(
  pdl_wait();
  const i64 index = ((i64)block_x() * 256 + thread_x()) * 8;
  if (index >= count)
    return;
  const Vec<bf16, 8> in = load_stream_vec<bf16, 8>(x + index);
  Vec<f8e4m3, 8> out;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    out[i] = from_f32<f8e4m3>(to_f32(in[i]) * 2.f);
  store_stream_vec<f8e4m3, 8>(y + index, out);
  pdl_launch_dependents();
)");
}

/// For each row of 1024: the sum, the largest value, the sum again with the first taken off.
inline KernelPlan rowSums() {
  return kernel("row_sums", 128, {"const f32 *x", "f32 *y"}, R"(
  const f32 *row = x + (i64)block_x() * 1024;
  const Vec<f32, 8> in = load_vec<f32, 8>(row + thread_x() * 8);
  f32 sum = 0.f, most = -inf_f32();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    sum = sum + in[i];
    most = max_nan(most, in[i]);
  }
  const f32 total = block_sum<128>(sum);
  const f32 largest = block_max<128>(most);
  const f32 rest = block_sum<128>(thread_x() == 0 ? sum - row[0] : sum);
  const f32 least = block_min<128>(most);
  if (thread_x() == 127) {
    f32 *out = y + (i64)block_x() * 4;
    store(out, total);
    store(out + 1, largest);
    store(out + 2, rest);
    store(out + 3, least);
  }
)");
}

/// Threads (x, y, z) of a 4 x 8 x 2 block hand each other values in reverse through shared memory.
inline KernelPlan reverse(bool withBarrier = true) {
  KernelPlan plan = kernel(withBarrier ? "reverse" : "reverse_without_barrier", 64,
                           {"const i64 *x", "i64 *y"}, std::string(R"(
  SHARED(i64, buffer, 64);
  const u32 at = thread_x() + block_dim_x() * (thread_y() + block_dim_y() * thread_z());
  const u32 block = block_x() + grid_dim_x() * (block_y() + grid_dim_y() * block_z());
  buffer[at] = load(x + block * 64 + at);
)") + (withBarrier ? "  barrier();\n" : "") + R"(
  store(y + block * 64 + at, buffer[63 - at]);
)");
  plan.blockX = 4;
  plan.blockY = 8;
  plan.blockZ = 2;
  return plan;
}

inline KernelPlan shuffles() {
  return kernel("shuffles", 64, {"f32 *f", "i64 *l", "u32 *votes"}, R"(
  const u32 at = thread_x();
  const f32 mine = (f32)at;
  f[at] = shuffle_xor(mine, 5);
  f[64 + at] = shuffle_down(mine, 3);
  f[128 + at] = shuffle_up(mine, 3);
  f[192 + at] = shuffle_index(mine, 7);
  f[256 + at] = warp_sum(mine);
  f[320 + at] = warp_max(mine);
  f[384 + at] = lanes_sum<8>(mine);
  l[at] = shuffle_xor((i64)at << 40, 1) + shuffle_index((u64)at, 2) + shuffle_up((i32)at, 1);
  l[64 + at] = (i64)shuffle_xor((f64)at, 16) + shuffle_xor(at, 2);
  votes[at] = warp_ballot(at % 3 == 0);
  votes[64 + at] = (warp_any(at == 40) ? 1 : 0) + (warp_all(at < 32) ? 2 : 0) + warp_id() * 4 + lane_id() * 8;
  warp_barrier();
)");
}

/// C[16][8] = A[16][32] B, operands through cp.async, ldmatrix and mma. B is [8][32] (rows are columns of the
/// product), or [32][8] when transposed.
inline KernelPlan product(const std::string &type, bool transposed, bool waits = true) {
  const std::string loadB = transposed ? "ldmatrix_x2_trans(fragmentB, b + (k + lane % 16) * 8);"
                                       : "ldmatrix_x2(fragmentB, b + lane % 8 * 32 + k + lane / 8 % 2 * 8);";
  KernelPlan plan = kernel("product_" + type + (transposed ? "_trans" : "") + (waits ? "" : "_unwaited"), 32,
                           {"const " + type + " *A", "const " + type + " *B", "f32 *C"}, R"(
  using T = )" + type + R"(;
  T *a = reinterpret_cast<T *>(dynamic_shared());
  T *b = a + 16 * 32;
  const u32 lane = lane_id();
  cp_async_16(b + lane * 8, B + lane * 8, true);
  cp_async_commit();
  for (u32 i = 0; i < 2; ++i)
    cp_async_16(a + (lane + i * 32) * 8, A + (lane + i * 32) * 8, true);
  cp_async_commit();
  )" + (waits ? "cp_async_wait<0>();" : "cp_async_wait<1>();") + R"(
  barrier();
  f32 sum[4] = {0.f, 0.f, 0.f, 0.f};
  for (u32 k = 0; k < 32; k += 16) {
    u32 fragmentA[4], fragmentB[2];
    ldmatrix_x4(fragmentA, a + lane % 16 * 32 + k + lane / 16 * 8);
    )" + loadB + R"(
    mma_m16n8k16(sum, fragmentA, fragmentB, T{});
  }
  for (u32 i = 0; i < 4; ++i)
    C[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sum[i];
)");
  plan.dynamicSharedBytes = (16 * 32 + 8 * 32) * 2;
  return plan;
}

/// The transposed four-matrix load: y[lane][i] holds the register pairs.
inline KernelPlan transposedLoad() {
  KernelPlan plan = kernel("transposed_load", 32, {"const u16 *x", "u32 *y"}, R"(
  SHARED(u16, tile, 256);
  const u32 lane = lane_id();
  cp_async_16(tile + lane * 8, x + lane * 8, lane != 31);
  cp_async_commit();
  cp_async_wait<0>();
  barrier();
  u32 r[4];
  ldmatrix_x4_trans(r, tile + lane * 8);
  store_vec<u32, 4>(y + lane * 4, Vec<u32, 4>{{r[0], r[1], r[2], r[3]}});
)");
  return plan;
}

/// A matrix in registers: y[lane] is the pair of the lane.
inline KernelPlan transposedMatrix() {
  return kernel("transposed_matrix", 32, {"const u32 *x", "u32 *y"}, R"(
  store(y + lane_id(), transpose_matrix(load(x + lane_id())));
)");
}

/// A histogram of x % 4, a sum and the number of blocks that came.
inline KernelPlan atomics() {
  return kernel("atomics", 64, {"const u32 *x", "u32 *counts", "f32 *sum"}, R"(
  const u32 value = load(x + block_x() * 64 + thread_x());
  atomic_add(counts + value % 4, 1u);
  atomic_add(sum, (f32)value);
  fence_device();
)");
}

/// One line of every function in f32, for value x[i].
inline KernelPlan functions() {
  return kernel("functions", 32, {"const f32 *x", "f32 *y", "i64 count"}, R"(
  const i64 at = (i64)block_x() * 32 + thread_x();
  if (at >= count)
    return;
  const f32 v = load(x + at);
  const f32 results[24] = {
      sqrt_(v), rsqrt_(v), exp_(v), log_(v), sin_(v), cos_(v), tanh_(v), erf_(v), pow_(v, 3.f), fabs_(v),
      floor_(v), ceil_(v), rint_(v), fmod_(v, 1.5f), exp2_(v), fma_(v, v, 1.f), max_nan(v, 0.5f),
      min_nan(v, 0.5f), sigmoid_(v), silu_(v), gelu_erf_(v), gelu_tanh_(v), gelu_quick_(v), softplus_(v)};
  for (int i = 0; i < 24; ++i)
    store(y + i * count + at, results[i]);
)");
}

inline KernelPlan quotients() {
  return kernel("quotients", 32, {"const f32 *x", "const f32 *by", "f32 *y", "i64 count"}, R"(
  const i64 at = (i64)block_x() * 32 + thread_x();
  if (at < count)
    store(y + at, divide(load(x + at), divisor(load(by + at))));
)");
}

/// y[i] = convert<To>(x[i]), spelled for device types.
inline KernelPlan conversion(const std::string &from, const std::string &to) {
  return kernel("convert_" + from + "_" + to, 256, {"const " + from + " *x", to + " *y", "i64 count"}, R"(
  const i64 at = (i64)block_x() * 256 + thread_x();
  if (at < count)
    store(y + at, convert<)" + to + R"(>(load(x + at)));
)");
}

inline const std::vector<std::string> &elementTypes() {
  static const std::vector<std::string> types = {"bool",   "i8",  "u8",   "i16", "u16",
                                                 "i32",    "u32", "i64",  "u64", "f8e4m3",
                                                 "f8e5m2", "f16", "bf16", "f32", "f64"};
  return types;
}

/// Everything that a device compiler must accept.
inline std::vector<KernelPlan> all() {
  std::vector<KernelPlan> plans = {
      scale(),          rowSums(), reverse(),  shuffles(), product("f16", false), product("bf16", true),
      transposedLoad(), transposedMatrix(), atomics(), functions()};
  for (const std::string &from : elementTypes())
    for (const std::string &to : {"f8e4m3", "bf16", "f32", "f64", "i8", "i64", "bool"})
      plans.push_back(conversion(from, to));
  return plans;
}

} // namespace fusion::samples
