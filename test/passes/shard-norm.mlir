// RUN: fusion-opt %s --nn-shard=ranks=2 --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-shard=ranks=4 --split-input-file --remarks-filter-missed=raise 2>&1 | FileCheck %s --check-prefix=FOUR

// A norm over all heads of q: the ranks add up their sums of squares, in f32; then the norm's own roundings. The two
// key/value heads have one norm as well: two ranks divide them, four would have to repeat them and keep all whole.
// CHECK-LABEL: func @whole_q
// CHECK: %[[Q:.*]] = nn.matmul {{.*}} -> tensor<?x?x8xf16>
// CHECK-NOT: nn.rms_norm
// CHECK: %[[X:.*]] = nn.cast %[[Q]] : (tensor<?x?x8xf16>) -> tensor<?x?x8xf32>
// CHECK: %[[PART:.*]] = nn.reduce %[[X]] {axes = array<i64: 2>, keepdims = true, kind = "sum_square"}
// CHECK: %[[SUM:.*]] = nn.all_reduce %[[PART]] {{.*}}tensor<?x?x1xf32>
// CHECK: %[[WIDTH:.*]] = nn.constant {value = dense<1.600000e+01> : tensor<f32>}
// CHECK: %[[MEAN:.*]] = nn.div %[[SUM]], %[[WIDTH]]
// CHECK: %[[SHIFTED:.*]] = nn.add %[[MEAN]]
// CHECK: %[[R:.*]] = nn.rsqrt %[[SHIFTED]]
// CHECK: %[[N:.*]] = nn.mul %[[X]], %[[R]]
// CHECK: %[[ROUNDED:.*]] = nn.cast %[[N]] : (tensor<?x?x8xf32>) -> tensor<?x?x8xf16>
// CHECK: nn.attention {{.*}} (tensor<?x2x?x4xf16>, tensor<?x1x?x4xf16>, tensor<?x1x?x4xf16>)
// CHECK: nn.all_reduce
// FOUR: nn.rms_norm{{.*}} normalises over it, and several ranks would have the same shard
func.func @whole_q(%x: tensor<?x?x16xf16> {nn.dims = ["b", "s", 16]}) -> tensor<?x?x16xf16> {
  %wq = nn.constant {value = dense<1.0> : tensor<16x16xf16>} : () -> tensor<16x16xf16>
  %wk = nn.constant {value = dense<2.0> : tensor<16x8xf16>} : () -> tensor<16x8xf16>
  %wv = nn.constant {value = dense<3.0> : tensor<16x8xf16>} : () -> tensor<16x8xf16>
  %o = nn.constant {value = dense<4.0> : tensor<16x16xf16>} : () -> tensor<16x16xf16>
  %gq = nn.constant {value = dense<5.0> : tensor<16xf16>} : () -> tensor<16xf16>
  %gk = nn.constant {value = dense<6.0> : tensor<8xf16>} : () -> tensor<8xf16>
  %q = nn.matmul %x, %wq : (tensor<?x?x16xf16>, tensor<16x16xf16>) -> tensor<?x?x16xf16>
  %k = nn.matmul %x, %wk : (tensor<?x?x16xf16>, tensor<16x8xf16>) -> tensor<?x?x8xf16>
  %v = nn.matmul %x, %wv : (tensor<?x?x16xf16>, tensor<16x8xf16>) -> tensor<?x?x8xf16>
  %qn = nn.rms_norm %q, %gq {eps = 1.0e-6 : f32} : (tensor<?x?x16xf16>, tensor<16xf16>) -> tensor<?x?x16xf16>
  %kn = nn.rms_norm %k, %gk {eps = 1.0e-6 : f32} : (tensor<?x?x8xf16>, tensor<8xf16>) -> tensor<?x?x8xf16>
  %qh = nn.reshape %qn {shape = ["b", "s", 4, 4]} : (tensor<?x?x16xf16>) -> tensor<?x?x4x4xf16>
  %kh = nn.reshape %kn {shape = ["b", "s", 2, 4]} : (tensor<?x?x8xf16>) -> tensor<?x?x2x4xf16>
  %vh = nn.reshape %v {shape = ["b", "s", 2, 4]} : (tensor<?x?x8xf16>) -> tensor<?x?x2x4xf16>
  %qt = nn.transpose %qh {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x4x4xf16>) -> tensor<?x4x?x4xf16>
  %kt = nn.transpose %kh {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x2x4xf16>) -> tensor<?x2x?x4xf16>
  %vt = nn.transpose %vh {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x2x4xf16>) -> tensor<?x2x?x4xf16>
  %a = nn.attention %qt, %kt, %vt {scale = 0.5 : f32} : (tensor<?x4x?x4xf16>, tensor<?x2x?x4xf16>, tensor<?x2x?x4xf16>) -> tensor<?x4x?x4xf16>
  %t = nn.transpose %a {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x4x?x4xf16>) -> tensor<?x?x4x4xf16>
  %r = nn.reshape %t {shape = ["b", "s", 16]} : (tensor<?x?x4x4xf16>) -> tensor<?x?x16xf16>
  %y = nn.matmul %r, %o : (tensor<?x?x16xf16>, tensor<16x16xf16>) -> tensor<?x?x16xf16>
  return %y : tensor<?x?x16xf16>
}
