// RMS norms as torch's normalize spells them: rows over their length, times the root of their size.
// RUN: fusion-opt %s --nn-raise-norm --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-raise-norm=assume-finite=false --split-input-file | FileCheck %s --check-prefix=EXACT

// CHECK-LABEL: func @weighted
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<2x3x16xf32>, %[[W:[a-z0-9]*]]: tensor<16xf32>)
// CHECK-NEXT: %[[N:.*]] = nn.rms_norm %[[X]], %[[W]] {eps = 6.25{{[0-9]*[eE]}}-26 : f32}
// CHECK-NEXT: return %[[N]]
// EXACT-LABEL: func @weighted
// EXACT-NOT: nn.rms_norm
func.func @weighted(%x: tensor<2x3x16xf32>, %w: tensor<16xf32>) -> tensor<2x3x16xf32> {
  %least = nn.constant {value = dense<1.0e-12> : tensor<f32>} : () -> tensor<f32>
  %root = nn.constant {value = dense<4.0> : tensor<f32>} : () -> tensor<f32>
  %length = nn.reduce %x {kind = "l2", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x16xf32>) -> tensor<2x3x1xf32>
  %bounded = nn.max %length, %least : (tensor<2x3x1xf32>, tensor<f32>) -> tensor<2x3x1xf32>
  %unit = nn.div %x, %bounded : (tensor<2x3x16xf32>, tensor<2x3x1xf32>) -> tensor<2x3x16xf32>
  %scaled = nn.mul %unit, %root : (tensor<2x3x16xf32>, tensor<f32>) -> tensor<2x3x16xf32>
  %y = nn.mul %scaled, %w : (tensor<2x3x16xf32>, tensor<16xf32>) -> tensor<2x3x16xf32>
  return %y : tensor<2x3x16xf32>
}

// -----

// Another factor than the root of the size is no RMS norm.
// CHECK-LABEL: func @other_factor
// CHECK-NOT: nn.rms_norm
func.func @other_factor(%x: tensor<2x3x16xf32>) -> tensor<2x3x16xf32> {
  %least = nn.constant {value = dense<1.0e-12> : tensor<f32>} : () -> tensor<f32>
  %factor = nn.constant {value = dense<10.0> : tensor<f32>} : () -> tensor<f32>
  %length = nn.reduce %x {kind = "l2", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x16xf32>) -> tensor<2x3x1xf32>
  %bounded = nn.max %length, %least : (tensor<2x3x1xf32>, tensor<f32>) -> tensor<2x3x1xf32>
  %unit = nn.div %x, %bounded : (tensor<2x3x16xf32>, tensor<2x3x1xf32>) -> tensor<2x3x16xf32>
  %y = nn.mul %unit, %factor : (tensor<2x3x16xf32>, tensor<f32>) -> tensor<2x3x16xf32>
  return %y : tensor<2x3x16xf32>
}
