// RUN: fusion-opt %s --nn-canonicalize --split-input-file | FileCheck %s

// PyTorch's addmm: added in f32, rounded once.
// CHECK-LABEL: func @bias
// CHECK-SAME: (%[[X:.*]]: tensor<?x64xbf16>
// CHECK: %[[Y:.*]] = nn.matmul %[[X]], %{{.*}} {transpose_b = true} : (tensor<?x64xbf16>, tensor<32x64xbf16>) -> tensor<?x32xf32>
// CHECK: %[[S:.*]] = nn.add %[[Y]], %{{.*}} : (tensor<?x32xf32>, tensor<32xf32>)
// CHECK: nn.cast %[[S]] : (tensor<?x32xf32>) -> tensor<?x32xbf16>
func.func @bias(%x: tensor<?x64xbf16> {nn.dims = ["t", 64]}, %w: tensor<32x64xbf16>, %b: tensor<32xbf16>) -> tensor<?x32xbf16> {
  %0 = nn.cast %x : (tensor<?x64xbf16>) -> tensor<?x64xf32>
  %1 = nn.transpose %w {perm = array<i64: 1, 0>} : (tensor<32x64xbf16>) -> tensor<64x32xbf16>
  %2 = nn.cast %1 : (tensor<64x32xbf16>) -> tensor<64x32xf32>
  %3 = nn.matmul %0, %2 : (tensor<?x64xf32>, tensor<64x32xf32>) -> tensor<?x32xf32>
  %4 = nn.cast %b : (tensor<32xbf16>) -> tensor<32xf32>
  %5 = nn.add %3, %4 : (tensor<?x32xf32>, tensor<32xf32>) -> tensor<?x32xf32>
  %6 = nn.cast %5 : (tensor<?x32xf32>) -> tensor<?x32xbf16>
  return %6 : tensor<?x32xbf16>
}

// -----

// CHECK-LABEL: func @scaled
// CHECK: nn.matmul %{{.*}}, %{{.*}} : (tensor<4x8xf16>, tensor<8x16xf16>) -> tensor<4x16xf32>
func.func @scaled(%x: tensor<4x8xf16>, %w: tensor<8x16xf16>, %s: tensor<16xf32>) -> tensor<4x16xf16> {
  %0 = nn.cast %x : (tensor<4x8xf16>) -> tensor<4x8xf32>
  %1 = nn.cast %w : (tensor<8x16xf16>) -> tensor<8x16xf32>
  %2 = nn.matmul %0, %1 : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %3 = nn.mul %2, %s : (tensor<4x16xf32>, tensor<16xf32>) -> tensor<4x16xf32>
  %4 = nn.cast %3 : (tensor<4x16xf32>) -> tensor<4x16xf16>
  return %4 : tensor<4x16xf16>
}

// -----

// f32 was asked for: the order of its sums stays that of f32 operands.
// CHECK-LABEL: func @wanted_in_f32
// CHECK: nn.matmul %{{.*}}, %{{.*}} : (tensor<4x8xf32>, tensor<8x16xf32>)
func.func @wanted_in_f32(%x: tensor<4x8xf16>, %w: tensor<8x16xf16>) -> tensor<4x16xf32> {
  %0 = nn.cast %x : (tensor<4x8xf16>) -> tensor<4x8xf32>
  %1 = nn.cast %w : (tensor<8x16xf16>) -> tensor<8x16xf32>
  %2 = nn.matmul %0, %1 : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  return %2 : tensor<4x16xf32>
}

// -----

// Rounded to another type than the operands'; operands of two types; something else between.
// CHECK-LABEL: func @others
// CHECK-COUNT-3: nn.matmul %{{.*}}, %{{.*}} : (tensor<4x8xf32>, tensor<8x16xf32>)
func.func @others(%x: tensor<4x8xf16>, %w: tensor<8x16xf16>, %v: tensor<8x16xbf16>)
    -> (tensor<4x16xbf16>, tensor<4x16xf16>, tensor<4x16xf16>) {
  %0 = nn.cast %x : (tensor<4x8xf16>) -> tensor<4x8xf32>
  %1 = nn.cast %w : (tensor<8x16xf16>) -> tensor<8x16xf32>
  %2 = nn.matmul %0, %1 : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %3 = nn.cast %2 : (tensor<4x16xf32>) -> tensor<4x16xbf16>
  %4 = nn.cast %v : (tensor<8x16xbf16>) -> tensor<8x16xf32>
  %5 = nn.matmul %0, %4 : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %6 = nn.cast %5 : (tensor<4x16xf32>) -> tensor<4x16xf16>
  %7 = nn.matmul %0, %1 : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %8 = nn.exp %7 : (tensor<4x16xf32>) -> tensor<4x16xf32>
  %9 = nn.cast %8 : (tensor<4x16xf32>) -> tensor<4x16xf16>
  return %3, %6, %9 : tensor<4x16xbf16>, tensor<4x16xf16>, tensor<4x16xf16>
}
