// RUN: fusion-opt %s --nn-canonicalize --split-input-file | FileCheck %s
// Slices and transposes of a concat that nothing else reads become those of its parts.

// The state of a convolution: the last three of what was there and what is new, in the layout that it came in.
// CHECK-LABEL: @state_of_a_convolution
// CHECK-SAME: (%[[P:[a-z0-9]*]]: tensor<1x8x3xf32>, %[[X:[a-z0-9]*]]: tensor<1x1x8xf32>)
// CHECK: %[[Y:.*]] = nn.concat %{{.*}}, %{{.*}} {axis = 2 : i64} : (tensor<1x8x2xf32>, tensor<1x8x1xf32>) -> tensor<1x8x3xf32>
// CHECK-NEXT: return %[[Y]]
func.func @state_of_a_convolution(%past: tensor<1x8x3xf32>, %x: tensor<1x1x8xf32>) -> tensor<1x8x3xf32> {
  %0 = nn.transpose %past {perm = array<i64: 0, 2, 1>} : (tensor<1x8x3xf32>) -> tensor<1x3x8xf32>
  %1 = nn.concat %0, %x {axis = 1 : i64} : (tensor<1x3x8xf32>, tensor<1x1x8xf32>) -> tensor<1x4x8xf32>
  %2 = nn.slice %1 {starts = [0, 1, 0], sizes = [1, 3, 8], steps = array<i64: 1, 1, 1>} : (tensor<1x4x8xf32>) -> tensor<1x3x8xf32>
  %3 = nn.transpose %2 {perm = array<i64: 0, 2, 1>} : (tensor<1x3x8xf32>) -> tensor<1x8x3xf32>
  return %3 : tensor<1x8x3xf32>
}

// -----

// From the middle of the first to the middle of the last of three parts.
// CHECK-LABEL: @middle
// CHECK-DAG: %[[A:.*]] = nn.slice %arg0 {{.*}}starts = [3]{{.*}} -> tensor<1xf32>
// CHECK-DAG: %[[C:.*]] = nn.slice %arg2 {{.*}}starts = [0]{{.*}} -> tensor<2xf32>
// CHECK: nn.concat %[[A]], %arg1, %[[C]]
func.func @middle(%a: tensor<4xf32>, %b: tensor<3xf32>, %c: tensor<5xf32>) -> tensor<6xf32> {
  %0 = nn.concat %a, %b, %c {axis = 0 : i64} : (tensor<4xf32>, tensor<3xf32>, tensor<5xf32>) -> tensor<12xf32>
  %1 = nn.slice %0 {starts = [3], sizes = [6], steps = array<i64: 1>} : (tensor<12xf32>) -> tensor<6xf32>
  return %1 : tensor<6xf32>
}

// -----

// Who else reads the whole needs it, steps jump over the seam, and n may be less than two.
// CHECK-LABEL: @kept
// CHECK: %[[W:.*]] = nn.concat %arg0, %arg1
// CHECK: nn.slice %[[W]]
// CHECK: %[[S:.*]] = nn.concat %arg0, %arg0
// CHECK: nn.slice %[[S]]
// CHECK: %[[N:.*]] = nn.concat %arg2, %arg0
// CHECK: nn.slice %[[N]]
func.func @kept(%a: tensor<4xf32>, %b: tensor<3xf32>, %c: tensor<?xf32> {nn.dims = ["n"]})
    -> (tensor<7xf32>, tensor<4xf32>, tensor<4xf32>, tensor<3xf32>) {
  %0 = nn.concat %a, %b {axis = 0 : i64} : (tensor<4xf32>, tensor<3xf32>) -> tensor<7xf32>
  %1 = nn.slice %0 {starts = [2], sizes = [4], steps = array<i64: 1>} : (tensor<7xf32>) -> tensor<4xf32>
  %2 = nn.concat %a, %a {axis = 0 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  %3 = nn.slice %2 {starts = [0], sizes = [4], steps = array<i64: 2>} : (tensor<8xf32>) -> tensor<4xf32>
  %4 = nn.concat %c, %a {axis = 0 : i64} : (tensor<?xf32>, tensor<4xf32>) -> tensor<?xf32>
  %5 = nn.slice %4 {starts = [2], sizes = [3], steps = array<i64: 1>} : (tensor<?xf32>) -> tensor<3xf32>
  return %0, %1, %3, %5 : tensor<7xf32>, tensor<4xf32>, tensor<4xf32>, tensor<3xf32>
}

// -----

// No part is transposed: the transpose stays one of the whole.
// CHECK-LABEL: @plain_parts
// CHECK: %[[C:.*]] = nn.concat %arg0, %arg1
// CHECK-NEXT: nn.transpose %[[C]]
func.func @plain_parts(%a: tensor<2x3xf32>, %b: tensor<4x3xf32>) -> tensor<3x6xf32> {
  %0 = nn.concat %a, %b {axis = 0 : i64} : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<6x3xf32>
  %1 = nn.transpose %0 {perm = array<i64: 1, 0>} : (tensor<6x3xf32>) -> tensor<3x6xf32>
  return %1 : tensor<3x6xf32>
}
