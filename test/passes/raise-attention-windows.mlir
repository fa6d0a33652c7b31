// Attention in windows of a picture: each window's mask is added where batch and windows are dims of their own.
// RUN: fusion-opt %s --nn-raise-attention --split-input-file | FileCheck %s

// Windows become heads: a bias of each head is repeated for each window, a window's mask for each head.
// CHECK-LABEL: func @shifted
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<?x2x9x16xf32> {{.*}}, %[[K:[a-z0-9]*]]: tensor<?x2x9x16xf32> {{.*}}, %[[V:[a-z0-9]*]]: tensor<?x2x9x16xf32> {{.*}}, %[[BIAS:[a-z0-9]*]]: tensor<1x2x9x9xf32>, %[[MASK:[a-z0-9]*]]: tensor<4x9x9xf32>)
// CHECK: %[[M5:.*]] = nn.reshape %[[MASK]] {shape = [1, 4, 1, 9, 9]}
// CHECK: %[[ME:.*]] = nn.expand %[[M5]] {shape = [1, 4, 2, 9, 9]}
// CHECK: %[[MW:.*]] = nn.reshape %[[ME]] {shape = [1, 8, 9, 9]}
// CHECK: %[[B5:.*]] = nn.reshape %[[BIAS]] {shape = [1, 1, 2, 9, 9]}
// CHECK: %[[BE:.*]] = nn.expand %[[B5]] {shape = [1, 4, 2, 9, 9]}
// CHECK: %[[BW:.*]] = nn.reshape %[[BE]] {shape = [1, 8, 9, 9]}
// CHECK-DAG: %[[QW:.*]] = nn.reshape %[[Q]] {shape = ["b", 8, 9, 16]}
// CHECK-DAG: %[[KW:.*]] = nn.reshape %[[K]] {shape = ["b", 8, 9, 16]}
// CHECK-DAG: %[[VW:.*]] = nn.reshape %[[V]] {shape = ["b", 8, 9, 16]}
// CHECK: %[[S:.*]] = nn.add %[[MW]], %[[BW]]
// CHECK: %[[A:.*]] = nn.attention %[[QW]], %[[KW]], %[[VW]], %[[S]] {scale = 2.500000e-01 : f32}
// CHECK-NEXT: %[[R:.*]] = nn.reshape %[[A]] {shape = ["4*b", 2, 9, 16]}
// CHECK-NEXT: return %[[R]]
func.func @shifted(%q: tensor<?x2x9x16xf32> {nn.dims = ["4*b", 2, 9, 16]}, %k: tensor<?x2x9x16xf32> {nn.dims = ["4*b", 2, 9, 16]}, %v: tensor<?x2x9x16xf32> {nn.dims = ["4*b", 2, 9, 16]},
                   %bias: tensor<1x2x9x9xf32>, %mask: tensor<4x9x9xf32>) -> tensor<?x2x9x16xf32> {
  %f = nn.constant {value = dense<0.25> : tensor<f32>} : () -> tensor<f32>
  %qs = nn.mul %q, %f : (tensor<?x2x9x16xf32>, tensor<f32>) -> tensor<?x2x9x16xf32>
  %s = nn.matmul %qs, %k {transpose_b = true} : (tensor<?x2x9x16xf32>, tensor<?x2x9x16xf32>) -> tensor<?x2x9x9xf32>
  %sb = nn.add %s, %bias : (tensor<?x2x9x9xf32>, tensor<1x2x9x9xf32>) -> tensor<?x2x9x9xf32>
  %s5 = nn.reshape %sb {shape = ["b", 4, 2, 9, 9]} : (tensor<?x2x9x9xf32>) -> tensor<?x4x2x9x9xf32>
  %m5 = nn.reshape %mask {shape = [1, 4, 1, 9, 9]} : (tensor<4x9x9xf32>) -> tensor<1x4x1x9x9xf32>
  %sm = nn.add %s5, %m5 : (tensor<?x4x2x9x9xf32>, tensor<1x4x1x9x9xf32>) -> tensor<?x4x2x9x9xf32>
  %s4 = nn.reshape %sm {shape = ["4*b", 2, 9, 9]} : (tensor<?x4x2x9x9xf32>) -> tensor<?x2x9x9xf32>
  %p = nn.softmax %s4 {axis = 3 : i64} : (tensor<?x2x9x9xf32>) -> tensor<?x2x9x9xf32>
  %o = nn.matmul %p, %v : (tensor<?x2x9x9xf32>, tensor<?x2x9x16xf32>) -> tensor<?x2x9x16xf32>
  return %o : tensor<?x2x9x16xf32>
}

// -----

