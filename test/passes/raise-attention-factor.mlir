// Scores that a tensor multiplies or divides: the factor of a query's row goes to the query.
// RUN: fusion-opt %s --nn-raise-attention --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-raise-attention --split-input-file --remarks-filter-missed=raise 2>&1 | FileCheck %s --check-prefix=MISS

// A temperature of each head, below a bias.
// CHECK-LABEL: func @of_heads
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<2x4x5x16xf32>, %[[K:[a-z0-9]*]]: tensor<2x4x7x16xf32>, %[[V:[a-z0-9]*]]: tensor<2x4x7x16xf32>, %[[T:[a-z0-9]*]]: tensor<4x1x1xf32>, %[[BIAS:[a-z0-9]*]]: tensor<4x5x7xf32>)
// CHECK-NEXT: %[[S:.*]] = nn.mul %[[Q]], %[[T]]
// CHECK-NEXT: %[[A:.*]] = nn.attention %[[S]], %[[K]], %[[V]], %[[BIAS]] {scale = 5.000000e-01 : f32}
// CHECK-NEXT: return %[[A]]
func.func @of_heads(%q: tensor<2x4x5x16xf32>, %k: tensor<2x4x7x16xf32>, %v: tensor<2x4x7x16xf32>, %t: tensor<4x1x1xf32>, %bias: tensor<4x5x7xf32>) -> tensor<2x4x5x16xf32> {
  %f = nn.constant {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x5x16xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x7xf32>
  %st = nn.mul %t, %s : (tensor<4x1x1xf32>, tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %sf = nn.mul %st, %f : (tensor<2x4x5x7xf32>, tensor<f32>) -> tensor<2x4x5x7xf32>
  %sb = nn.add %sf, %bias : (tensor<2x4x5x7xf32>, tensor<4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %p = nn.softmax %sb {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %o = nn.matmul %p, %v : (tensor<2x4x5x7xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %o : tensor<2x4x5x16xf32>
}

// -----

// A divisor of each query in f32, where q has f16.
// CHECK-LABEL: func @of_queries
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<2x4x5x16xf16>, %[[K:[a-z0-9]*]]: tensor<2x4x7x16xf16>, %[[V:[a-z0-9]*]]: tensor<2x4x7x16xf16>, %[[T:[a-z0-9]*]]: tensor<2x1x5x1xf32>)
// CHECK-NEXT: %[[W:.*]] = nn.cast %[[Q]]
// CHECK-NEXT: %[[D:.*]] = nn.div %[[W]], %[[T]]
// CHECK-NEXT: %[[S:.*]] = nn.cast %[[D]]
// CHECK-NEXT: %[[A:.*]] = nn.attention %[[S]], %[[K]], %[[V]] {scale = 1.000000e+00 : f32}
func.func @of_queries(%q: tensor<2x4x5x16xf16>, %k: tensor<2x4x7x16xf16>, %v: tensor<2x4x7x16xf16>, %t: tensor<2x1x5x1xf32>) -> tensor<2x4x5x16xf16> {
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x5x16xf16>, tensor<2x4x7x16xf16>) -> tensor<2x4x5x7xf16>
  %w = nn.cast %s : (tensor<2x4x5x7xf16>) -> tensor<2x4x5x7xf32>
  %st = nn.div %w, %t : (tensor<2x4x5x7xf32>, tensor<2x1x5x1xf32>) -> tensor<2x4x5x7xf32>
  %p = nn.softmax %st {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %n = nn.cast %p : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf16>
  %o = nn.matmul %n, %v : (tensor<2x4x5x7xf16>, tensor<2x4x7x16xf16>) -> tensor<2x4x5x16xf16>
  return %o : tensor<2x4x5x16xf16>
}

// -----

// A factor of each key is none of the rows.
// MISS: remark: {{.*}}the scores are made by nn.mul, not by nn.matmul
// CHECK-LABEL: func @of_keys
// CHECK: nn.softmax
func.func @of_keys(%q: tensor<2x4x5x16xf32>, %k: tensor<2x4x7x16xf32>, %v: tensor<2x4x7x16xf32>, %t: tensor<1x7xf32>) -> tensor<2x4x5x16xf32> {
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x5x16xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x7xf32>
  %st = nn.mul %s, %t : (tensor<2x4x5x7xf32>, tensor<1x7xf32>) -> tensor<2x4x5x7xf32>
  %p = nn.softmax %st {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %o = nn.matmul %p, %v : (tensor<2x4x5x7xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %o : tensor<2x4x5x16xf32>
}
