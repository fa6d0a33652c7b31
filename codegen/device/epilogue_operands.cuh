#pragma once
// What epilogues read of memory, asked for before the products whose sums they take.

#include "gemm.cuh"

/// What the epilogues of matmul `Index` and of those after it read for so many vectors. A block has one of
/// those side by side.
template <class Config, class Epilogue, int Vectors, int Index = 0, bool Exists = (Index < Config::matmuls)>
struct EpilogueOperands {
  decltype(static_cast<const Epilogue *>(nullptr)->operands(Matmul<Index>(), 0, 0)) of[Vectors];
  EpilogueOperands<Config, Epilogue, Vectors, Index + 1, side_by_side<Config> && Index + 1 < Config::matmuls>
      others;

  DEVICE void read(int number, const Epilogue &epilogue, const BlockPlace &place, i64 row, i64 column) {
    if (!side_by_side<Config> || place.matmul == Index)
      of[number] = epilogue.operands(Matmul<Index>(), row, column);
    others.read(number, epilogue, place, row, column);
  }
  template <class Shape, class Sums>
  DEVICE void finish(int number, const Epilogue &epilogue, const Shape &shape, const BlockPlace &place,
                     i64 row, i64 column, const Sums &sums) const {
    if (!side_by_side<Config> || place.matmul == Index)
      epilogue(Matmul<Index>(), row, column, of[number], sums,
               StoreAt<Config::vector>{row * shape.n(Index) + column});
    others.finish(number, epilogue, shape, place, row, column, sums);
  }
};
template <class Config, class Epilogue, int Vectors, int Index>
struct EpilogueOperands<Config, Epilogue, Vectors, Index, false> {
  DEVICE void read(int, const Epilogue &, const BlockPlace &, i64, i64) {}
  template <class Shape, class Sums>
  DEVICE void finish(int, const Epilogue &, const Shape &, const BlockPlace &, i64, i64, const Sums &) const {
  }
};