// A mask of each picture of the batch is none of the windows alone: it is laid over the scores.
// CHECK-LABEL: func @mask_of_the_batch
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<8x2x9x16xf32>, %[[K:[a-z0-9]*]]: tensor<8x2x9x16xf32>, %[[V:[a-z0-9]*]]: tensor<8x2x9x16xf32>, %[[MASK:[a-z0-9]*]]: tensor<2x4x1x9x9xf32>)
// CHECK: %[[E:.*]] = nn.expand %[[MASK]] {shape = [2, 4, 2, 9, 9]}
// CHECK-NEXT: %[[M:.*]] = nn.reshape %[[E]] {shape = [8, 2, 9, 9]}
// CHECK-NEXT: nn.attention %[[Q]], %[[K]], %[[V]], %[[M]] {scale = 1.000000e+00 : f32}
func.func @mask_of_the_batch(%q: tensor<8x2x9x16xf32>, %k: tensor<8x2x9x16xf32>, %v: tensor<8x2x9x16xf32>, %mask: tensor<2x4x1x9x9xf32>) -> tensor<8x2x9x16xf32> {
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<8x2x9x16xf32>, tensor<8x2x9x16xf32>) -> tensor<8x2x9x9xf32>
  %s5 = nn.reshape %s {shape = [2, 4, 2, 9, 9]} : (tensor<8x2x9x9xf32>) -> tensor<2x4x2x9x9xf32>
  %sm = nn.add %s5, %mask : (tensor<2x4x2x9x9xf32>, tensor<2x4x1x9x9xf32>) -> tensor<2x4x2x9x9xf32>
  %s4 = nn.reshape %sm {shape = [8, 2, 9, 9]} : (tensor<2x4x2x9x9xf32>) -> tensor<8x2x9x9xf32>
  %p = nn.softmax %s4 {axis = 3 : i64} : (tensor<8x2x9x9xf32>) -> tensor<8x2x9x9xf32>
  %o = nn.matmul %p, %v : (tensor<8x2x9x9xf32>, tensor<8x2x9x16xf32>) -> tensor<8x2x9x16xf32>
  return %o : tensor<8x2x9x16xf32>
}

// -----

// Masks of rows and of columns, added where queries and keys are dims of a picture.
// CHECK-LABEL: func @rows_and_columns
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<2x4x6x16xf32>, %[[K:[a-z0-9]*]]: tensor<2x4x12x16xf32>, %[[V:[a-z0-9]*]]: tensor<2x4x12x16xf32>, %[[ROWS:[a-z0-9]*]]: tensor<2x4x2x3x3x1xf32>, %[[COLUMNS:[a-z0-9]*]]: tensor<2x4x2x3x1x4xf32>)
// CHECK: %[[SUM:.*]] = nn.add %[[ROWS]], %[[COLUMNS]]
// CHECK: %[[MASK:.*]] = nn.reshape %[[SUM]] {shape = [2, 4, 6, 12]}
// CHECK: nn.attention %[[Q]], %[[K]], %[[V]], %[[MASK]] {scale = 1.000000e+00 : f32}
func.func @rows_and_columns(%q: tensor<2x4x6x16xf32>, %k: tensor<2x4x12x16xf32>, %v: tensor<2x4x12x16xf32>, %rows: tensor<2x4x2x3x3x1xf32>, %columns: tensor<2x4x2x3x1x4xf32>) -> tensor<2x4x6x16xf32> {
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x6x16xf32>, tensor<2x4x12x16xf32>) -> tensor<2x4x6x12xf32>
  %s6 = nn.reshape %s {shape = [2, 4, 2, 3, 3, 4]} : (tensor<2x4x6x12xf32>) -> tensor<2x4x2x3x3x4xf32>
  %r = nn.add %s6, %rows : (tensor<2x4x2x3x3x4xf32>, tensor<2x4x2x3x3x1xf32>) -> tensor<2x4x2x3x3x4xf32>
  %c = nn.add %r, %columns : (tensor<2x4x2x3x3x4xf32>, tensor<2x4x2x3x1x4xf32>) -> tensor<2x4x2x3x3x4xf32>
  %s4 = nn.reshape %c {shape = [2, 4, 6, 12]} : (tensor<2x4x2x3x3x4xf32>) -> tensor<2x4x6x12xf32>
  %p = nn.softmax %s4 {axis = 3 : i64} : (tensor<2x4x6x12xf32>) -> tensor<2x4x6x12xf32>
  %o = nn.matmul %p, %v : (tensor<2x4x6x12xf32>, tensor<2x4x12x16xf32>) -> tensor<2x4x6x16xf32>
  return %o : tensor<2x4x6x16xf32>
}
