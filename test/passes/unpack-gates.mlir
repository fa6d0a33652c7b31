// RUN: fusion-opt %s --nn-unpack-gates --split-input-file | FileCheck %s

// CHECK-LABEL: func @swiglu
// CHECK: %[[W:.*]] = nn.constant
// CHECK: %[[G:.*]] = nn.slice %[[W]] {sizes = [8, 16], starts = [0, 0]
// CHECK-NEXT: %[[GATE:.*]] = nn.matmul %{{.*}}, %[[G]] {{.*}} -> tensor<?x16xf32>
// CHECK: %[[U:.*]] = nn.slice %[[W]] {sizes = [8, 16], starts = [0, 16]
// CHECK-NEXT: %[[UP:.*]] = nn.matmul %{{.*}}, %[[U]]
// CHECK-NEXT: %[[S:.*]] = nn.silu %[[GATE]]
// CHECK-NEXT: nn.mul %[[S]], %[[UP]]
func.func @swiglu(%x: tensor<?x8xf32> {nn.dims = ["n", 8]}) -> tensor<?x16xf32> {
  %w = nn.constant {value = dense<1.0> : tensor<8x32xf32>} : () -> tensor<8x32xf32>
  %0 = nn.matmul %x, %w : (tensor<?x8xf32>, tensor<8x32xf32>) -> tensor<?x32xf32>
  %gate = nn.slice %0 {starts = [0, 0], sizes = ["n", 16], steps = array<i64: 1, 1>} : (tensor<?x32xf32>) -> tensor<?x16xf32>
  %up = nn.slice %0 {starts = [0, 16], sizes = ["n", 16], steps = array<i64: 1, 1>} : (tensor<?x32xf32>) -> tensor<?x16xf32>
  %1 = nn.silu %gate : (tensor<?x16xf32>) -> tensor<?x16xf32>
  %2 = nn.mul %1, %up : (tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %2 : tensor<?x16xf32>
}

// -----

// The up half first, a bias, a weight stored transposed, the product commuted.
// CHECK-LABEL: func @commuted_with_bias
// CHECK: nn.slice %{{.*}} {sizes = [16, 8], starts = [0, 0]
// CHECK: nn.matmul {{.*}} {transpose_b = true}
// CHECK: nn.slice %{{.*}} {sizes = [16], starts = [0]
// CHECK: nn.slice %{{.*}} {sizes = [16, 8], starts = [16, 0]
// CHECK: nn.slice %{{.*}} {sizes = [16], starts = [16]
func.func @commuted_with_bias(%x: tensor<?x8xf32> {nn.dims = ["n", 8]}) -> tensor<?x16xf32> {
  %w = nn.constant {value = dense<1.0> : tensor<32x8xf32>} : () -> tensor<32x8xf32>
  %b = nn.constant {value = dense<2.0> : tensor<32xf32>} : () -> tensor<32xf32>
  %0 = nn.matmul %x, %w {transpose_b = true} : (tensor<?x8xf32>, tensor<32x8xf32>) -> tensor<?x32xf32>
  %1 = nn.add %b, %0 : (tensor<32xf32>, tensor<?x32xf32>) -> tensor<?x32xf32>
  %up = nn.slice %1 {starts = [0, 0], sizes = ["n", 16], steps = array<i64: 1, 1>} : (tensor<?x32xf32>) -> tensor<?x16xf32>
  %gate = nn.slice %1 {starts = [0, 16], sizes = ["n", 16], steps = array<i64: 1, 1>} : (tensor<?x32xf32>) -> tensor<?x16xf32>
  %2 = nn.gelu %gate {approximate = "tanh"} : (tensor<?x16xf32>) -> tensor<?x16xf32>
  %3 = nn.mul %up, %2 : (tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %3 : tensor<?x16xf32>
}

// -----

// Queries and keys do not meet in an elementwise op: one product stays one.
// CHECK-LABEL: func @heads
// CHECK-NOT: tensor<8x16xf32>
// CHECK: return
func.func @heads(%x: tensor<?x8xf32> {nn.dims = ["n", 8]}) -> (tensor<?x16xf32>, tensor<?x16xf32>) {
  %w = nn.constant {value = dense<1.0> : tensor<8x32xf32>} : () -> tensor<8x32xf32>
  %0 = nn.matmul %x, %w : (tensor<?x8xf32>, tensor<8x32xf32>) -> tensor<?x32xf32>
  %q = nn.slice %0 {starts = [0, 0], sizes = ["n", 16], steps = array<i64: 1, 1>} : (tensor<?x32xf32>) -> tensor<?x16xf32>
  %k = nn.slice %0 {starts = [0, 16], sizes = ["n", 16], steps = array<i64: 1, 1>} : (tensor<?x32xf32>) -> tensor<?x16xf32>
  return %q, %k : tensor<?x16xf32>, tensor<?x16xf32>
}

// -----

// Somebody reads the whole product too.
// CHECK-LABEL: func @also_whole
// CHECK-NOT: tensor<8x16xf32>
// CHECK: return
func.func @also_whole(%x: tensor<?x8xf32> {nn.dims = ["n", 8]}) -> (tensor<?x16xf32>, tensor<?x32xf32>) {
  %w = nn.constant {value = dense<1.0> : tensor<8x32xf32>} : () -> tensor<8x32xf32>
  %0 = nn.matmul %x, %w : (tensor<?x8xf32>, tensor<8x32xf32>) -> tensor<?x32xf32>
  %gate = nn.slice %0 {starts = [0, 0], sizes = ["n", 16], steps = array<i64: 1, 1>} : (tensor<?x32xf32>) -> tensor<?x16xf32>
  %up = nn.slice %0 {starts = [0, 16], sizes = ["n", 16], steps = array<i64: 1, 1>} : (tensor<?x32xf32>) -> tensor<?x16xf32>
  %1 = nn.mul %gate, %up : (tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %1, %0 : tensor<?x16xf32>, tensor<?x32xf32>
}
