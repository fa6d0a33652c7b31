// RUN: fusion-opt %s --fuse-row-reduction --split-input-file 2>/dev/null | FileCheck %s

// Scores that are scaled, masked and widened, and probabilities that are narrowed.
// CHECK-LABEL: @scores
// CHECK: %[[G:.*]] = fusion.group "row_reduction" schedule "row"
// CHECK: nn.mul
// CHECK: nn.add
// CHECK: nn.cast
// CHECK: nn.softmax
// CHECK: nn.cast
// CHECK: return %[[G]]
func.func @scores(%s: tensor<2x4x5x7xf16>, %m: tensor<2x1x5x7xf16>) -> tensor<2x4x5x7xf16> {
  %c = nn.constant {value = dense<0.125> : tensor<f16>} : () -> tensor<f16>
  %0 = nn.mul %s, %c : (tensor<2x4x5x7xf16>, tensor<f16>) -> tensor<2x4x5x7xf16>
  %1 = nn.add %0, %m : (tensor<2x4x5x7xf16>, tensor<2x1x5x7xf16>) -> tensor<2x4x5x7xf16>
  %2 = nn.cast %1 : (tensor<2x4x5x7xf16>) -> tensor<2x4x5x7xf32>
  %3 = nn.softmax %2 {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %4 = nn.cast %3 : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf16>
  return %4 : tensor<2x4x5x7xf16>
}

// -----

// Two reductions, of which one keeps its dim; what is between them leaves, too.
// CHECK-LABEL: @statistics
// CHECK: %[[G:.*]]:2 = fusion.group "row_reduction" schedule "row"
// CHECK: kind = "max"
// CHECK: kind = "sum"
// CHECK: nn.log
// CHECK: return %[[G]]#0, %[[G]]#1
func.func @statistics(%x: tensor<6x96xf32>, %w: tensor<96xf32>) -> (tensor<6x96xf32>, tensor<6xf32>) {
  %a = nn.abs %x : (tensor<6x96xf32>) -> tensor<6x96xf32>
  %m = nn.reduce %a {kind = "max", axes = array<i64: 1>, keepdims = true} : (tensor<6x96xf32>) -> tensor<6x1xf32>
  %d = nn.div %x, %m : (tensor<6x96xf32>, tensor<6x1xf32>) -> tensor<6x96xf32>
  %e = nn.mul %d, %w : (tensor<6x96xf32>, tensor<96xf32>) -> tensor<6x96xf32>
  %q = nn.square %e : (tensor<6x96xf32>) -> tensor<6x96xf32>
  %s = nn.reduce %q {kind = "sum", axes = array<i64: 1>, keepdims = false} : (tensor<6x96xf32>) -> tensor<6xf32>
  %l = nn.log %s : (tensor<6xf32>) -> tensor<6xf32>
  return %e, %l : tensor<6x96xf32>, tensor<6xf32>
}

// -----

// The widened rows have another reader, which would have to read them all the same: they stay outside, and so does
// what waits for the group and is waited for.
// CHECK-LABEL: @read_twice
// CHECK: %[[C:.*]] = nn.cast
// CHECK: %[[G:.*]] = fusion.group "row_reduction" schedule "row" (%{{.*}} = %[[C]])
// CHECK: kind = "sum"
// CHECK: nn.exp
// CHECK: fusion.yield
// CHECK: nn.matmul
func.func @read_twice(%x: tensor<8x8xf16>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %c = nn.cast %x : (tensor<8x8xf16>) -> tensor<8x8xf32>
  %t = nn.transpose %c {perm = array<i64: 1, 0>} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %s = nn.reduce %c {kind = "sum", axes = array<i64: 1>, keepdims = true} : (tensor<8x8xf32>) -> tensor<8x1xf32>
  %e = nn.exp %s : (tensor<8x1xf32>) -> tensor<8x1xf32>
  %p = nn.matmul %t, %e : (tensor<8x8xf32>, tensor<8x1xf32>) -> tensor<8x1xf32>
  %y = nn.mul %p, %e : (tensor<8x1xf32>, tensor<8x1xf32>) -> tensor<8x1xf32>
  %z = nn.add %c, %y : (tensor<8x8xf32>, tensor<8x1xf32>) -> tensor<8x8xf32>
  return %z, %t : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// What the sum is multiplied by waits for a matmul of the sum: it stays outside, and the root with it. The square
// before the sum goes along.
// CHECK-LABEL: @waits
// CHECK: %[[G:.*]] = fusion.group "row_reduction" schedule "row"
// CHECK-NEXT: nn.square
// CHECK-NEXT: nn.reduce
// CHECK-NEXT: fusion.yield
// CHECK: nn.matmul %[[G]]
// CHECK-NEXT: nn.abs
// CHECK-NEXT: nn.mul
func.func @waits(%x: tensor<8x16xf32>, %w: tensor<1x16xf32>) -> tensor<8x16xf32> {
  %q = nn.square %x : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %s = nn.reduce %q {kind = "sum", axes = array<i64: 1>, keepdims = true} : (tensor<8x16xf32>) -> tensor<8x1xf32>
  %p = nn.matmul %s, %w : (tensor<8x1xf32>, tensor<1x16xf32>) -> tensor<8x16xf32>
  %a = nn.abs %p : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %y = nn.mul %a, %s : (tensor<8x16xf32>, tensor<8x1xf32>) -> tensor<8x16xf32>
  return %y : tensor<8x16xf32>
}

// -----

// Along another dim, of integers, of single elements, alone.
// CHECK-LABEL: @others
// CHECK-NOT: fusion.group
// CHECK: return
func.func @others(%x: tensor<4x8xf32>, %i: tensor<4x8xi32>, %z: tensor<4x1xf32>)
    -> (tensor<1x8xf32>, tensor<4x1xi32>, tensor<4x1xf32>, tensor<4x8xf32>) {
  %a = nn.abs %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %0 = nn.reduce %a {kind = "sum", axes = array<i64: 0>, keepdims = true} : (tensor<4x8xf32>) -> tensor<1x8xf32>
  %b = nn.abs %i : (tensor<4x8xi32>) -> tensor<4x8xi32>
  %1 = nn.reduce %b {kind = "sum", axes = array<i64: 1>, keepdims = true} : (tensor<4x8xi32>) -> tensor<4x1xi32>
  %c = nn.abs %z : (tensor<4x1xf32>) -> tensor<4x1xf32>
  %2 = nn.reduce %c {kind = "sum", axes = array<i64: 1>, keepdims = true} : (tensor<4x1xf32>) -> tensor<4x1xf32>
  %3 = nn.softmax %x {axis = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0, %1, %2, %3 : tensor<1x8xf32>, tensor<4x1xi32>, tensor<4x1xf32>, tensor<4x8xf32>
}
