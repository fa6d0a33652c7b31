// RUN: fusion-opt %s --nn-cache-in-place=capacity=64 --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --nn-cache-in-place=capacity=64 --split-input-file --remarks-filter=raise 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// The argument lies in the corner of a buffer of 64 positions, and so does what extends it.
// CHECK-LABEL: func.func @extended
// CHECK-SAME: %arg0: tensor<?x2x?x32xf16> {nn.dims = ["b", 2, "p", 32], nn.name = "past", nn.storage = ["b", 2, 64, 32]}
// CHECK-SAME: -> (tensor<?x2x?x32xf16> {nn.alias = 0 : i64, nn.name = "present"})
// CHECK: nn.concat %arg0, %arg1 {axis = 2 : i64}
func.func @extended(%past: tensor<?x2x?x32xf16> {nn.dims = ["b", 2, "p", 32], nn.name = "past"},
                    %new: tensor<?x2x1x32xf16> {nn.dims = ["b", 2, 1, 32]}) -> (tensor<?x2x?x32xf16> {nn.name = "present"}) {
  %0 = nn.concat %past, %new {axis = 2 : i64} : (tensor<?x2x?x32xf16>, tensor<?x2x1x32xf16>) -> tensor<?x2x?x32xf16>
  return %0 : tensor<?x2x?x32xf16>
}

// -----

// Positions in another dim, counted from the end; two new parts; the result and the past have other readers.
// CHECK-LABEL: func.func @positions_first
// CHECK-SAME: %arg0: tensor<1x8x2x32xf32> {nn.storage = [1, 64, 2, 32]}
// CHECK-SAME: -> (tensor<1x10x2x32xf32>, tensor<1x10x2x32xf32> {nn.alias = 0 : i64}, tensor<1x8x2x32xf32>)
func.func @positions_first(%past: tensor<1x8x2x32xf32>, %a: tensor<1x1x2x32xf32>) -> (tensor<1x10x2x32xf32>, tensor<1x10x2x32xf32>, tensor<1x8x2x32xf32>) {
  %0 = nn.concat %past, %a, %a {axis = -3 : i64} : (tensor<1x8x2x32xf32>, tensor<1x1x2x32xf32>, tensor<1x1x2x32xf32>) -> tensor<1x10x2x32xf32>
  %1 = nn.neg %0 : (tensor<1x10x2x32xf32>) -> tensor<1x10x2x32xf32>
  %2 = nn.neg %past : (tensor<1x8x2x32xf32>) -> tensor<1x8x2x32xf32>
  return %1, %0, %2 : tensor<1x10x2x32xf32>, tensor<1x10x2x32xf32>, tensor<1x8x2x32xf32>
}

// -----

// MISS: cache_in_place{{.*}}the nn.concat of an argument is no result of the graph
// CHECK-LABEL: func.func @no_result
// CHECK-NOT: nn.storage
// CHECK-NOT: nn.alias
func.func @no_result(%past: tensor<1x8x32xf16>, %new: tensor<1x1x32xf16>) -> tensor<1x9x32xf16> {
  %0 = nn.concat %past, %new {axis = 1 : i64} : (tensor<1x8x32xf16>, tensor<1x1x32xf16>) -> tensor<1x9x32xf16>
  %1 = nn.neg %0 : (tensor<1x9x32xf16>) -> tensor<1x9x32xf16>
  return %1 : tensor<1x9x32xf16>
}

// -----

// MISS: cache_in_place{{.*}}operand 0 of nn.concat is produced by nn.neg, not an argument of the graph
// CHECK-LABEL: func.func @computed
// CHECK-NOT: nn.alias
func.func @computed(%past: tensor<1x8x32xf16>, %new: tensor<1x1x32xf16>) -> tensor<1x9x32xf16> {
  %0 = nn.neg %past : (tensor<1x8x32xf16>) -> tensor<1x8x32xf16>
  %1 = nn.concat %0, %new {axis = 1 : i64} : (tensor<1x8x32xf16>, tensor<1x1x32xf16>) -> tensor<1x9x32xf16>
  return %1 : tensor<1x9x32xf16>
}

