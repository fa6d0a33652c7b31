// RUN: fusion-opt %s --nn-shard=ranks=2 | FileCheck %s

// Heads of values and their states are divided, and with them the heads of queries and keys that they share.
// CHECK-LABEL: func @heads
// CHECK-SAME: nn.name = "past", nn.shard = array<i64: 1, 2>}
// CHECK-SAME: -> (tensor<?x?x16xf32>, tensor<?x2x4x8xf32> {{.*}}nn.shard = array<i64: 1, 2>
// CHECK: nn.linear_attention {{.*}} (tensor<?x1x?x4xf32>, tensor<?x1x?x4xf32>, tensor<?x2x?x8xf32>, tensor<?x2x4x8xf32>, tensor<?x2x?x1xf32>, tensor<?x2x?x1xf32>) -> (tensor<?x2x?x8xf32>, tensor<?x2x4x8xf32>)
// CHECK: nn.all_reduce
func.func @heads(%x: tensor<?x?x16xf32> {nn.dims = ["b", "s", 16]},
                 %past: tensor<?x4x4x8xf32> {nn.dims = ["b", 4, 4, 8], nn.name = "past"})
    -> (tensor<?x?x16xf32>, tensor<?x4x4x8xf32>) {
  %wq = nn.constant {value = dense<1.0> : tensor<16x8xf32>} : () -> tensor<16x8xf32>
  %wk = nn.constant {value = dense<2.0> : tensor<16x8xf32>} : () -> tensor<16x8xf32>
  %wv = nn.constant {value = dense<1.0> : tensor<16x32xf32>} : () -> tensor<16x32xf32>
  %wg = nn.constant {value = dense<-1.0> : tensor<16x4xf32>} : () -> tensor<16x4xf32>
  %wb = nn.constant {value = dense<1.0> : tensor<16x4xf32>} : () -> tensor<16x4xf32>
  %o = nn.constant {value = dense<2.0> : tensor<32x16xf32>} : () -> tensor<32x16xf32>
  %q = nn.matmul %x, %wq : (tensor<?x?x16xf32>, tensor<16x8xf32>) -> tensor<?x?x8xf32>
  %k = nn.matmul %x, %wk : (tensor<?x?x16xf32>, tensor<16x8xf32>) -> tensor<?x?x8xf32>
  %v = nn.matmul %x, %wv : (tensor<?x?x16xf32>, tensor<16x32xf32>) -> tensor<?x?x32xf32>
  %g = nn.matmul %x, %wg : (tensor<?x?x16xf32>, tensor<16x4xf32>) -> tensor<?x?x4xf32>
  %b = nn.matmul %x, %wb : (tensor<?x?x16xf32>, tensor<16x4xf32>) -> tensor<?x?x4xf32>
  %qh = nn.reshape %q {shape = ["b", "s", 2, 4]} : (tensor<?x?x8xf32>) -> tensor<?x?x2x4xf32>
  %kh = nn.reshape %k {shape = ["b", "s", 2, 4]} : (tensor<?x?x8xf32>) -> tensor<?x?x2x4xf32>
  %vh = nn.reshape %v {shape = ["b", "s", 4, 8]} : (tensor<?x?x32xf32>) -> tensor<?x?x4x8xf32>
  %gh = nn.reshape %g {shape = ["b", "s", 4, 1]} : (tensor<?x?x4xf32>) -> tensor<?x?x4x1xf32>
  %bh = nn.reshape %b {shape = ["b", "s", 4, 1]} : (tensor<?x?x4xf32>) -> tensor<?x?x4x1xf32>
  %qt = nn.transpose %qh {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x2x4xf32>) -> tensor<?x2x?x4xf32>
  %kt = nn.transpose %kh {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x2x4xf32>) -> tensor<?x2x?x4xf32>
  %vt = nn.transpose %vh {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x4x8xf32>) -> tensor<?x4x?x8xf32>
  %gt = nn.transpose %gh {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x4x1xf32>) -> tensor<?x4x?x1xf32>
  %bt = nn.transpose %bh {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x4x1xf32>) -> tensor<?x4x?x1xf32>
  %a, %s = nn.linear_attention %qt, %kt, %vt, %past, %gt, %bt {scale = 0.5 : f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1>}
    : (tensor<?x2x?x4xf32>, tensor<?x2x?x4xf32>, tensor<?x4x?x8xf32>, tensor<?x4x4x8xf32>, tensor<?x4x?x1xf32>, tensor<?x4x?x1xf32>) -> (tensor<?x4x?x8xf32>, tensor<?x4x4x8xf32>)
  %t = nn.transpose %a {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x4x?x8xf32>) -> tensor<?x?x4x8xf32>
  %r = nn.reshape %t {shape = ["b", "s", 32]} : (tensor<?x?x4x8xf32>) -> tensor<?x?x32xf32>
  %y = nn.matmul %r, %o : (tensor<?x?x32xf32>, tensor<32x16xf32>) -> tensor<?x?x16xf32>
  return %y, %s : tensor<?x?x16xf32>, tensor<?x4x4x8xf32>
}
