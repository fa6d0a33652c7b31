// Batch sizes that are equal whenever the graph runs, and have several names.
// RUN: fusion-opt %s --nn-raise-attention --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-raise-attention --split-input-file --remarks-filter-missed=raise 2>&1 | FileCheck %s --check-prefix=MISS

// Keras's cross attention merges the heads with each batch, and splits the scores by the larger one.
// CHECK-LABEL: func @cross
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<?x4x?x16xf32> {{.*}}, %[[K:[a-z0-9]*]]: tensor<?x4x?x16xf32> {{.*}}, %[[V:[a-z0-9]*]]: tensor<?x4x16x?xf32>
// CHECK: %[[H:.*]] = nn.reshape %{{.*}} {shape = ["m", 4, 16, "t"]}
// CHECK: %[[T:.*]] = nn.transpose %[[H]] {perm = array<i64: 0, 1, 3, 2>}
// CHECK: %[[A:.*]] = nn.attention %[[Q]], %[[K]], %[[T]] {scale = 1.000000e+00 : f32}
// CHECK-NEXT: %[[R:.*]] = nn.reshape %[[A]]
// CHECK-NEXT: return %[[R]]
func.func @cross(%q: tensor<?x4x?x16xf32> {nn.dims = ["n", 4, "s", 16]}, %k: tensor<?x4x?x16xf32> {nn.dims = ["m", 4, "t", 16]}, %v: tensor<?x4x16x?xf32> {nn.dims = ["m", 4, 16, "t"]}) -> tensor<?x?x16xf32> {
  %qm = nn.reshape %q {shape = ["4*n", "s", 16]} : (tensor<?x4x?x16xf32>) -> tensor<?x?x16xf32>
  %km = nn.reshape %k {shape = ["4*m", "t", 16]} : (tensor<?x4x?x16xf32>) -> tensor<?x?x16xf32>
  %v5 = nn.reshape %v {shape = ["m", 4, 1, 16, "t"]} : (tensor<?x4x16x?xf32>) -> tensor<?x4x1x16x?xf32>
  %vm = nn.reshape %v5 {shape = ["4*m", 16, "t"]} : (tensor<?x4x1x16x?xf32>) -> tensor<?x16x?xf32>
  %sm = nn.matmul %qm, %km {transpose_b = true} : (tensor<?x?x16xf32>, tensor<?x?x16xf32>) -> tensor<?x?x?xf32>
  %s = nn.reshape %sm {shape = ["max(n, m)", 4, "s", "t"]} : (tensor<?x?x?xf32>) -> tensor<?x4x?x?xf32>
  %p = nn.softmax %s {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %pm = nn.reshape %p {shape = ["4*max(n, m)", "s", "t"]} : (tensor<?x4x?x?xf32>) -> tensor<?x?x?xf32>
  %o = nn.matmul %pm, %vm {transpose_b = true} : (tensor<?x?x?xf32>, tensor<?x16x?xf32>) -> tensor<?x?x16xf32>
  return %o : tensor<?x?x16xf32>
}

// -----

// A mask with a batch of its own.
// CHECK-LABEL: func @mask
// CHECK: %[[M:.*]] = nn.where
// CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}}, %[[M]] {scale = 1.000000e+00 : f32}
func.func @mask(%q: tensor<?x4x?x16xf32> {nn.dims = ["n", 4, "s", 16]}, %k: tensor<?x4x?x16xf32> {nn.dims = ["n", 4, "t", 16]}, %v: tensor<?x4x?x16xf32> {nn.dims = ["n", 4, "t", 16]}, %keep: tensor<?x1x1x?xi1> {nn.dims = ["m", 1, 1, "t"]}) -> tensor<?x4x?x16xf32> {
  %low = nn.constant {value = dense<-1.0e+9> : tensor<f32>} : () -> tensor<f32>
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xf32>, tensor<?x4x?x16xf32>) -> tensor<?x4x?x?xf32>
  %m = nn.where %keep, %s, %low : (tensor<?x1x1x?xi1>, tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?x?xf32>
  %p = nn.softmax %m {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %o = nn.matmul %p, %v : (tensor<?x4x?x?xf32>, tensor<?x4x?x16xf32>) -> tensor<?x4x?x16xf32>
  return %o : tensor<?x4x?x16xf32>
}

// -----

// The mask repeats the one batch entry of the scores.
// CHECK-LABEL: func @mask_repeats
// CHECK-NOT: nn.attention
// CHECK: nn.softmax
// MISS: {{.*}}raise-attention-batch.mlir{{.*}}Missed{{.*}}nn.where on the scores gives them another shape
func.func @mask_repeats(%q: tensor<1x4x?x16xf32> {nn.dims = [1, 4, "s", 16]}, %k: tensor<1x4x?x16xf32> {nn.dims = [1, 4, "t", 16]}, %v: tensor<1x4x?x16xf32> {nn.dims = [1, 4, "t", 16]}, %keep: tensor<?x1x1x?xi1> {nn.dims = ["m", 1, 1, "t"]}) -> tensor<?x4x?x16xf32> {
  %low = nn.constant {value = dense<-1.0e+9> : tensor<f32>} : () -> tensor<f32>
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<1x4x?x16xf32>, tensor<1x4x?x16xf32>) -> tensor<1x4x?x?xf32>
  %m = nn.where %keep, %s, %low : (tensor<?x1x1x?xi1>, tensor<1x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?x?xf32>
  %p = nn.softmax %m {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %o = nn.matmul %p, %v : (tensor<?x4x?x?xf32>, tensor<1x4x?x16xf32>) -> tensor<?x4x?x16xf32>
  return %o : tensor<?x4x?x16xf32>
}

// -----

// One head of keys for all queries, whose heads are merged with the queries for the products.
// CHECK-LABEL: func @one_head_of_keys
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<?x4x?x16xf32> {{.*}}, %[[K:[a-z0-9]*]]: tensor<?x?x16xf32> {{.*}}, %[[V:[a-z0-9]*]]: tensor<?x?x16xf32>
// CHECK-DAG: %[[K4:.*]] = nn.reshape %[[K]] {shape = ["b", 1, "t", 16]}
// CHECK-DAG: %[[V4:.*]] = nn.reshape %[[V]] {shape = ["b", 1, "t", 16]}
// CHECK: %[[A:.*]] = nn.attention %[[Q]], %[[K4]], %[[V4]], %{{.*}} {scale = 5.000000e-01 : f32}
// CHECK-NEXT: %[[R:.*]] = nn.reshape %[[A]] {shape = ["b", "4*s", 16]}
func.func @one_head_of_keys(%q: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x?x16xf32> {nn.dims = ["b", "t", 16]}, %v: tensor<?x?x16xf32> {nn.dims = ["b", "t", 16]}, %mask: tensor<?x?xf32> {nn.dims = ["s", "t"]}) -> tensor<?x4x?x16xf32> {
  %f = nn.constant {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %qm = nn.reshape %q {shape = ["b", "4*s", 16]} : (tensor<?x4x?x16xf32>) -> tensor<?x?x16xf32>
  %sm = nn.matmul %qm, %k {transpose_b = true} : (tensor<?x?x16xf32>, tensor<?x?x16xf32>) -> tensor<?x?x?xf32>
  %s = nn.reshape %sm {shape = ["b", 4, "s", "t"]} : (tensor<?x?x?xf32>) -> tensor<?x4x?x?xf32>
  %sf = nn.mul %s, %f : (tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?x?xf32>
  %m = nn.add %sf, %mask : (tensor<?x4x?x?xf32>, tensor<?x?xf32>) -> tensor<?x4x?x?xf32>
  %p = nn.softmax %m {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %pm = nn.reshape %p {shape = ["b", "4*s", "t"]} : (tensor<?x4x?x?xf32>) -> tensor<?x?x?xf32>
  %o = nn.matmul %pm, %v : (tensor<?x?x?xf32>, tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
  %r = nn.reshape %o {shape = ["b", 4, "s", 16]} : (tensor<?x?x16xf32>) -> tensor<?x4x?x16xf32>
  return %r : tensor<?x4x?x16xf32>
}

// -----

// Blocks of a picture are a dim between batch and heads; a mask of each block is repeated for the batch.
// CHECK-LABEL: func @blocks
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<?x3x4x9x16xf32> {{.*}}, %[[K:[a-z0-9]*]]: tensor<?x3x4x9x16xf32> {{.*}}, %[[V:[a-z0-9]*]]: tensor<?x3x4x9x16xf32> {{.*}}, %[[M:[a-z0-9]*]]: tensor<3x1x9x9xf32>
// CHECK: %[[E:.*]] = nn.expand %{{.*}} {shape = ["b", 3, 1, 9, 9]}
// CHECK-NEXT: %[[MM:.*]] = nn.reshape %[[E]] {shape = ["3*b", 1, 9, 9]}
// CHECK-NEXT: %[[QM:.*]] = nn.reshape %[[Q]] {shape = ["3*b", 4, 9, 16]}
// CHECK-NEXT: %[[KM:.*]] = nn.reshape %[[K]] {shape = ["3*b", 4, 9, 16]}
// CHECK-NEXT: %[[VM:.*]] = nn.reshape %[[V]] {shape = ["3*b", 4, 9, 16]}
// CHECK-NEXT: %[[A:.*]] = nn.attention %[[QM]], %[[KM]], %[[VM]], %[[MM]] {scale = 1.000000e+00 : f32}
// CHECK-NEXT: %[[R:.*]] = nn.reshape %[[A]] {shape = ["b", 3, 4, 9, 16]}
// CHECK-NEXT: return %[[R]]
func.func @blocks(%q: tensor<?x3x4x9x16xf32> {nn.dims = ["b", 3, 4, 9, 16]}, %k: tensor<?x3x4x9x16xf32> {nn.dims = ["b", 3, 4, 9, 16]}, %v: tensor<?x3x4x9x16xf32> {nn.dims = ["b", 3, 4, 9, 16]}, %mask: tensor<3x1x9x9xf32>) -> tensor<?x3x4x9x16xf32> {
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<?x3x4x9x16xf32>, tensor<?x3x4x9x16xf32>) -> tensor<?x3x4x9x9xf32>
  %m = nn.add %s, %mask : (tensor<?x3x4x9x9xf32>, tensor<3x1x9x9xf32>) -> tensor<?x3x4x9x9xf32>
  %p = nn.softmax %m {axis = 4 : i64} : (tensor<?x3x4x9x9xf32>) -> tensor<?x3x4x9x9xf32>
  %o = nn.matmul %p, %v : (tensor<?x3x4x9x9xf32>, tensor<?x3x4x9x16xf32>) -> tensor<?x3x4x9x16xf32>
  return %o : tensor<?x3x4x9x16xf32>
}
