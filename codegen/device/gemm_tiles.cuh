#pragma once
// How tiles of operands get from memory to shared memory for mma.sync: 16 bytes at a time past the registers,
// vectors that are decoded or converted on their way, or single elements.

#include "gemm.cuh"

enum class Copy {
  Async,      ///< 16 bytes that are multiplied as they are
  Vectors,    ///< vectors of elements, decoded or converted
  Transposed, ///< bytes whose neighbours lie along the rows: squares of 4 x 4
  Elements,   ///< one by one
};

/// A tile of `Rows` x `Depth` elements T of an operand, in shared memory. It lies as [row][k], or as [k][row]
/// where `ByDepth`. Lines are 16 bytes more than their length apart: ldmatrix then meets every bank once.
template <class Operand, class T, int Rows, int Depth, bool ByDepth, Copy How, int Threads>
struct OperandTile {
  using Element = typename Operand::element;
  static constexpr int vector = 16 / (int)sizeof(T);
  static constexpr int lines = ByDepth ? Depth : Rows, line = ByDepth ? Rows : Depth;
  static constexpr int pitch = line + vector, size = lines * pitch;

  const Operand &operand;
  const int matmul;
  const decltype(static_cast<const Operand *>(nullptr)->matrix(0, 0)) matrix;
  const i64 first, rows, depth; ///< the tile's first row, the operand's rows and k

  /// Fills `tile` from k0 on; zeros beyond the edges. Copies that are Async have to be waited for.
  DEVICE void load(T *tile, i64 k0) const {
    if constexpr (How == Copy::Async)
      copy_vectors(tile, k0);
    else if constexpr (How == Copy::Vectors)
      decode_vectors(tile, k0);
    else if constexpr (How == Copy::Transposed)
      transpose_squares(tile, k0);
    else
      copy_elements(tile, k0);
  }

private:
  DEVICE bool inside(i64 row, i64 k) const { return row < rows && k < depth; }
  DEVICE i64 offset(i64 row, i64 k) const { return operand.row(matmul, row) + operand.depth(matmul, k); }

  /// Calls `body(r, c)` for the places of the tile's vectors that are this thread's: line r, column c.
  template <class Body>
  DEVICE void for_vectors(const Body &body) const {
    constexpr int per_line = line / vector, count = lines * per_line;
#pragma unroll
    for (int i = 0; i < (count + Threads - 1) / Threads; ++i) {
      const int at = i * Threads + (int)thread_x();
      if (count % Threads == 0 || at < count)
        body(at / per_line, at % per_line * vector);
    }
  }
  DEVICE void copy_vectors(T *tile, i64 k0) const {
    for_vectors([&](int r, int c) {
      const i64 row = first + (ByDepth ? c : r), k = k0 + (ByDepth ? r : c);
      const bool valid = inside(row, k);
      cp_async_16(tile + r * pitch + c, valid ? matrix + offset(row, k) : matrix, valid);
    });
  }
  DEVICE void decode_vectors(T *tile, i64 k0) const {
    for_vectors([&](int r, int c) {
      const i64 row = first + (ByDepth ? c : r), k = k0 + (ByDepth ? r : c);
      Vec<T, vector> values = {};
      if (inside(row, k)) {
        const Vec<Element, vector> elements = load_vec<Element, vector>(matrix + offset(row, k));
        constexpr bool alike = (ByDepth ? Operand::rows_per_scale : Operand::k_per_scale) % vector == 0;
        const auto shared = operand.decoder(matmul, row, k);
#pragma unroll
        for (int e = 0; e < vector; ++e) {
          if constexpr (alike)
            values[e] = from_f32<T>(shared(elements[e]));
          else
            values[e] = from_f32<T>(
                operand.decoder(matmul, ByDepth ? row + e : row, ByDepth ? k : k + e)(elements[e]));
        }
      }
      store_vec<T, vector>(tile + r * pitch + c, values);
    });
  }
  DEVICE void transpose_squares(T *tile, i64 k0) const {
    constexpr int across = Rows / 4, squares = across * Depth / 4;
#pragma unroll
    for (int i = 0; i < (squares + Threads - 1) / Threads; ++i) {
      const int square = i * Threads + (int)thread_x(), r = square / across * 4, c = square % across * 4;
      u32 words[4];
#pragma unroll
      for (int l = 0; l < 4; ++l)
        words[l] = inside(first + c, k0 + r + l)
                       ? ::load(reinterpret_cast<const u32 *>(matrix + offset(first + c, k0 + r + l)))
                       : 0u;
      transpose_bytes(words);
#pragma unroll
      for (int l = 0; l < 4; ++l)
        store(reinterpret_cast<u32 *>(tile + (c + l) * pitch + r), words[l]);
    }
  }
  DEVICE void copy_elements(T *tile, i64 k0) const {
#pragma unroll 4
    for (int e = (int)thread_x(); e < Rows * Depth; e += Threads) {
      // Neighbouring threads read what lies side by side in memory.
      const int r = Operand::k_major ? e / Depth : e % Rows, c = Operand::k_major ? e % Depth : e / Rows;
      const i64 row = first + r, k = k0 + c;
      T value = {};
      if (inside(row, k)) {
        const Element element = ::load(matrix + offset(row, k));
        if constexpr (same_type<T, Element>) // scales of bytes multiply the sums
          value = element;
        else
          value = from_f32<T>(operand.decoder(matmul, row, k)(element));
      }
      tile[ByDepth ? c * pitch + r : r * pitch + c] = value;
    }
  }
};