// -----

// MISS: cache_in_place{{.*}}nn.concat joins the argument with itself
// CHECK-LABEL: func.func @itself
// CHECK-NOT: nn.alias
func.func @itself(%past: tensor<1x8x32xf16>) -> tensor<1x16x32xf16> {
  %0 = nn.concat %past, %past {axis = 1 : i64} : (tensor<1x8x32xf16>, tensor<1x8x32xf16>) -> tensor<1x16x32xf16>
  return %0 : tensor<1x16x32xf16>
}

// -----

// The second continuation of one past would overwrite the first.
// MISS: cache_in_place{{.*}}the argument is extended by another op already
// CHECK-LABEL: func.func @twice
// CHECK-SAME: -> (tensor<1x9x32xf16> {nn.alias = 0 : i64}, tensor<1x9x32xf16>)
func.func @twice(%past: tensor<1x8x32xf16>, %a: tensor<1x1x32xf16>, %b: tensor<1x1x32xf16>) -> (tensor<1x9x32xf16>, tensor<1x9x32xf16>) {
  %0 = nn.concat %past, %a {axis = 1 : i64} : (tensor<1x8x32xf16>, tensor<1x1x32xf16>) -> tensor<1x9x32xf16>
  %1 = nn.concat %past, %b {axis = 1 : i64} : (tensor<1x8x32xf16>, tensor<1x1x32xf16>) -> tensor<1x9x32xf16>
  return %0, %1 : tensor<1x9x32xf16>, tensor<1x9x32xf16>
}

// -----

// The last position is taken too.
// CHECK-LABEL: func.func @filled
// CHECK-SAME: nn.storage = [1, 64, 32]
// CHECK-SAME: nn.alias = 0 : i64
func.func @filled(%past: tensor<1x63x32xf16>, %new: tensor<1x1x32xf16>) -> tensor<1x64x32xf16> {
  %0 = nn.concat %past, %new {axis = 1 : i64}
     : (tensor<1x63x32xf16>, tensor<1x1x32xf16>) -> tensor<1x64x32xf16>
  return %0 : tensor<1x64x32xf16>
}

// -----

// MISS: cache_in_place{{.*}}65 positions do not fit in 64
// CHECK-LABEL: func.func @full
// CHECK-NOT: nn.alias
func.func @full(%past: tensor<1x64x32xf16>, %new: tensor<1x1x32xf16>) -> tensor<1x65x32xf16> {
  %0 = nn.concat %past, %new {axis = 1 : i64} : (tensor<1x64x32xf16>, tensor<1x1x32xf16>) -> tensor<1x65x32xf16>
  return %0 : tensor<1x65x32xf16>
}

// -----

// New rows that data places.
// CHECK-LABEL: func.func @placed
// CHECK-SAME: nn.storage = ["b", 2, 64, 32]
// CHECK-SAME: nn.alias = 0 : i64
func.func @placed(%past: tensor<?x2x?x32xf16> {nn.dims = ["b", 2, "p", 32]}, %new: tensor<?x2x1x32xf16> {nn.dims = ["b", 2, 1, 32]},
                  %rows: tensor<?x1x1x1xi64> {nn.dims = ["b", 1, 1, 1]}) -> tensor<?x2x?x32xf16> {
  %0 = nn.cache_write %past, %new, %rows {axis = 2 : i64, grows = true} : (tensor<?x2x?x32xf16>, tensor<?x2x1x32xf16>, tensor<?x1x1x1xi64>) -> tensor<?x2x?x32xf16>
  return %0 : tensor<?x2x?x32xf16>
}

// -----

