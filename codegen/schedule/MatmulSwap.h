// What gemm_swap_ab and gemm_swap_codes share: the columns of C are the rows of wgmma, the rows of A its
// columns.
#pragma once

#include "codegen/schedule/MatmulSource.h"

namespace fusion::matmul {

/// Rows that the kernel multiplies for as many as there are: 8, 16, 32, 64 or 128.
int64_t swappedRows(const Problem &problem);
/// The blocks of a cluster that share out K, of `tiles` tiles of columns, up to one a multiprocessor: the
/// fewest that keep two thirds of the multiprocessors busy. K has `mostSteps` steps.
int64_t swappedSplit(int64_t tiles, int64_t mostSteps, const TargetInfo &target);
/// Whether TMA reads it: rows at distances of whole 16 bytes, from a multiple of 16 bytes on. In elements of
/// `bits`.
bool readsTiles(const Dim &offset, const Dim &stride, int64_t bits);
/// The same of A, and whether its elements have this type.
bool readsSwappedRows(const Problem &problem, DType type);
/// Of boxes of `rows` by `length` elements: 64 or 128 bytes.
TensorMapArgument swappedMap(DType type, const Dim &offset, DimShape shape, const Dim &stride, int64_t rows,
                             int64_t length);
TensorMapArgument mapOfSwappedRows(const Problem &problem);

} // namespace fusion::matmul
