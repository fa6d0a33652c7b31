// RUN: fusion-opt %s --nn-canonicalize --split-input-file | FileCheck %s

// Qwen3: the norm of each head stands before the transpose.
// CHECK-LABEL: @transpose_of_norm
// CHECK: %[[R:.*]] = nn.reshape
// CHECK: %[[T:.*]] = nn.transpose %[[R]]
// CHECK: %[[N:.*]] = nn.rms_norm %[[T]], {{.*}} -> tensor<1x4x8x32xf32>
// CHECK: return %[[N]]
func.func @transpose_of_norm(%x: tensor<1x8x128xf32>, %w: tensor<32xf32>) -> tensor<1x4x8x32xf32> {
  %0 = nn.reshape %x {shape = [1, 8, 4, 32]} : (tensor<1x8x128xf32>) -> tensor<1x8x4x32xf32>
  %1 = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<1x8x4x32xf32>, tensor<32xf32>) -> tensor<1x8x4x32xf32>
  %2 = nn.transpose %1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x8x4x32xf32>) -> tensor<1x4x8x32xf32>
  return %2 : tensor<1x4x8x32xf32>
}

// -----

// Norm, rotation, then the transpose: the tables turn along.
// CHECK-LABEL: @transpose_of_rope
// CHECK-SAME: (%{{.*}}: tensor<1x8x128xf32>, %{{.*}}: tensor<32xf32>, %[[C:.*]]: tensor<8x1x32xf32>, %[[S:.*]]: tensor<8x1x32xf32>)
// CHECK-DAG: %[[CR:.*]] = nn.reshape %[[C]] {{.*}} -> tensor<1x8x1x32xf32>
// CHECK-DAG: %[[CT:.*]] = nn.transpose %[[CR]] {{.*}} -> tensor<1x1x8x32xf32>
// CHECK-DAG: %[[N:.*]] = nn.rms_norm {{.*}} -> tensor<1x4x8x32xf32>
// CHECK: nn.rope %[[N]], %{{.*}}, %{{.*}} -> tensor<1x4x8x32xf32>
// CHECK-NEXT: return
func.func @transpose_of_rope(%x: tensor<1x8x128xf32>, %w: tensor<32xf32>, %c: tensor<8x1x32xf32>, %s: tensor<8x1x32xf32>) -> tensor<1x4x8x32xf32> {
  %0 = nn.reshape %x {shape = [1, 8, 4, 32]} : (tensor<1x8x128xf32>) -> tensor<1x8x4x32xf32>
  %1 = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<1x8x4x32xf32>, tensor<32xf32>) -> tensor<1x8x4x32xf32>
  %2 = nn.rope %1, %c, %s {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x8x4x32xf32>, tensor<8x1x32xf32>, tensor<8x1x32xf32>) -> tensor<1x8x4x32xf32>
  %3 = nn.transpose %2 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x8x4x32xf32>) -> tensor<1x4x8x32xf32>
  return %3 : tensor<1x4x8x32xf32>
}

// -----

// The norm of a computed value stays: its own producer may join it. So does a norm with a second reader, and one whose
// last dim moves.
// CHECK-LABEL: @left_alone
// CHECK: nn.rms_norm
// CHECK: nn.transpose
// CHECK: nn.rms_norm
// CHECK: nn.transpose
// CHECK: nn.rms_norm
// CHECK: nn.transpose
func.func @left_alone(%x: tensor<1x8x4x32xf32>, %y: tensor<1x8x128xf32>, %w: tensor<32xf32>)
    -> (tensor<1x4x8x32xf32>, tensor<1x8x4x32xf32>, tensor<1x4x8x32xf32>, tensor<1x8x32x4xf32>) {
  %0 = nn.add %x, %x : (tensor<1x8x4x32xf32>, tensor<1x8x4x32xf32>) -> tensor<1x8x4x32xf32>
  %1 = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<1x8x4x32xf32>, tensor<32xf32>) -> tensor<1x8x4x32xf32>
  %2 = nn.transpose %1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x8x4x32xf32>) -> tensor<1x4x8x32xf32>
  %3 = nn.reshape %y {shape = [1, 8, 4, 32]} : (tensor<1x8x128xf32>) -> tensor<1x8x4x32xf32>
  %4 = nn.rms_norm %3, %w {eps = 1.0e-6 : f32} : (tensor<1x8x4x32xf32>, tensor<32xf32>) -> tensor<1x8x4x32xf32>
  %5 = nn.transpose %4 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x8x4x32xf32>) -> tensor<1x4x8x32xf32>
  %6 = nn.rms_norm %3, %w {eps = 2.0e-6 : f32} : (tensor<1x8x4x32xf32>, tensor<32xf32>) -> tensor<1x8x4x32xf32>
  %7 = nn.transpose %6 {perm = array<i64: 0, 1, 3, 2>} : (tensor<1x8x4x32xf32>) -> tensor<1x8x32x4xf32>
  return %2, %4, %5, %7 : tensor<1x4x8x32xf32>, tensor<1x8x4x32xf32>, tensor<1x4x8x32xf32>, tensor<1x8x32x4xf32>
}
