// Attention whose scores are k qᵀ: a softmax over the last dim but one, or scores that are transposed.
// RUN: fusion-opt %s --nn-raise-attention --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-raise-attention --split-input-file --remarks-filter-missed=raise 2>&1 | FileCheck %s --check-prefix=MISS

// k qᵀ, a softmax over axis 2, and a matmul that reads it transposed.
// CHECK-LABEL: func @transposed_a
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<2x4x5x16xf32>, %[[K:[a-z0-9]*]]: tensor<2x4x7x16xf32>, %[[V:[a-z0-9]*]]: tensor<2x4x7x16xf32>)
// CHECK-NEXT: %[[A:.*]] = nn.attention %[[Q]], %[[K]], %[[V]] {scale = 1.000000e+00 : f32}
// CHECK-NEXT: return %[[A]]
func.func @transposed_a(%q: tensor<2x4x5x16xf32>, %k: tensor<2x4x7x16xf32>, %v: tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32> {
  %s = nn.matmul %k, %q {transpose_b = true} : (tensor<2x4x7x16xf32>, tensor<2x4x5x16xf32>) -> tensor<2x4x7x5xf32>
  %p = nn.softmax %s {axis = 2 : i64} : (tensor<2x4x7x5xf32>) -> tensor<2x4x7x5xf32>
  %o = nn.matmul %p, %v {transpose_a = true} : (tensor<2x4x7x5xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %o : tensor<2x4x5x16xf32>
}

// -----

// tf.keras's MultiHeadAttention: heads merged with the batch, a transposed mask, a dim of 1 for the transpose.
// CHECK-LABEL: func @keras
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<?x4x?x16xf32> {{.*}}, %[[K:[a-z0-9]*]]: tensor<?x4x?x16xf32> {{.*}}, %[[V:[a-z0-9]*]]: tensor<?x4x?x16xf32> {{.*}}, %[[M:[a-z0-9]*]]: tensor<?x1x?x?xf32>
// CHECK: %[[A:.*]] = nn.attention %[[Q]], %[[K]], %[[V]], %[[M]] {scale = 1.000000e+00 : f32}
// CHECK-NEXT: %[[R:.*]] = nn.reshape %[[A]]
// CHECK-NEXT: return %[[R]]
func.func @keras(%q: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "t", 16]}, %v: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "t", 16]},
                 %mask: tensor<?x1x?x?xf32> {nn.dims = ["b", 1, "s", "t"]}) -> tensor<?x?x16xf32> {
  %qm = nn.reshape %q {shape = ["4*b", "s", 16]} : (tensor<?x4x?x16xf32>) -> tensor<?x?x16xf32>
  %km = nn.reshape %k {shape = ["4*b", "t", 16]} : (tensor<?x4x?x16xf32>) -> tensor<?x?x16xf32>
  %vm = nn.reshape %v {shape = ["4*b", "t", 16]} : (tensor<?x4x?x16xf32>) -> tensor<?x?x16xf32>
  %sm = nn.matmul %km, %qm {transpose_b = true} : (tensor<?x?x16xf32>, tensor<?x?x16xf32>) -> tensor<?x?x?xf32>
  %s = nn.reshape %sm {shape = ["b", 4, "t", "s"]} : (tensor<?x?x?xf32>) -> tensor<?x4x?x?xf32>
  %mt = nn.transpose %mask {perm = array<i64: 0, 1, 3, 2>} : (tensor<?x1x?x?xf32>) -> tensor<?x1x?x?xf32>
  %m = nn.add %s, %mt : (tensor<?x4x?x?xf32>, tensor<?x1x?x?xf32>) -> tensor<?x4x?x?xf32>
  %p = nn.softmax %m {axis = 2 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %p5 = nn.reshape %p {shape = ["b", 4, 1, "t", "s"]} : (tensor<?x4x?x?xf32>) -> tensor<?x4x1x?x?xf32>
  %pt = nn.transpose %p5 {perm = array<i64: 0, 1, 4, 2, 3>} : (tensor<?x4x1x?x?xf32>) -> tensor<?x4x?x1x?xf32>
  %pm = nn.reshape %pt {shape = ["4*b", "s", "t"]} : (tensor<?x4x?x1x?xf32>) -> tensor<?x?x?xf32>
  %o = nn.matmul %pm, %vm : (tensor<?x?x?xf32>, tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
  return %o : tensor<?x?x16xf32>
}

// -----

// The scores are transposed before the mask, a condition.
// CHECK-LABEL: func @transposed_scores
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<2x4x5x16xf32>, %[[K:[a-z0-9]*]]: tensor<2x4x7x16xf32>, %[[V:[a-z0-9]*]]: tensor<2x4x7x16xf32>, %[[C:[a-z0-9]*]]: tensor<2x1x1x7xi1>)
// CHECK: %[[M:.*]] = nn.where %[[C]],
// CHECK-NEXT: %[[A:.*]] = nn.attention %[[Q]], %[[K]], %[[V]], %[[M]] {scale = 2.500000e-01 : f32}
// CHECK-NEXT: return %[[A]]
func.func @transposed_scores(%q: tensor<2x4x5x16xf32>, %k: tensor<2x4x7x16xf32>, %v: tensor<2x4x7x16xf32>, %keep: tensor<2x1x1x7xi1>) -> tensor<2x4x5x16xf32> {
  %f = nn.constant {value = dense<0.25> : tensor<f32>} : () -> tensor<f32>
  %low = nn.constant {value = dense<-1.0e+9> : tensor<f32>} : () -> tensor<f32>
  %s = nn.matmul %k, %q {transpose_b = true} : (tensor<2x4x7x16xf32>, tensor<2x4x5x16xf32>) -> tensor<2x4x7x5xf32>
  %t = nn.transpose %s {perm = array<i64: 0, 1, 3, 2>} : (tensor<2x4x7x5xf32>) -> tensor<2x4x5x7xf32>
  %ts = nn.mul %t, %f : (tensor<2x4x5x7xf32>, tensor<f32>) -> tensor<2x4x5x7xf32>
  %m = nn.where %keep, %ts, %low : (tensor<2x1x1x7xi1>, tensor<2x4x5x7xf32>, tensor<f32>) -> tensor<2x4x5x7xf32>
  %p = nn.softmax %m {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %o = nn.matmul %p, %v : (tensor<2x4x5x7xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %o : tensor<2x4x5x16xf32>
}

// -----

// Masks over [keys, queries] and over the queries alone.
// CHECK-LABEL: func @masks_by_key
// CHECK-DAG: %[[C:.*]] = nn.transpose %{{.*}} {perm = array<i64: 1, 0>} : (tensor<7x5xi1>) -> tensor<5x7xi1>
// CHECK-DAG: %[[B:.*]] = nn.reshape %{{.*}} {shape = [5, 1]} : (tensor<5xf32>) -> tensor<5x1xf32>
// CHECK: %[[M:.*]] = nn.where %[[C]], %[[B]], %{{.*}}
// CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}}, %[[M]] {scale = 1.000000e+00 : f32}
func.func @masks_by_key(%q: tensor<2x4x5x16xf32>, %k: tensor<2x4x7x16xf32>, %v: tensor<2x4x7x16xf32>, %bias: tensor<5xf32>) -> tensor<2x4x5x16xf32> {
  %never = nn.constant {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
  %z = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %i = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %five = nn.iota %z, %i {size = [5]} : (tensor<i64>, tensor<i64>) -> tensor<5xi64>
  %seven = nn.iota %z, %i {size = [7]} : (tensor<i64>, tensor<i64>) -> tensor<7xi64>
  %col = nn.reshape %seven {shape = [7, 1]} : (tensor<7xi64>) -> tensor<7x1xi64>
  %twice = nn.mul %five, %five : (tensor<5xi64>, tensor<5xi64>) -> tensor<5xi64>
  %keep = nn.less_equal %col, %twice : (tensor<7x1xi64>, tensor<5xi64>) -> tensor<7x5xi1>
  %s = nn.matmul %k, %q {transpose_b = true} : (tensor<2x4x7x16xf32>, tensor<2x4x5x16xf32>) -> tensor<2x4x7x5xf32>
  %sb = nn.add %s, %bias : (tensor<2x4x7x5xf32>, tensor<5xf32>) -> tensor<2x4x7x5xf32>
  %m = nn.where %keep, %sb, %never : (tensor<7x5xi1>, tensor<2x4x7x5xf32>, tensor<f32>) -> tensor<2x4x7x5xf32>
  %p = nn.softmax %m {axis = -2 : i64} : (tensor<2x4x7x5xf32>) -> tensor<2x4x7x5xf32>
  %o = nn.matmul %p, %v {transpose_a = true} : (tensor<2x4x7x5xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %o : tensor<2x4x5x16xf32>
}

// -----

// Over the heads.
// CHECK-LABEL: func @heads
// CHECK-NOT: nn.attention
// CHECK: nn.softmax
// MISS: {{.*}}raise-attention-swapped.mlir{{.*}}Missed{{.*}}the softmax runs over axis 1, not one of the last two
func.func @heads(%q: tensor<2x4x5x16xf32>, %k: tensor<2x4x7x16xf32>, %v: tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32> {
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x5x16xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x7xf32>
  %p = nn.softmax %s {axis = 1 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %o = nn.matmul %p, %v : (tensor<2x4x5x7xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %o : tensor<2x4x5x16xf32>
}

// -----

// The transpose moves the heads too.
// CHECK-LABEL: func @other_transpose
// CHECK-NOT: nn.attention
// CHECK: nn.softmax
// MISS: {{.*}}raise-attention-swapped.mlir{{.*}}Missed{{.*}}the probabilities go to nn.transpose, not to an nn.matmul
func.func @other_transpose(%q: tensor<2x4x5x16xf32>, %k: tensor<2x4x7x16xf32>, %v: tensor<4x2x7x16xf32>) -> tensor<4x2x5x16xf32> {
  %s = nn.matmul %k, %q {transpose_b = true} : (tensor<2x4x7x16xf32>, tensor<2x4x5x16xf32>) -> tensor<2x4x7x5xf32>
  %p = nn.softmax %s {axis = 2 : i64} : (tensor<2x4x7x5xf32>) -> tensor<2x4x7x5xf32>
  %t = nn.transpose %p {perm = array<i64: 1, 0, 3, 2>} : (tensor<2x4x7x5xf32>) -> tensor<4x2x5x7xf32>
  %o = nn.matmul %t, %v : (tensor<4x2x5x7xf32>, tensor<4x2x7x16xf32>) -> tensor<4x2x5x16xf32>
  return %o : tensor<4x2x5x16xf32>
}

// -----

// vᵀ pᵀ, as attention over channels before positions has it: the result is transposed.
// CHECK-LABEL: func @probabilities_on_the_right
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<2x4x16x5xf32>, %[[K:[a-z0-9]*]]: tensor<2x4x16x7xf32>, %[[V:[a-z0-9]*]]: tensor<2x4x32x7xf32>)
// CHECK-DAG: %[[QT:.*]] = nn.transpose %[[Q]] {perm = array<i64: 0, 1, 3, 2>}
// CHECK-DAG: %[[KT:.*]] = nn.transpose %[[K]] {perm = array<i64: 0, 1, 3, 2>}
// CHECK-DAG: %[[VT:.*]] = nn.transpose %[[V]] {perm = array<i64: 0, 1, 3, 2>}
// CHECK: %[[A:.*]] = nn.attention %[[QT]], %[[KT]], %[[VT]] {scale = 1.000000e+00 : f32}
// CHECK-NEXT: %[[R:.*]] = nn.transpose %[[A]] {perm = array<i64: 0, 1, 3, 2>}
// CHECK-NEXT: return %[[R]]
func.func @probabilities_on_the_right(%q: tensor<2x4x16x5xf32>, %k: tensor<2x4x16x7xf32>, %v: tensor<2x4x32x7xf32>) -> tensor<2x4x32x5xf32> {
  %s = nn.matmul %q, %k {transpose_a = true} : (tensor<2x4x16x5xf32>, tensor<2x4x16x7xf32>) -> tensor<2x4x5x7xf32>
  %p = nn.softmax %s {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %o = nn.matmul %v, %p {transpose_b = true} : (tensor<2x4x32x7xf32>, tensor<2x4x5x7xf32>) -> tensor<2x4x32x5xf32>
  return %o : tensor<2x4x32x5xf32>
}