// Rows of a cache that keeps its size are replaced: its buffer has no more room.
// CHECK-LABEL: func.func @replaced
// CHECK-SAME: %arg0: tensor<1x2x16x32xf16> {nn.storage = [1, 2, 16, 32]}
// CHECK-SAME: %arg1: tensor<1x2x80x32xf16> {nn.storage = [1, 2, 80, 32]}
// CHECK-SAME: -> (tensor<1x2x16x32xf16> {nn.alias = 0 : i64}, tensor<1x2x80x32xf16> {nn.alias = 1 : i64})
func.func @replaced(%short: tensor<1x2x16x32xf16>, %long: tensor<1x2x80x32xf16>, %new: tensor<1x2x1x32xf16>, %rows: tensor<1x1x1x1xi64>) -> (tensor<1x2x16x32xf16>, tensor<1x2x80x32xf16>) {
  %0 = nn.cache_write %short, %new, %rows {axis = 2 : i64} : (tensor<1x2x16x32xf16>, tensor<1x2x1x32xf16>, tensor<1x1x1x1xi64>) -> tensor<1x2x16x32xf16>
  %1 = nn.cache_write %long, %new, %rows {axis = 2 : i64} : (tensor<1x2x80x32xf16>, tensor<1x2x1x32xf16>, tensor<1x1x1x1xi64>) -> tensor<1x2x80x32xf16>
  return %0, %1 : tensor<1x2x16x32xf16>, tensor<1x2x80x32xf16>
}

// -----

// In another shape than the argument has: a full buffer is one, whatever its shape; a corner of one is none.
// MISS: cache_in_place{{.*}}operand 0 of nn.cache_write is produced by nn.reshape, not an argument of the graph
// MISS: cache_in_place{{.*}}the cache has other readers, which might come after its rows are replaced
// CHECK-LABEL: func.func @replaced_in_another_shape
// CHECK-SAME: %arg0: tensor<?x16x64xf16> {nn.dims = ["b", 16, 64], nn.storage = ["b", 16, 64]}
// CHECK-SAME: %arg1: tensor<1x?x64xf16> {nn.dims = [1, "p", 64]}
// CHECK-SAME: %arg2: tensor<1x16x64xf16>,
// CHECK-SAME: -> (tensor<?x16x64xf16> {nn.alias = 0 : i64}, tensor<1x?x64xf16>, tensor<1x16x64xf16>, tensor<1x16x64xf16>)
func.func @replaced_in_another_shape(%a: tensor<?x16x64xf16> {nn.dims = ["b", 16, 64]}, %p: tensor<1x?x64xf16> {nn.dims = [1, "p", 64]},
                                     %c: tensor<1x16x64xf16>, %new: tensor<1x1x2x32xf16>, %rows: tensor<1x1x1x1xi64>)
    -> (tensor<?x16x64xf16>, tensor<1x?x64xf16>, tensor<1x16x64xf16>, tensor<1x16x64xf16>) {
  %n = nn.expand %new {shape = ["b", 1, 2, 32]} : (tensor<1x1x2x32xf16>) -> tensor<?x1x2x32xf16>
  %0 = nn.reshape %a {shape = ["b", 16, 2, 32]} : (tensor<?x16x64xf16>) -> tensor<?x16x2x32xf16>
  %1 = nn.cache_write %0, %n, %rows {axis = 1 : i64} : (tensor<?x16x2x32xf16>, tensor<?x1x2x32xf16>, tensor<1x1x1x1xi64>) -> tensor<?x16x2x32xf16>
  %2 = nn.reshape %1 {shape = ["b", 16, 64]} : (tensor<?x16x2x32xf16>) -> tensor<?x16x64xf16>
  %3 = nn.reshape %p {shape = [1, "p", 2, 32]} : (tensor<1x?x64xf16>) -> tensor<1x?x2x32xf16>
  %4 = nn.cache_write %3, %new, %rows {axis = 1 : i64} : (tensor<1x?x2x32xf16>, tensor<1x1x2x32xf16>, tensor<1x1x1x1xi64>) -> tensor<1x?x2x32xf16>
  %5 = nn.reshape %4 {shape = [1, "p", 64]} : (tensor<1x?x2x32xf16>) -> tensor<1x?x64xf16>
  %6 = nn.reshape %c {shape = [1, 16, 2, 32]} : (tensor<1x16x64xf16>) -> tensor<1x16x2x32xf16>
  %7 = nn.cache_write %6, %new, %rows {axis = 1 : i64} : (tensor<1x16x2x32xf16>, tensor<1x1x2x32xf16>, tensor<1x1x1x1xi64>) -> tensor<1x16x2x32xf16>
  %8 = nn.reshape %7 {shape = [1, 16, 64]} : (tensor<1x16x2x32xf16>) -> tensor<1x16x64xf16>
  %9 = nn.relu %c : (tensor<1x16x64xf16>) -> tensor<1x16x64xf16>
  return %2, %5, %8, %9 : tensor<?x16x64xf16>, tensor<1x?x64xf16>, tensor<1x16x64xf16>, tensor<1x16x64xf16>
}

