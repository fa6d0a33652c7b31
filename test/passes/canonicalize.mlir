// RUN: fusion-opt %s --nn-canonicalize --split-input-file | FileCheck %s

// CHECK-LABEL: func @exact_casts
// CHECK-SAME: (%[[X:.*]]: tensor<4xf16>
// CHECK: %[[W:.*]] = nn.cast %[[X]] : (tensor<4xf16>) -> tensor<4xf64>
// CHECK: return %[[X]], %[[W]]
func.func @exact_casts(%x: tensor<4xf16>) -> (tensor<4xf16>, tensor<4xf64>) {
  %0 = nn.cast %x : (tensor<4xf16>) -> tensor<4xf32>
  %1 = nn.cast %0 : (tensor<4xf32>) -> tensor<4xf16>
  %2 = nn.cast %0 : (tensor<4xf32>) -> tensor<4xf64>
  return %1, %2 : tensor<4xf16>, tensor<4xf64>
}

// -----

// CHECK-LABEL: func @rounding_cast_stays
// CHECK: nn.cast
// CHECK: nn.cast
func.func @rounding_cast_stays(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = nn.cast %x : (tensor<4xf32>) -> tensor<4xbf16>
  %1 = nn.cast %0 : (tensor<4xbf16>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// CHECK-LABEL: func @neutral
// CHECK-SAME: (%[[X:.*]]: tensor<?x8xf32>
// CHECK-NEXT: return %[[X]], %[[X]], %[[X]], %[[X]]
func.func @neutral(%x: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) {
  %one = nn.constant {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %zero = nn.constant {value = dense<0.0> : tensor<1xf32>} : () -> tensor<1xf32>
  %minus = nn.constant {value = dense<-0.0> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.mul %one, %x : (tensor<f32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %1 = nn.div %x, %one : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  %2 = nn.sub %x, %zero : (tensor<?x8xf32>, tensor<1xf32>) -> tensor<?x8xf32>
  %3 = nn.add %x, %minus : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  return %0, %1, %2, %3 : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>
}

// -----

// -0.0 + 0.0 is 0.0, and a constant may broadcast the operand.
// CHECK-LABEL: func @not_neutral
// CHECK: nn.add
// CHECK: nn.mul
func.func @not_neutral(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<2x8xf32>) {
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %ones = nn.constant {value = dense<1.0> : tensor<2x1xf32>} : () -> tensor<2x1xf32>
  %0 = nn.add %x, %zero : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %1 = nn.mul %x, %ones : (tensor<8xf32>, tensor<2x1xf32>) -> tensor<2x8xf32>
  return %0, %1 : tensor<8xf32>, tensor<2x8xf32>
}

// -----

// CHECK-LABEL: func @powers
// CHECK-SAME: (%[[X:.*]]: tensor<4x8xf32>
// CHECK: %[[S:.*]] = nn.square %[[X]]
// CHECK: %[[M:.*]] = nn.reduce %[[S]]
// CHECK: %[[R:.*]] = nn.rsqrt %[[M]]
// CHECK: %[[P:.*]] = nn.pow %[[X]]
// CHECK: return %[[S]], %[[S]], %[[R]], %[[R]], %[[P]]
func.func @powers(%x: tensor<4x8xf32>)
    -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x1xf32>, tensor<4x1xf32>, tensor<4x8xf32>) {
  %two = nn.constant {value = dense<2.0> : tensor<f32>} : () -> tensor<f32>
  %half = nn.constant {value = dense<-0.5> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.pow %x, %two : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %m = nn.reduce %0 {kind = "mean", axes = array<i64: -1>, keepdims = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  %r0 = nn.pow %m, %half : (tensor<4x1xf32>, tensor<f32>) -> tensor<4x1xf32>
  %p = nn.pow %x, %half : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  return %0, %0, %r0, %r0, %p
      : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x1xf32>, tensor<4x1xf32>, tensor<4x8xf32>
}

// -----

// CHECK-LABEL: func @roots
// CHECK: %[[A:.*]] = nn.rsqrt
// CHECK: %[[B:.*]] = nn.rsqrt
// CHECK: return %[[A]], %[[B]]
func.func @roots(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %one = nn.constant {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %s = nn.sqrt %x : (tensor<4xf32>) -> tensor<4xf32>
  %0 = nn.reciprocal %s : (tensor<4xf32>) -> tensor<4xf32>
  %1 = nn.div %one, %s : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// The root rounds to f16 before its reciprocal is taken.
// CHECK-LABEL: func @narrow_root
// CHECK: nn.sqrt
// CHECK: nn.reciprocal
func.func @narrow_root(%x: tensor<4xf16>) -> tensor<4xf16> {
  %s = nn.sqrt %x : (tensor<4xf16>) -> tensor<4xf16>
  %0 = nn.reciprocal %s : (tensor<4xf16>) -> tensor<4xf16>
  return %0 : tensor<4xf16>
}

// -----

// CHECK-LABEL: func @logic
// CHECK-SAME: (%[[M:.*]]: tensor<2x2xi1>, %[[X:.*]]: tensor<2x2xf32>, %[[Y:.*]]: tensor<2x2xf32>
// CHECK: %[[W:.*]] = nn.where %[[M]], %[[Y]], %[[X]]
// CHECK: return %[[M]], %[[M]], %[[X]], %[[X]], %[[W]]
func.func @logic(%m: tensor<2x2xi1>, %x: tensor<2x2xf32>, %y: tensor<2x2xf32>)
    -> (tensor<2x2xi1>, tensor<2x2xi1>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) {
  %true = nn.constant {value = dense<true> : tensor<i1>} : () -> tensor<i1>
  %0 = nn.and %true, %m : (tensor<i1>, tensor<2x2xi1>) -> tensor<2x2xi1>
  %n = nn.not %m : (tensor<2x2xi1>) -> tensor<2x2xi1>
  %1 = nn.not %n : (tensor<2x2xi1>) -> tensor<2x2xi1>
  %2 = nn.where %m, %x, %x : (tensor<2x2xi1>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %3 = nn.where %true, %x, %y : (tensor<i1>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %4 = nn.where %n, %x, %y : (tensor<2x2xi1>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  return %0, %1, %2, %3, %4 : tensor<2x2xi1>, tensor<2x2xi1>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>
}

// -----

// CHECK-LABEL: func @sorted
// CHECK-SAME: (%[[X:.*]]: tensor<?x4xf32>
// CHECK-DAG: %[[W:.*]] = nn.weight
// CHECK-DAG: %[[C:.*]] = nn.constant
// CHECK: %[[A:.*]] = nn.mul %[[X]], %[[W]]
// CHECK: nn.add %[[A]], %[[C]]
func.func @sorted(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %w = nn.weight {name = "w", path = "m.onnx", offset = 0 : i64, length = 16 : i64} : () -> tensor<4xf32>
  %c = nn.constant {value = dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>} : () -> tensor<4xf32>
  %0 = nn.mul %w, %x : (tensor<4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  %1 = nn.add %c, %0 : (tensor<4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  return %1 : tensor<?x4xf32>
}

// -----

// Equal symbols make a reshape, an expand and a slice idle; `t` is another size.
// CHECK-LABEL: func @idle_views
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x?x8xf32>
// CHECK: %[[S:.*]] = nn.slice %[[X]]
// CHECK: return %[[X]], %[[X]], %[[X]], %[[S]]
func.func @idle_views(%x: tensor<?x?x8xf32> {nn.dims = ["b", "s", 8]}, %t: tensor<?xi64> {nn.dims = ["t"]})
    -> (tensor<?x?x8xf32>, tensor<?x?x8xf32>, tensor<?x?x8xf32>, tensor<?x?x8xf32>) {
  %0 = nn.reshape %x {shape = ["b*s", 8]} : (tensor<?x?x8xf32>) -> tensor<?x8xf32>
  %1 = nn.reshape %0 {shape = ["b", "s", 8]} : (tensor<?x8xf32>) -> tensor<?x?x8xf32>
  %2 = nn.expand %x {shape = ["b", "s", 8]} : (tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %3 = nn.slice %x {starts = [0, 0, 0], sizes = ["b", "s", 8], steps = array<i64: 1, 1, 1>}
     : (tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %4 = nn.slice %x {starts = [0, 0, 0], sizes = ["b", "t", 8], steps = array<i64: 1, 1, 1>}
     : (tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %1, %2, %3, %4 : tensor<?x?x8xf32>, tensor<?x?x8xf32>, tensor<?x?x8xf32>, tensor<?x?x8xf32>
}

// -----

// A slice of everything, but backwards.
// CHECK-LABEL: func @reversed
// CHECK: nn.slice {{.*}}steps = array<i64: -1, 1>
func.func @reversed(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = nn.slice %x {starts = [3, 0], sizes = [4, 8], steps = array<i64: -1, 1>}
     : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

// The reshape divides the swapped dims in another way.
// CHECK-LABEL: func @reshape_across_a_swap
// CHECK: %[[T:.*]] = nn.transpose
// CHECK: nn.reshape %[[T]] {shape = [2, 8, 3]}
func.func @reshape_across_a_swap(%x: tensor<2x4x6xf32>) -> tensor<2x8x3xf32> {
  %0 = nn.transpose %x {perm = array<i64: 0, 2, 1>} : (tensor<2x4x6xf32>) -> tensor<2x6x4xf32>
  %1 = nn.reshape %0 {shape = [2, 8, 3]} : (tensor<2x6x4xf32>) -> tensor<2x8x3xf32>
  return %1 : tensor<2x8x3xf32>
}

// -----

// CHECK-LABEL: func @composed_views
// CHECK-SAME: (%[[X:.*]]: tensor<2x3x16xf32>
// CHECK: %[[T:.*]] = nn.transpose %[[X]] {perm = array<i64: 1, 2, 0>}
// CHECK: %[[S:.*]] = nn.slice %[[X]] {sizes = [2, 3, 3], starts = [0, 0, 5], steps = array<i64: 1, 1, 4>}
// CHECK: return %[[T]], %[[S]]
func.func @composed_views(%x: tensor<2x3x16xf32>) -> (tensor<3x16x2xf32>, tensor<2x3x3xf32>) {
  %0 = nn.transpose %x {perm = array<i64: 0, 2, 1>} : (tensor<2x3x16xf32>) -> tensor<2x16x3xf32>
  %1 = nn.transpose %0 {perm = array<i64: 2, 1, 0>} : (tensor<2x16x3xf32>) -> tensor<3x16x2xf32>
  %2 = nn.slice %x {starts = [0, 0, 1], sizes = [2, 3, 7], steps = array<i64: 1, 1, 2>}
     : (tensor<2x3x16xf32>) -> tensor<2x3x7xf32>
  %3 = nn.slice %2 {starts = [0, 0, 2], sizes = [2, 3, 3], steps = array<i64: 1, 1, 2>}
     : (tensor<2x3x7xf32>) -> tensor<2x3x3xf32>
  return %1, %3 : tensor<3x16x2xf32>, tensor<2x3x3xf32>
}

// -----

// CHECK-LABEL: func @slice_of_concat
// CHECK-SAME: (%[[A:[a-z0-9]*]]: tensor<?x1xi64> {{.*}}, %[[B:[a-z0-9]*]]: tensor<?x?xi64>
// CHECK: %[[C:.*]] = nn.concat %[[A]], %[[B]]
// CHECK: %[[S:.*]] = nn.slice %[[C]]
// CHECK: return %[[B]], %[[S]]
func.func @slice_of_concat(%a: tensor<?x1xi64> {nn.dims = ["b", 1]}, %b: tensor<?x?xi64> {nn.dims = ["b", "s"]})
    -> (tensor<?x?xi64>, tensor<?x?xi64>) {
  %c = nn.concat %a, %b {axis = 1 : i64} : (tensor<?x1xi64>, tensor<?x?xi64>) -> tensor<?x?xi64>
  %0 = nn.slice %c {starts = [0, 1], sizes = ["b", "s"], steps = array<i64: 1, 1>} : (tensor<?x?xi64>) -> tensor<?x?xi64>
  %1 = nn.slice %c {starts = [0, 0], sizes = ["b", "s"], steps = array<i64: 1, 1>} : (tensor<?x?xi64>) -> tensor<?x?xi64>
  return %0, %1 : tensor<?x?xi64>, tensor<?x?xi64>
}

// -----

// CHECK-LABEL: func @unneeded_expands
// CHECK-SAME: (%[[C:[a-z0-9]*]]: tensor<1x1x?x?xi1> {{.*}}, %[[S:[a-z0-9]*]]: tensor<?x4x?x?xf32>
// CHECK: %[[W:.*]] = nn.where %[[C]]
// CHECK-SAME: -> tensor<1x1x?x?xf32>
// CHECK: nn.add %[[S]], %[[W]]
// CHECK-NOT: nn.expand
func.func @unneeded_expands(%c: tensor<1x1x?x?xi1> {nn.dims = [1, 1, "s", "s"]},
                            %s: tensor<?x4x?x?xf32> {nn.dims = ["b", 4, "s", "s"]}) -> tensor<?x4x?x?xf32> {
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %low = nn.constant {value = dense<-1.0e30> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.expand %c {shape = ["b", 1, "s", "s"]} : (tensor<1x1x?x?xi1>) -> tensor<?x1x?x?xi1>
  %1 = nn.where %0, %zero, %low : (tensor<?x1x?x?xi1>, tensor<f32>, tensor<f32>) -> tensor<?x1x?x?xf32>
  %2 = nn.add %s, %1 : (tensor<?x4x?x?xf32>, tensor<?x1x?x?xf32>) -> tensor<?x4x?x?xf32>
  return %2 : tensor<?x4x?x?xf32>
}

// -----

// An expand that makes the shape stays.
// CHECK-LABEL: func @needed_expand
// CHECK: nn.expand
func.func @needed_expand(%x: tensor<1x4xf32>, %y: tensor<1x4xf32>, %b: tensor<?xf32> {nn.dims = ["b"]}) -> tensor<?x4xf32> {
  %0 = nn.expand %x {shape = ["b", 4]} : (tensor<1x4xf32>) -> tensor<?x4xf32>
  %1 = nn.add %0, %y : (tensor<?x4xf32>, tensor<1x4xf32>) -> tensor<?x4xf32>
  return %1 : tensor<?x4xf32>
}

// -----

// CHECK-LABEL: func @matmul_operands
// CHECK-SAME: (%[[F:[a-z0-9]*]]: tensor<1x16x2xf32>, %[[P:[a-z0-9]*]]: tensor<?x2x?xf32>
// CHECK: nn.matmul %[[F]], %[[P]] :
// CHECK: %[[W:.*]] = nn.weight
// CHECK: nn.matmul %{{.*}}, %[[W]] {transpose_b = true}
func.func @matmul_operands(%f: tensor<1x16x2xf32>, %p: tensor<?x2x?xf32> {nn.dims = ["b", 2, "s"]},
                           %x: tensor<?x128xf32>) -> (tensor<?x16x?xf32>, tensor<?x256xf32>) {
  %0 = nn.expand %f {shape = ["b", 16, 2]} : (tensor<1x16x2xf32>) -> tensor<?x16x2xf32>
  %1 = nn.matmul %0, %p : (tensor<?x16x2xf32>, tensor<?x2x?xf32>) -> tensor<?x16x?xf32>
  %w = nn.weight {name = "w", path = "m.onnx", offset = 0 : i64, length = 131072 : i64} : () -> tensor<256x128xf32>
  %t = nn.transpose %w {perm = array<i64: 1, 0>} : (tensor<256x128xf32>) -> tensor<128x256xf32>
  %2 = nn.matmul %x, %t : (tensor<?x128xf32>, tensor<128x256xf32>) -> tensor<?x256xf32>
  return %1, %2 : tensor<?x16x?xf32>, tensor<?x256xf32>
}

// -----

// Positions times frequencies: one product an element, so no matmul.
// CHECK-LABEL: func @outer_product
// CHECK-SAME: (%[[F:[a-z0-9]*]]: tensor<1x16x1xf32>, %[[P:[a-z0-9]*]]: tensor<?x1x?xf32>
// CHECK-NEXT: nn.mul %[[F]], %[[P]] :
// CHECK-NEXT: return
func.func @outer_product(%f: tensor<1x16x1xf32>, %p: tensor<?x1x?xf32> {nn.dims = ["b", 1, "s"]}) -> tensor<?x16x?xf32> {
  %0 = nn.expand %f {shape = ["b", 16, 1]} : (tensor<1x16x1xf32>) -> tensor<?x16x1xf32>
  %1 = nn.matmul %0, %p : (tensor<?x16x1xf32>, tensor<?x1x?xf32>) -> tensor<?x16x?xf32>
  return %1 : tensor<?x16x?xf32>
}

// -----

// Kᵀ as exporters of scaled_dot_product_attention print it: through rank 3, then scaled.
// CHECK-LABEL: func @transposed_keys
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<?x4x?x32xf32> {{.*}}, %[[K:[a-z0-9]*]]: tensor<?x4x?x32xf32>
// CHECK: %[[S:.*]] = nn.mul %[[K]]
// CHECK: nn.matmul %[[Q]], %[[S]] {transpose_b = true}
func.func @transposed_keys(%q: tensor<?x4x?x32xf32> {nn.dims = ["b", 4, "s", 32]},
                           %k: tensor<?x4x?x32xf32> {nn.dims = ["b", 4, "s", 32]}) -> tensor<?x4x?x?xf32> {
  %c = nn.constant {value = dense<0.42> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.reshape %k {shape = ["4*b", "s", 32]} : (tensor<?x4x?x32xf32>) -> tensor<?x?x32xf32>
  %1 = nn.transpose %0 {perm = array<i64: 0, 2, 1>} : (tensor<?x?x32xf32>) -> tensor<?x32x?xf32>
  %2 = nn.reshape %1 {shape = ["b", 4, 32, "s"]} : (tensor<?x32x?xf32>) -> tensor<?x4x32x?xf32>
  %3 = nn.mul %2, %c : (tensor<?x4x32x?xf32>, tensor<f32>) -> tensor<?x4x32x?xf32>
  %4 = nn.matmul %q, %3 : (tensor<?x4x?x32xf32>, tensor<?x4x32x?xf32>) -> tensor<?x4x?x?xf32>
  return %4 : tensor<?x4x?x?xf32>
}

// -----

// Conv1D of GPT-2: rank 2 around the matmul goes away.
// CHECK-LABEL: func @rank_two_matmul
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x?x8xf32>
// CHECK-NOT: nn.reshape
// CHECK: %[[M:.*]] = nn.matmul %[[X]], %{{.*}} -> tensor<?x?x24xf32>
// CHECK: %[[A:.*]] = nn.add %[[M]]
// CHECK: nn.slice %[[A]]
func.func @rank_two_matmul(%x: tensor<?x?x8xf32> {nn.dims = ["b", "s", 8]}, %w: tensor<8x24xf32>,
                           %bias: tensor<24xf32>) -> tensor<?x?x8xf32> {
  %0 = nn.reshape %x {shape = ["b*s", 8]} : (tensor<?x?x8xf32>) -> tensor<?x8xf32>
  %1 = nn.matmul %0, %w : (tensor<?x8xf32>, tensor<8x24xf32>) -> tensor<?x24xf32>
  %2 = nn.add %1, %bias : (tensor<?x24xf32>, tensor<24xf32>) -> tensor<?x24xf32>
  %3 = nn.reshape %2 {shape = ["b", "s", 24]} : (tensor<?x24xf32>) -> tensor<?x?x24xf32>
  %4 = nn.slice %3 {starts = [0, 0, 8], sizes = ["b", "s", 8], steps = array<i64: 1, 1, 1>}
     : (tensor<?x?x24xf32>) -> tensor<?x?x8xf32>
  return %4 : tensor<?x?x8xf32>
}

// -----

// The operand has a row of its own for each merged index: the reshape stays in front.
// CHECK-LABEL: func @per_row_operand
// CHECK: %[[R:.*]] = nn.reshape
// CHECK: nn.mul %[[R]]
func.func @per_row_operand(%x: tensor<2x3x8xf32>, %y: tensor<6x1xf32>) -> tensor<6x8xf32> {
  %0 = nn.reshape %x {shape = [6, 8]} : (tensor<2x3x8xf32>) -> tensor<6x8xf32>
  %1 = nn.mul %0, %y : (tensor<6x8xf32>, tensor<6x1xf32>) -> tensor<6x8xf32>
  return %1 : tensor<6x8xf32>
}

// -----

// CHECK-LABEL: func @kept_dims
// CHECK-NEXT: nn.reduce %{{.*}} {axes = array<i64: -1>, keepdims = true, kind = "mean"}
// CHECK-NEXT: return
func.func @kept_dims(%x: tensor<?x8xf32> {nn.dims = ["b", 8]}) -> tensor<?x1xf32> {
  %0 = nn.reduce %x {kind = "mean", axes = array<i64: -1>, keepdims = false} : (tensor<?x8xf32>) -> tensor<?xf32>
  %1 = nn.reshape %0 {shape = ["b", 1]} : (tensor<?xf32>) -> tensor<?x1xf32>
  return %1 : tensor<?x1xf32>
}

// -----

// Scores among which experts are chosen keep merged rows: the reshape stays in front of the matmul.
// CHECK-LABEL: func @router
// CHECK: %[[R:.*]] = nn.reshape
// CHECK-NEXT: %[[M:.*]] = nn.matmul %[[R]]
// CHECK-NEXT: %[[S:.*]] = nn.sigmoid %[[M]]
// CHECK-NEXT: nn.top_k %[[S]]
func.func @router(%x: tensor<?x?x8xf32> {nn.dims = ["b", "s", 8]}, %w: tensor<8x4xf32>) -> tensor<?x2xi64> {
  %0 = nn.reshape %x {shape = ["b*s", 8]} : (tensor<?x?x8xf32>) -> tensor<?x8xf32>
  %1 = nn.matmul %0, %w : (tensor<?x8xf32>, tensor<8x4xf32>) -> tensor<?x4xf32>
  %2 = nn.sigmoid %1 : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %3 = nn.top_k %2 {axis = 1 : i64, k = [2]} : (tensor<?x4xf32>) -> tensor<?x2xi64>
  return %3 : tensor<?x2xi64>
}

// -----

// Sums over the last dim divided by the number of its elements are means; sums of squares are means of squares.
// CHECK-LABEL: @sums_to_means
// CHECK-SAME: (%[[X:.*]]: tensor<2x16xf32>, %[[H:.*]]: tensor<2x16xf16>)
// CHECK-DAG: %[[M:.*]] = nn.reduce %[[X]] {axes = array<i64: 1>, keepdims = true, kind = "mean"}
// CHECK-DAG: %[[S:.*]] = nn.square %[[X]]
// CHECK-DAG: %[[Q:.*]] = nn.reduce %[[S]] {axes = array<i64: 1>, keepdims = true, kind = "mean"}
// CHECK-DAG: nn.reduce %[[X]] {axes = array<i64: 0>, keepdims = true, kind = "sum"}
// CHECK-DAG: nn.reduce %[[H]] {axes = array<i64: 1>, keepdims = true, kind = "sum"}
// CHECK: return %[[M]], %[[Q]]
func.func @sums_to_means(%x: tensor<2x16xf32>, %h: tensor<2x16xf16>)
    -> (tensor<2x1xf32>, tensor<2x1xf32>, tensor<1x16xf32>, tensor<2x1xf16>) {
  %n = nn.constant {value = dense<16.0> : tensor<f32>} : () -> tensor<f32>
  %one_nth = nn.constant {value = dense<0.0625> : tensor<f32>} : () -> tensor<f32>
  %narrow = nn.constant {value = dense<16.0> : tensor<f16>} : () -> tensor<f16>
  %0 = nn.reduce %x {kind = "sum", axes = array<i64: 1>, keepdims = true} : (tensor<2x16xf32>) -> tensor<2x1xf32>
  %1 = nn.div %0, %n : (tensor<2x1xf32>, tensor<f32>) -> tensor<2x1xf32>
  %2 = nn.reduce %x {kind = "sum_square", axes = array<i64: 1>, keepdims = true} : (tensor<2x16xf32>) -> tensor<2x1xf32>
  %3 = nn.mul %one_nth, %2 : (tensor<f32>, tensor<2x1xf32>) -> tensor<2x1xf32>
  %4 = nn.reduce %x {kind = "sum", axes = array<i64: 0>, keepdims = true} : (tensor<2x16xf32>) -> tensor<1x16xf32>
  %5 = nn.div %4, %n : (tensor<1x16xf32>, tensor<f32>) -> tensor<1x16xf32>
  %6 = nn.reduce %h {kind = "sum", axes = array<i64: 1>, keepdims = true} : (tensor<2x16xf16>) -> tensor<2x1xf16>
  %7 = nn.div %6, %narrow : (tensor<2x1xf16>, tensor<f16>) -> tensor<2x1xf16>
  return %1, %3, %5, %7 : tensor<2x1xf32>, tensor<2x1xf32>, tensor<1x16xf32>, tensor<2x1xf16>
}
