#pragma once
// gemm_fma for the rows of each expert.

#include "expert.cuh"
#include "gemm_fma.cuh"

template <class Config, class Shape, class A, class B, class Routing, class Epilogue>
DEVICE void expert_fma(const Shape &shape, const A &a, const B &b, const Routing &routing,
                       const Epilogue &epilogue) {
  using Block = FmaBlock<Config, ExpertShape<Shape>, ExpertA<A>, B>;
  using T = typename Config::accumulator;
  SHARED(T, tileA, Block::depth * Block::pitch);
  SHARED(T, tileB, Block::sums * Block::depth * Block::pitch);
  pdl_wait();
  pdl_launch_dependents();
  for_rows_of_expert<Config, Block::tile, Block::tile, GemmFma::threads>(
      shape, routing, [&](const BlockPlace &place, const ExpertShape<Shape> &rows, const i32 *list) {
        B own = b;
        own.expert = place.z;
        Block block(rows, place);
        block.accumulate(ExpertA<A>{a, list}, own, tileA, tileB);
        store_matmul<Config>(block, ExpertEpilogue<Epilogue, Shape>{epilogue, shape, list}, place.matmul);
      });
}