// -----

// MISS: cache_in_place{{.*}}the cache has other readers, which might come after its rows are replaced
// CHECK-LABEL: func.func @read_before_it_is_replaced
// CHECK-NOT: nn.alias
func.func @read_before_it_is_replaced(%past: tensor<1x2x16x32xf16>, %new: tensor<1x2x1x32xf16>, %rows: tensor<1x1x1x1xi64>) -> (tensor<1x2x16x32xf16>, tensor<1x2x16x32xf16>) {
  %0 = nn.cache_write %past, %new, %rows {axis = 2 : i64} : (tensor<1x2x16x32xf16>, tensor<1x2x1x32xf16>, tensor<1x1x1x1xi64>) -> tensor<1x2x16x32xf16>
  %1 = nn.relu %past : (tensor<1x2x16x32xf16>) -> tensor<1x2x16x32xf16>
  return %0, %1 : tensor<1x2x16x32xf16>, tensor<1x2x16x32xf16>
}

// -----

// A state is replaced: its buffer has no more room.
// CHECK-LABEL: func.func @state
// CHECK-SAME: %arg2: tensor<1x2x8x4xf32> {nn.storage = [1, 2, 8, 4]}
// CHECK-SAME: -> (tensor<1x2x1x4xf16>, tensor<1x2x8x4xf32> {nn.alias = 2 : i64})
func.func @state(%q: tensor<1x2x1x8xf16>, %v: tensor<1x2x1x4xf16>, %s: tensor<1x2x8x4xf32>) -> (tensor<1x2x1x4xf16>, tensor<1x2x8x4xf32>) {
  %0, %1 = nn.linear_attention %q, %q, %v, %s {scale = 0.25 : f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>} : (tensor<1x2x1x8xf16>, tensor<1x2x1x8xf16>, tensor<1x2x1x4xf16>, tensor<1x2x8x4xf32>) -> (tensor<1x2x1x4xf16>, tensor<1x2x8x4xf32>)
  return %0, %1 : tensor<1x2x1x4xf16>, tensor<1x2x8x4xf32>
}

// -----

