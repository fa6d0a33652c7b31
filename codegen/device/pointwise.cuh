#pragma once

#include "vectors.cuh"

// Kernels of which each thread computes vectors of the results by itself.
//
// Config: threads    of a block
//         width      elements of a vector
// Body:   constants()   sets members from memory that no kernel writes, before pdl_wait()
//         uniforms()    sets members from other memory: values that are the same for all elements
//         vector(...)     computes and stores the vector at a place; width elements

// All values lie as one run of `count` elements. Config::rest: the last vector may be cut, its elements are
// then computed one by one, by Body::element(i64).
template <class Config, class Body> DEVICE void pointwise_flat(Body body, i64 count) {
  body.constants();
  pdl_wait();
  pdl_launch_dependents();
  body.uniforms();
  const i64 element = ((i64)block_x() * Config::threads + thread_x()) * Config::width;
  if constexpr (Config::rest) {
    if (element + Config::width <= count)
      body.vector(element);
    else
      for (i64 last = element; last < count; ++last)
        body.element(last);
  } else {
    if (element < count)
      body.vector(element);
  }
}

// Rows of Config::perRow vectors, `vectors` in all: vector(row, column, element), where `element` is the
// place in the results.
template <class Config, class Body> DEVICE void pointwise_rows(Body body, i64 vectors) {
  body.constants();
  pdl_wait();
  pdl_launch_dependents();
  body.uniforms();
  const i64 first = (i64)block_x() * Config::threads;
  if (first + thread_x() >= vectors)
    return;
  // One division in 64 bits a block; those of its threads are of 32.
  const u32 offset = (u32)(first % Config::perRow) + thread_x();
  const i64 row = first / Config::perRow + offset / (u32)Config::perRow;
  const i64 column = (i64)(offset % (u32)Config::perRow) * Config::width;
  body.vector(row, column, (first + thread_x()) * Config::width);
}

// Elements that are found through index maps: vector(number of the vector). Threads take several, a grid
// apart.
template <class Config, class Body> DEVICE void pointwise_indexed(Body body, i64 vectors) {
  pdl_wait();
  pdl_launch_dependents();
  const i64 threads = (i64)grid_dim_x() * Config::threads;
  for (i64 vector = (i64)block_x() * Config::threads + thread_x(); vector < vectors; vector += threads)
    body.vector(vector);
}
