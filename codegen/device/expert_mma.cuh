#pragma once
// gemm_mma for the rows of each expert.

#include "expert.cuh"
#include "gemm_mma.cuh"

template <class Config, class Shape, class A, class B, class Routing, class Epilogue>
DEVICE void expert_mma(const Shape &shape, const A &a, const B &b, const Routing &routing,
                       const Epilogue &epilogue) {
  using Block = GemmMma<Config, ExpertShape<Shape>, ExpertA<A>, B>;
  SHARED(typename Block::TypeA, tiles_a, 2 * Block::TileA::size);
  SHARED(typename Block::TypeB, tiles_b, 2 * Block::sums * Block::TileB::size);
  pdl_wait();
  pdl_launch_dependents();
  for_rows_of_expert<Config, Config::tile_m, Config::tile_n, Block::threads>(
      shape, routing, [&](const BlockPlace &place, const ExpertShape<Shape> &rows, const i32 *list) {
        B own = b;
        own.expert = place.z;
        const ExpertA<A> gathered{a, list};
        Block block(rows, gathered, own, place);
        block.accumulate(tiles_a, tiles_b);
        store_matmul<Config>(block, ExpertEpilogue<Epilogue, Shape>{epilogue, shape, list}, place.matmul);
      });
}
