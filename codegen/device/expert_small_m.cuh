#pragma once
// gemm_small_m for the rows of each expert: every expert that is chosen is read once, but for those of more
// rows than a block multiplies at once.

#include "expert.cuh"
#include "gemm_small_m.cuh"

template <class Config, class Shape, class A, class B, class Routing, class Epilogue>
DEVICE void expert_small_m(const Shape &shape, const A &a, const B &b, const Routing &routing,
                           const Epilogue &epilogue) {
  using Block = SmallM<Config, ExpertShape<Shape>, ExpertA<A>, B>;
  // If the previous kernel does not write the choice of experts, loads of matrices are issued before that
  // has finished.
  if constexpr (!Config::weights_before_wait)
    pdl_wait();
  for_rows_of_expert<Config, 8 * Config::row_tiles, Block::columns, Block::threads>(
      shape, routing, [&](const BlockPlace &place, const ExpertShape<Shape> &rows, const i32 *list) {
        B own = b;
        own.expert = place.z;
        const ExpertA<A> gathered{a, list};
        Block block(rows, gathered, own, place);
        block.accumulate();
        pdl_launch_dependents();
        block.reduce_and_store(ExpertEpilogue<Epilogue, Shape>{epilogue, shape, list});
      });
  pdl_wait(); // blocks without work, too
}
