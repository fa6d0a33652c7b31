// RUN: fusion-opt %s --nn-canonicalize --split-input-file | FileCheck %s

// CHECK-LABEL: func @one_head
// CHECK-NEXT: %[[S:.*]] = nn.slice %{{.*}} {sizes = ["b", 1, 8], starts = [0, 2, 0], steps = array<i64: 1, 1, 1>}
// CHECK-NEXT: nn.reshape %[[S]] {shape = ["b", 8]}
// CHECK-NEXT: return
func.func @one_head(%x: tensor<?x4x8xf32> {nn.dims = ["b", 4, 8]}) -> tensor<?x8xf32> {
  %i = nn.constant {value = dense<2> : tensor<i64>} : () -> tensor<i64>
  %0 = nn.gather %x, %i {axis = 1 : i64} : (tensor<?x4x8xf32>, tensor<i64>) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

// From the end, along a negative axis, and the dim of one index is kept.
// CHECK-LABEL: func @last
// CHECK-NEXT: nn.slice %{{.*}} {sizes = ["b", 4, 1], starts = [0, 0, 7]
// CHECK-NEXT: return
func.func @last(%x: tensor<?x4x8xf32> {nn.dims = ["b", 4, 8]}) -> tensor<?x4x1xf32> {
  %i = nn.constant {value = dense<-1> : tensor<1xi64>} : () -> tensor<1xi64>
  %0 = nn.gather %x, %i {axis = -1 : i64} : (tensor<?x4x8xf32>, tensor<1xi64>) -> tensor<?x4x1xf32>
  return %0 : tensor<?x4x1xf32>
}

// -----

// CHECK-LABEL: func @nd
// CHECK-NEXT: nn.slice %{{.*}} {sizes = [1, "b", 8], starts = [5, 0, 0]
// CHECK-NEXT: return
func.func @nd(%x: tensor<6x?x8xf32> {nn.dims = [6, "b", 8]}) -> tensor<1x?x8xf32> {
  %i = nn.constant {value = dense<-1> : tensor<1x1xi64>} : () -> tensor<1x1xi64>
  %0 = nn.gather_nd %x, %i {batch_dims = 0 : i64} : (tensor<6x?x8xf32>, tensor<1x1xi64>) -> tensor<1x?x8xf32>
  return %0 : tensor<1x?x8xf32>
}

// -----

// Nobody knows that the dim has an index 2; two indices are no slice.
// CHECK-LABEL: func @stays
// CHECK: nn.gather
// CHECK: nn.gather
func.func @stays(%x: tensor<?x8xf32> {nn.dims = ["b", 8]}) -> (tensor<8xf32>, tensor<?x2xf32>) {
  %i = nn.constant {value = dense<2> : tensor<i64>} : () -> tensor<i64>
  %j = nn.constant {value = dense<3> : tensor<2xi64>} : () -> tensor<2xi64>
  %0 = nn.gather %x, %i {axis = 0 : i64} : (tensor<?x8xf32>, tensor<i64>) -> tensor<8xf32>
  %1 = nn.gather %x, %j {axis = 1 : i64} : (tensor<?x8xf32>, tensor<2xi64>) -> tensor<?x2xf32>
  return %0, %1 : tensor<8xf32>, tensor<?x2xf32>
}

// -----

// Whole rows, addressed by one number each.
// CHECK-LABEL: func @rows
// CHECK: %[[I:.*]] = nn.reshape %{{.*}} {shape = ["t"]}
// CHECK-NEXT: nn.gather %{{.*}}, %[[I]] {axis = 0 : i64} : (tensor<4x8x6xf32>, tensor<?xi64>) -> tensor<?x8x6xf32>
func.func @rows(%x: tensor<4x8x6xf32>, %i: tensor<?x1xi64> {nn.dims = ["t", 1]}) -> tensor<?x8x6xf32> {
  %0 = nn.gather_nd %x, %i {batch_dims = 0 : i64} : (tensor<4x8x6xf32>, tensor<?x1xi64>) -> tensor<?x8x6xf32>
  return %0 : tensor<?x8x6xf32>
}
