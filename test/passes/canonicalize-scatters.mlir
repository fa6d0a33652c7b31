// Scatters of rows that sizes or constants tell: what assignments to slices are exported as.
// RUN: fusion-opt %s --nn-canonicalize --split-input-file | FileCheck %s

// y[:, n:] = u, where the assigned dim is first by a transpose.
// CHECK-LABEL: func @tail
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<2x?x8xf32> {{.*}}, %[[U:[a-z0-9]*]]: tensor<2x?x8xf32>
// CHECK: %[[T:.*]] = nn.tanh %[[X]]
// CHECK: %[[HEAD:.*]] = nn.slice %[[T]] {sizes = [2, "n", 8], starts = [0, 0, 0], steps = array<i64: 1, 1, 1>}
// CHECK: %[[Y:.*]] = nn.concat %[[HEAD]], %[[U]] {axis = 1 : i64}
// CHECK-NEXT: return %[[Y]]
func.func @tail(%x: tensor<2x?x8xf32> {nn.dims = [2, "m + n", 8]}, %u: tensor<2x?x8xf32> {nn.dims = [2, "m", 8]}) -> tensor<2x?x8xf32> {
  %t = nn.tanh %x : (tensor<2x?x8xf32>) -> tensor<2x?x8xf32>
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %all = nn.iota %zero, %one {size = ["m + n"]} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
  %rows = nn.slice %all {starts = ["n"], sizes = ["m"], steps = array<i64: 1>} : (tensor<?xi64>) -> tensor<?xi64>
  %i = nn.reshape %rows {shape = ["m", 1]} : (tensor<?xi64>) -> tensor<?x1xi64>
  %xt = nn.transpose %t {perm = array<i64: 1, 0, 2>} : (tensor<2x?x8xf32>) -> tensor<?x2x8xf32>
  %ut = nn.transpose %u {perm = array<i64: 1, 0, 2>} : (tensor<2x?x8xf32>) -> tensor<?x2x8xf32>
  %y = nn.scatter_nd %xt, %i, %ut : (tensor<?x2x8xf32>, tensor<?x1xi64>, tensor<?x2x8xf32>) -> tensor<?x2x8xf32>
  %r = nn.transpose %y {perm = array<i64: 1, 0, 2>} : (tensor<?x2x8xf32>) -> tensor<2x?x8xf32>
  return %r : tensor<2x?x8xf32>
}

// -----

// y[0::2] = u and y[1::2] = v leave nothing of what y was.
// CHECK-LABEL: func @alternate
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<6x4xf32>, %[[U:[a-z0-9]*]]: tensor<3x4xf32>, %[[V:[a-z0-9]*]]: tensor<3x4xf32>)
// CHECK-DAG: %[[A:.*]] = nn.reshape %[[U]] {shape = [3, 1, 4]}
// CHECK-DAG: %[[B:.*]] = nn.reshape %[[V]] {shape = [3, 1, 4]}
// CHECK: %[[C:.*]] = nn.concat %[[A]], %[[B]] {axis = 1 : i64}
// CHECK-NEXT: %[[R:.*]] = nn.reshape %[[C]] {shape = [6, 4]}
// CHECK-NEXT: return %[[R]]
func.func @alternate(%x: tensor<6x4xf32>, %u: tensor<3x4xf32>, %v: tensor<3x4xf32>) -> tensor<6x4xf32> {
  %even = nn.constant {value = dense<[[0], [2], [4]]> : tensor<3x1xi64>} : () -> tensor<3x1xi64>
  %odd = nn.constant {value = dense<[[1], [3], [5]]> : tensor<3x1xi64>} : () -> tensor<3x1xi64>
  %0 = nn.scatter_nd %x, %odd, %v : (tensor<6x4xf32>, tensor<3x1xi64>, tensor<3x4xf32>) -> tensor<6x4xf32>
  %1 = nn.scatter_nd %0, %even, %u : (tensor<6x4xf32>, tensor<3x1xi64>, tensor<3x4xf32>) -> tensor<6x4xf32>
  return %1 : tensor<6x4xf32>
}

// -----

// A graph's input may be a cache, which is written in place; rows that may be out of range are left out.
// CHECK-LABEL: func @kept
// CHECK: nn.scatter_nd
// CHECK: nn.scatter_nd
func.func @kept(%x: tensor<6x4xf32>, %u: tensor<2x4xf32>) -> (tensor<6x4xf32>, tensor<6x4xf32>) {
  %rows = nn.constant {value = dense<[[2], [3]]> : tensor<2x1xi64>} : () -> tensor<2x1xi64>
  %beyond = nn.constant {value = dense<[[5], [6]]> : tensor<2x1xi64>} : () -> tensor<2x1xi64>
  %t = nn.tanh %x : (tensor<6x4xf32>) -> tensor<6x4xf32>
  %0 = nn.scatter_nd %x, %rows, %u : (tensor<6x4xf32>, tensor<2x1xi64>, tensor<2x4xf32>) -> tensor<6x4xf32>
  %1 = nn.scatter_nd %t, %beyond, %u : (tensor<6x4xf32>, tensor<2x1xi64>, tensor<2x4xf32>) -> tensor<6x4xf32>
  return %0, %1 : tensor<6x4xf32>, tensor<6x4xf32>
}