// MISS: cache_in_place{{.*}}the state has other readers, which might come after it is replaced
// CHECK-LABEL: func.func @read_state
// CHECK-NOT: nn.alias
func.func @read_state(%q: tensor<1x2x1x8xf16>, %v: tensor<1x2x1x4xf16>, %s: tensor<1x2x8x4xf32>) -> (tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>) {
  %0, %1 = nn.linear_attention %q, %q, %v, %s {scale = 0.25 : f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>} : (tensor<1x2x1x8xf16>, tensor<1x2x1x8xf16>, tensor<1x2x1x4xf16>, tensor<1x2x8x4xf32>) -> (tensor<1x2x1x4xf16>, tensor<1x2x8x4xf32>)
  %2 = nn.neg %s : (tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32>
  return %1, %2 : tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>
}

// -----

// Nobody keeps the new state.
// CHECK-LABEL: func.func @dropped_state
// CHECK-NOT: nn.alias
func.func @dropped_state(%q: tensor<1x2x1x8xf16>, %v: tensor<1x2x1x4xf16>, %s: tensor<1x2x8x4xf32>) -> tensor<1x2x1x4xf16> {
  %0, %1 = nn.linear_attention %q, %q, %v, %s {scale = 0.25 : f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>} : (tensor<1x2x1x8xf16>, tensor<1x2x1x8xf16>, tensor<1x2x1x4xf16>, tensor<1x2x8x4xf32>) -> (tensor<1x2x1x4xf16>, tensor<1x2x8x4xf32>)
  return %0 : tensor<1x2x1x4xf16>
}

// -----

// Pages are written where they lie, seen as slots or as pages.
// CHECK-LABEL: func.func @pages
// CHECK-SAME: %arg0: tensor<?x16x2x32xf16> {nn.dims = ["p", 16, 2, 32], nn.storage = ["p", 16, 2, 32]}
// CHECK-SAME: %arg1: tensor<9x16x2x32xf16> {nn.dims = [9, 16, 2, 32], nn.storage = [9, 16, 2, 32]}
// CHECK-SAME: -> (tensor<?x16x2x32xf16> {nn.alias = 0 : i64}, tensor<9x16x2x32xf16> {nn.alias = 1 : i64})
func.func @pages(%k: tensor<?x16x2x32xf16> {nn.dims = ["p", 16, 2, 32]}, %v: tensor<9x16x2x32xf16> {nn.dims = [9, 16, 2, 32]},
                 %slots: tensor<3x1xi64> {nn.dims = [3, 1]}, %places: tensor<3x2xi64> {nn.dims = [3, 2]},
                 %new: tensor<3x2x32xf16> {nn.dims = [3, 2, 32]}) -> (tensor<?x16x2x32xf16>, tensor<9x16x2x32xf16>) {
  %0 = nn.reshape %k {shape = ["16*p", 2, 32]} : (tensor<?x16x2x32xf16>) -> tensor<?x2x32xf16>
  %1 = nn.scatter_nd %0, %slots, %new : (tensor<?x2x32xf16>, tensor<3x1xi64>, tensor<3x2x32xf16>) -> tensor<?x2x32xf16>
  %2 = nn.reshape %1 {shape = ["p", 16, 2, 32]} : (tensor<?x2x32xf16>) -> tensor<?x16x2x32xf16>
  %3 = nn.scatter_nd %v, %places, %new : (tensor<9x16x2x32xf16>, tensor<3x2xi64>, tensor<3x2x32xf16>) -> tensor<9x16x2x32xf16>
  return %2, %3 : tensor<?x16x2x32xf16>, tensor<9x16x2x32xf16>
}

// -----

// MISS: cache_in_place{{.*}}the pages have other readers, which might come after they are written
// CHECK-LABEL: func.func @read_pages
// CHECK-NOT: nn.alias
func.func @read_pages(%v: tensor<9x16x2x32xf16>, %places: tensor<3x2xi64>, %new: tensor<3x2x32xf16>) -> (tensor<9x16x2x32xf16>, tensor<9x16x2x32xf16>) {
  %0 = nn.scatter_nd %v, %places, %new : (tensor<9x16x2x32xf16>, tensor<3x2xi64>, tensor<3x2x32xf16>) -> tensor<9x16x2x32xf16>
  %1 = nn.neg %v : (tensor<9x16x2x32xf16>) -> tensor<9x16x2x32xf16>
  return %0, %1 : tensor<9x16x2x32xf16>, tensor<9x16x2x32xf16>
}

// -----

// The result has another shape than the argument, as which the next run could not take it.
// MISS: cache_in_place{{.*}}a result is reshaped to another shape than the argument's, as which it cannot be given back
// CHECK-LABEL: func.func @pages_of_another_shape
// CHECK-NOT: nn.alias
func.func @pages_of_another_shape(%v: tensor<6x1x1x12xbf16>, %slots: tensor<4x1xi64>, %new: tensor<4x1x12xbf16>) -> tensor<6x1x12xbf16> {
  %0 = nn.reshape %v {shape = [6, 1, 12]} : (tensor<6x1x1x12xbf16>) -> tensor<6x1x12xbf16>
  %1 = nn.scatter_nd %0, %slots, %new : (tensor<6x1x12xbf16>, tensor<4x1xi64>, tensor<4x1x12xbf16>) -> tensor<6x1x12xbf16>
  return %1 : tensor<6x1x12xbf16>
}
