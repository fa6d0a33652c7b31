// What one kernel for a chain of matmuls could gain: the matmuls and norms of Llama-3.2-1B's layers, without
// their attention, in one launch. Printed beside it: the same without waiting for results (they are wrong then),
// which is what the waiting costs.
//
//   nvcc ... -lcuda (see runner.cuh); needs an sm_90a with at least 128 multiprocessors

#include "matmul_chain.cuh"
#include "runner.cuh"
#include "weight_maps.cuh"

#include <cmath>

namespace chain {

// The definition, one thread an element.
__global__ void product(const bf16 *a, const bf16 *weights, f32 *to, int n, int k) {
  const int column = int(blockIdx.x * blockDim.x + threadIdx.x), row = int(blockIdx.y);
  f32 sum = 0;
  for (int i = 0; i < k; ++i)
    sum += to_f32(a[(i64)row * k + i]) * to_f32(weights[(i64)column * k + i]);
  to[(i64)row * n + column] = sum;
}
__global__ void gated(const f32 *gate, const f32 *up, bf16 *to) {
  const i64 i = blockIdx.x * blockDim.x + threadIdx.x;
  const f32 g = to_f32(from_f32<bf16>(gate[i])), u = to_f32(from_f32<bf16>(up[i]));
  to[i] = from_f32<bf16>(g / (1.f + expf(-g)) * u);
}
__global__ void added_and_normed(bf16 *x, const f32 *sum, const bf16 *scale, bf16 *to) {
  __shared__ f32 total;
  const i64 row = (i64)blockIdx.x * width;
  if (threadIdx.x == 0)
    total = 0;
  __syncthreads();
  f32 square = 0;
  for (int i = int(threadIdx.x); i < width; i += int(blockDim.x)) {
    x[row + i] = from_f32<bf16>(to_f32(x[row + i]) + to_f32(from_f32<bf16>(sum[row + i])));
    square += to_f32(x[row + i]) * to_f32(x[row + i]);
  }
  atomicAdd(&total, square);
  __syncthreads();
  for (int i = int(threadIdx.x); i < width; i += int(blockDim.x))
    to[row + i] = from_f32<bf16>(to_f32(from_f32<bf16>(to_f32(x[row + i]) * rsqrtf(total / width + 1e-5f))) *
                                 to_f32(scale[i]));
}
__global__ void mixed_of(const f32 *head_sums, bf16 *to) {
  for (int i = int(threadIdx.x); i < width; i += int(blockDim.x))
    to[(i64)blockIdx.x * width + i] = from_f32<bf16>(head_sums[(i64)blockIdx.x * heads + i]);
}

struct Weights {
  bf16 *output = bench::random<bf16>(size_t(layers) * width * width),
       *gate = bench::random<bf16>(size_t(layers) * inner * width),
       *up = bench::random<bf16>(size_t(layers) * inner * width),
       *down = bench::random<bf16>(size_t(layers) * width * inner),
       *heads_ = bench::random<bf16>(size_t(layers) * heads * width), *scale = bench::random<bf16>(width);
};
template <class T>
T *zeros(size_t count) {
  T *memory = nullptr;
  bench::check(cudaMalloc(&memory, count * sizeof(T)));
  bench::check(cudaMemset(memory, 0, count * sizeof(T)));
  return memory;
}

/// The distance of two vectors in parts of the second one's length.
double distance(const bf16 *a, const bf16 *b, size_t count) {
  auto value = [](uint16_t bits) {
    const uint32_t wide = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return double(value);
  };
  std::vector<uint16_t> x(count), y(count);
  bench::check(cudaMemcpy(x.data(), a, count * 2, cudaMemcpyDeviceToHost));
  bench::check(cudaMemcpy(y.data(), b, count * 2, cudaMemcpyDeviceToHost));
  double apart = 0, length = 0;
  for (size_t i = 0; i < count; ++i) {
    const double u = value(x[i]), v = value(y[i]);
    apart += (u - v) * (u - v);
    length += v * v;
  }
  return std::sqrt(apart / length);
}

/// x and the next layer's rows after all layers.
void compute(const Weights &weights, const Buffers &to, int m) {
  f32 *sums = zeros<f32>(size_t(m) * inner), *others = zeros<f32>(size_t(m) * inner);
  auto multiply = [&](const bf16 *a, const bf16 *b, f32 *c, int n, int k) {
    product<<<dim3(unsigned(n / 128), unsigned(m)), 128>>>(a, b, c, n, k);
  };
  for (int layer = 0; layer < layers; ++layer) {
    const size_t l = size_t(layer);
    multiply(to.mixed, weights.output + l * width * width, sums, width, width);
    added_and_normed<<<m, 256>>>(to.x, sums, weights.scale, to.normed);
    multiply(to.normed, weights.gate + l * inner * width, sums, inner, width);
    multiply(to.normed, weights.up + l * inner * width, others, inner, width);
    gated<<<m * inner / 256, 256>>>(sums, others, to.activated);
    multiply(to.activated, weights.down + l * width * inner, sums, width, inner);
    added_and_normed<<<m, 256>>>(to.x, sums, weights.scale, to.normed);
    multiply(to.normed, weights.heads_ + l * heads * width, sums, heads, width);
    mixed_of<<<m, 256>>>(sums, to.mixed);
  }
  bench::check(cudaDeviceSynchronize());
  bench::check(cudaFree(sums));
  bench::check(cudaFree(others));
}

template <int Rows, int Stages, int RowStages, int OnTheirWay, bool Waits>
void time(const Weights &weights, int m) {
  using Kind = Chain<Rows, Stages, RowStages, OnTheirWay, Waits>;
  auto fresh = [&] {
    return Buffers{zeros<bf16>(Rows * width),
                   zeros<bf16>(Rows * width),
                   zeros<bf16>(Rows * width),
                   zeros<bf16>(Rows * inner),
                   zeros<f32>(parts * m * width),
                   zeros<f32>(head_parts * m * heads),
                   weights.scale,
                   zeros<u32>(layers * Counters * counter_pitch)};
  };
  Buffers buffers = fresh(), expected = fresh();
  bf16 *rows = bench::random<bf16>(size_t(m) * width);
  auto begin_with = [&](const Buffers &to) {
    bench::check(cudaMemcpy(to.mixed, rows, size_t(m) * width * 2, cudaMemcpyDeviceToDevice));
    bench::check(cudaMemset(to.x, 0, size_t(m) * width * 2));
  };
  Maps maps{
      map_of(weights.output, layers * width, width, 64), map_of(weights.gate, layers * inner, width, 64),
      map_of(weights.up, layers * inner, width, 64),     map_of(weights.down, layers * width, inner, 64),
      map_of(weights.heads_, layers * heads, width, 64), map_of(buffers.mixed, Rows, width, Rows),
      map_of(buffers.normed, Rows, width, Rows),         map_of(buffers.activated, Rows, inner, Rows)};
  auto kernel = run<Rows, Stages, RowStages, OnTheirWay, Waits>;
  bench::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(Kind::shared)));
  cudaEvent_t begin, end;
  bench::check(cudaEventCreate(&begin));
  bench::check(cudaEventCreate(&end));
  std::vector<float> times;
  for (int turn = 0; turn < 25; ++turn) {
    begin_with(buffers);
    bench::check(cudaMemset(buffers.counters, 0, layers * Counters * counter_pitch * 4));
    void *arguments[] = {&maps, &buffers, &m};
    bench::check(cudaEventRecord(begin));
    bench::check(
        cudaLaunchCooperativeKernel(kernel, dim3(blocks), dim3(192), arguments, Kind::shared, nullptr));
    bench::check(cudaEventRecord(end));
    bench::check(cudaEventSynchronize(end));
    float milliseconds = 0;
    bench::check(cudaEventElapsedTime(&milliseconds, begin, end));
    times.push_back(milliseconds * 1e3f / layers);
  }
  std::sort(times.begin(), times.end());
  const double bytes = 2.0 * width * (width + 3.0 * inner + heads), median = times[times.size() / 2];
  std::printf("chain %2d rows, %2d KB on their way%s %8.2f us a layer  %5.2f TB/s of weights", m,
              OnTheirWay * 16, Waits ? ",              " : ", without waits", median, bytes / median * 1e-6);
  if (Waits) {
    begin_with(expected);
    compute(weights, expected, m);
    std::printf("  distance %.4f, %.4f", distance(buffers.x, expected.x, size_t(m) * width),
                distance(buffers.mixed, expected.mixed, size_t(m) * width));
  }
  std::printf("\n");
  for (const Buffers &each : {buffers, expected})
    for (void *memory : {(void *)each.x, (void *)each.mixed, (void *)each.normed, (void *)each.activated,
                         (void *)each.sums, (void *)each.head_sums, (void *)each.counters})
      bench::check(cudaFree(memory));
  bench::check(cudaFree(rows));
}

template <int Rows, int Stages, int RowStages>
void time_all(const Weights &weights, int m) {
  time<Rows, Stages, RowStages, 2, true>(weights, m);
  time<Rows, Stages, RowStages, 3, true>(weights, m);
  time<Rows, Stages, RowStages, 4, true>(weights, m);
  time<Rows, Stages, RowStages, 6, true>(weights, m);
  time<Rows, Stages, RowStages, Stages, true>(weights, m);
  time<Rows, Stages, RowStages, 4, false>(weights, m);
  time<Rows, Stages, RowStages, Stages, false>(weights, m);
}

} // namespace chain

int main() {
  bench::check(cudaFree(nullptr));
  const chain::Weights weights;
  chain::time_all<8, 12, 8>(weights, 1);
  chain::time_all<8, 12, 8>(weights, 8);
  chain::time_all<32, 10, 6>(weights, 32);
}
