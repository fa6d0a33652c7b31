#pragma once
// Times one kernel of a template on its own: a CUDA graph of launches over rotating buffers that together
// exceed the L2 five times, random data, programmatic dependent launch, the median of several replays.
//
//   nvcc -std=c++17 -O3 --fmad=false -gencode arch=compute_90a,code=sm_90a -Icodegen/device
//     -Itest/codegen/device benchmarks/templates/NAME.cu -o NAME

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <tuple>
#include <vector>

namespace bench {

inline void check(cudaError_t status) {
  if (status == cudaSuccess)
    return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(status));
  std::exit(1);
}

/// Normal-looking 16-bit or 32-bit floats: sums of uniform numbers, in [-2, 2].
template <class T>
__global__ void fill(T *to, size_t count, unsigned seed) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
       i += size_t(gridDim.x) * blockDim.x) {
    unsigned state = seed + unsigned(i) * 2654435761u;
    float sum = 0;
    for (int draw = 0; draw < 4; ++draw) {
      state = state * 1664525u + 1013904223u;
      sum += float(state >> 8) / 16777216.f - 0.5f;
    }
    to[i] = from_f32<T>(sum);
  }
}
template <class T>
T *random(size_t count) {
  static unsigned seed = 1;
  T *memory = nullptr;
  check(cudaMalloc(&memory, count * sizeof(T)));
  fill<<<1024, 256>>>(memory, count, seed++);
  check(cudaGetLastError());
  return memory;
}

struct Shape {
  unsigned grid, threads, sharedBytes;
};
/// How many sets of buffers of `bytes` are needed so that none stays in the L2.
inline size_t rotations(double bytes) { return std::max<size_t>(2, size_t(300e6 / bytes) + 1); }

/// Prints µs for a launch, and what that is in TB/s of `bytes` and TFLOP/s of `flops`. Each of `arguments` is
/// one launch's.
template <class... Parameters>
void time(const char *label, void (*kernel)(Parameters...), Shape shape, double bytes, double flops,
          const std::vector<std::tuple<Parameters...>> &arguments) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shape.sharedBytes)));
  cudaStream_t stream;
  check(cudaStreamCreate(&stream));
  cudaLaunchAttribute dependent = {};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {dim3(shape.grid), dim3(shape.threads), shape.sharedBytes,
                               stream,           &dependent,          1};
  const size_t launches = std::max<size_t>(arguments.size(), 40);
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (size_t i = 0; i < launches; ++i)
    std::apply([&](Parameters... values) { check(cudaLaunchKernelEx(&config, kernel, values...)); },
               arguments[i % arguments.size()]);
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<float> times;
  for (int replay = 0; replay < 25; ++replay) {
    check(cudaEventRecord(begin, stream));
    check(cudaGraphLaunch(executable, stream));
    check(cudaEventRecord(end, stream));
    check(cudaEventSynchronize(end));
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    if (replay >= 5)
      times.push_back(milliseconds * 1e3f / float(launches));
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  std::printf("%-44s %9.2f us  %6.2f TB/s  %7.1f TFLOP/s\n", label, median, bytes / median * 1e-6,
              flops / median * 1e-6);
  check(cudaGraphExecDestroy(executable));
  check(cudaGraphDestroy(graph));
  check(cudaStreamDestroy(stream));
}

} // namespace bench
