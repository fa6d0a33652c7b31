// RUN: fusion-opt %s --nn-raise-attention --split-input-file | FileCheck %s
// GPT-2's causal mask: a part of a buffer with ones up to the diagonal. The clamps of the slice say what the sizes of the
// scores say: min(4, p + s) columns lie over p + s.

// CHECK-LABEL: func @buffer
// CHECK: nn.attention %{{.*}}, %{{.*}}, %{{[a-z0-9]*}} {causal = true, scale
func.func @buffer(%q: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "p + s", 16]},
                 %v: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "p + s", 16]}) -> tensor<?x4x?x16xf32> {
  %buffer = nn.constant {value = dense<[[[[true, false, false, false], [true, true, false, false], [true, true, true, false], [true, true, true, true]]]]> : tensor<1x1x4x4xi1>} : () -> tensor<1x1x4x4xi1>
  %low = nn.constant {value = dense<-1.0e4> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xf32>, tensor<?x4x?x16xf32>) -> tensor<?x4x?x?xf32>
  %1 = nn.slice %buffer {starts = [0, 0, "min(4, p)", 0], sizes = [1, 1, "min(4, p + s) - min(4, p)", "min(4, p + s)"], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x1x4x4xi1>) -> tensor<1x1x?x?xi1>
  %2 = nn.where %1, %0, %low : (tensor<1x1x?x?xi1>, tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?x?xf32>
  %3 = nn.softmax %2 {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %4 = nn.matmul %3, %v : (tensor<?x4x?x?xf32>, tensor<?x4x?x16xf32>) -> tensor<?x4x?x16xf32>
  return %4 : tensor<?x4x?x16xf32>
}

// -----

// One key is left out: no triangle.
// CHECK-LABEL: func @hole
// CHECK: nn.attention
// CHECK-NOT: causal
func.func @hole(%q: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "p + s", 16]},
                 %v: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "p + s", 16]}) -> tensor<?x4x?x16xf32> {
  %buffer = nn.constant {value = dense<[[[[true, false, false, false], [true, true, false, false], [true, true, true, false], [true, false, true, true]]]]> : tensor<1x1x4x4xi1>} : () -> tensor<1x1x4x4xi1>
  %low = nn.constant {value = dense<-1.0e4> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xf32>, tensor<?x4x?x16xf32>) -> tensor<?x4x?x?xf32>
  %1 = nn.slice %buffer {starts = [0, 0, "min(4, p)", 0], sizes = [1, 1, "min(4, p + s) - min(4, p)", "min(4, p + s)"], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x1x4x4xi1>) -> tensor<1x1x?x?xi1>
  %2 = nn.where %1, %0, %low : (tensor<1x1x?x?xi1>, tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?x?xf32>
  %3 = nn.softmax %2 {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %4 = nn.matmul %3, %v : (tensor<?x4x?x?xf32>, tensor<?x4x?x16xf32>) -> tensor<?x4x?x16xf32>
  return %4 : tensor<?x4x?x16xf32>
}

// -----

// The rows of the first queries, whatever came before.
// CHECK-LABEL: func @first_rows
// CHECK: nn.attention
// CHECK-NOT: causal
func.func @first_rows(%q: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "p + s", 16]},
                 %v: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "p + s", 16]}) -> tensor<?x4x?x16xf32> {
  %buffer = nn.constant {value = dense<[[[[true, false, false, false], [true, true, false, false], [true, true, true, false], [true, true, true, true]]]]> : tensor<1x1x4x4xi1>} : () -> tensor<1x1x4x4xi1>
  %low = nn.constant {value = dense<-1.0e4> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xf32>, tensor<?x4x?x16xf32>) -> tensor<?x4x?x?xf32>
  %1 = nn.slice %buffer {starts = [0, 0, 0, 0], sizes = [1, 1, "min(4, p + s) - min(4, p)", "min(4, p + s)"], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x1x4x4xi1>) -> tensor<1x1x?x?xi1>
  %2 = nn.where %1, %0, %low : (tensor<1x1x?x?xi1>, tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?x?xf32>
  %3 = nn.softmax %2 {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %4 = nn.matmul %3, %v : (tensor<?x4x?x?xf32>, tensor<?x4x?x16xf32>) -> tensor<?x4x?x16xf32>
  return %4 : tensor<?x4x?x16xf32>
}
