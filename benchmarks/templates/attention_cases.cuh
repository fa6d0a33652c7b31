#pragma once
// What the benchmarks of the attention templates share: 32 query and 8 key/value heads of 128.

#include "dense_attention.cuh"
#include "runner.cuh"

namespace bench {

template <class T>
using Body = DenseAttention<T, 128, 128>;

/// `tileRows`: rows of a key/value head that a block, or a cluster, takes.
template <class T>
void attention(const char *name, void (*kernel)(Body<T>), int tileRows, unsigned threads, unsigned cluster,
               int sharedBytes, int batch, int queries, int keys, bool causal) {
  constexpr int heads = 32, kvHeads = 8, depth = 128;
  const size_t q = size_t(batch) * heads * queries * depth, k = size_t(batch) * kvHeads * keys * depth;
  const double bytes = double(2 * q + 2 * k) * sizeof(T), half = causal && queries > 1 ? 0.5 : 1.;
  std::vector<std::tuple<Body<T>>> arguments;
  for (size_t i = 0; i < rotations(bytes); ++i)
    arguments.push_back({Body<T>{random<T>(q), random<T>(k), random<T>(k), nullptr, random<T>(q), batch,
                                 kvHeads, heads / kvHeads, queries, keys}});
  const int tiles = (queries * heads / kvHeads + tileRows - 1) / tileRows;
  char label[100];
  std::snprintf(label, sizeof(label), "%s %d x %d queries, %d keys", name, batch, queries, keys);
  time(label, kernel, {unsigned(tiles * kvHeads * batch) * cluster, threads, unsigned(sharedBytes)}, bytes,
       half * 4. * batch * heads * double(queries) * keys * depth, arguments);
  for (auto &[body] : arguments) {
    const T *const buffers[] = {body.q, body.k, body.v, body.y};
    for (const T *buffer : buffers)
      check(cudaFree(const_cast<T *>(buffer)));
  }
}

} // namespace bench
