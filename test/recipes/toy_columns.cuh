#pragma once

#include "prelude.cuh"

// Sums over the rows of a matrix, each thread a column.
//
// Config: threads   of a block
// Body:   element(i64 row, i64 column)   in f32
//         put(i64 column, f32 sum)       stores a sum
template <class Config, class Body> DEVICE void toy_columns(Body body, i64 rows, i64 columns) {
  pdl_wait();
  pdl_launch_dependents();
  const i64 column = (i64)block_x() * Config::threads + thread_x();
  if (column >= columns)
    return;
  f32 sum = 0.f;
  for (i64 row = 0; row < rows; ++row)
    sum += body.element(row, column);
  body.put(column, sum);
}
