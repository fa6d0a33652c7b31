// RUN: fusion-opt %s --nn-raise-attention --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-raise-attention --split-input-file --remarks-filter-missed=raise 2>&1 | FileCheck %s --check-prefix=MISS

// DeepSeek's scores over the compressed cache: one head of keys, part of which is the values.
// CHECK-LABEL: func @two_caches
// CHECK-SAME: (%[[QC:[a-z0-9]*]]: tensor<?x16x?x512xf16> {{.*}}, %[[QR:[a-z0-9]*]]: tensor<?x16x?x64xf16> {{.*}}, %[[KV:[a-z0-9]*]]: tensor<?x1x?x512xf16> {{.*}}, %[[PE:[a-z0-9]*]]: tensor<?x1x?x64xf16> {{.*}}, %[[M:[a-z0-9]*]]: tensor<?x1x?x?xf16>
// CHECK-DAG: %[[K:.*]] = nn.concat %[[KV]], %[[PE]] {axis = 3 : i64}
// CHECK-DAG: %[[Q:.*]] = nn.concat %[[QC]], %[[QR]] {axis = 3 : i64}
// CHECK: %[[A:.*]] = nn.attention %[[Q]], %[[K]], %[[KV]], %[[M]] {scale = 1.250000e-01 : f32} : {{.*}} -> tensor<?x16x?x512xf16>
// CHECK-NEXT: return %[[A]]
func.func @two_caches(%qc: tensor<?x16x?x512xf16> {nn.dims = ["b", 16, "s", 512]}, %qr: tensor<?x16x?x64xf16> {nn.dims = ["b", 16, "s", 64]},
                      %kv: tensor<?x1x?x512xf16> {nn.dims = ["b", 1, "t", 512]}, %pe: tensor<?x1x?x64xf16> {nn.dims = ["b", 1, "t", 64]},
                      %m: tensor<?x1x?x?xf16> {nn.dims = ["b", 1, "s", "t"]}) -> tensor<?x16x?x512xf16> {
  %c = nn.constant {value = dense<0.125> : tensor<f16>} : () -> tensor<f16>
  %0 = nn.matmul %qc, %kv {transpose_b = true} : (tensor<?x16x?x512xf16>, tensor<?x1x?x512xf16>) -> tensor<?x16x?x?xf16>
  %1 = nn.matmul %qr, %pe {transpose_b = true} : (tensor<?x16x?x64xf16>, tensor<?x1x?x64xf16>) -> tensor<?x16x?x?xf16>
  %2 = nn.add %0, %1 : (tensor<?x16x?x?xf16>, tensor<?x16x?x?xf16>) -> tensor<?x16x?x?xf16>
  %3 = nn.mul %2, %c : (tensor<?x16x?x?xf16>, tensor<f16>) -> tensor<?x16x?x?xf16>
  %4 = nn.add %3, %m : (tensor<?x16x?x?xf16>, tensor<?x1x?x?xf16>) -> tensor<?x16x?x?xf16>
  %5 = nn.cast %4 : (tensor<?x16x?x?xf16>) -> tensor<?x16x?x?xf32>
  %6 = nn.softmax %5 {axis = 3 : i64} : (tensor<?x16x?x?xf32>) -> tensor<?x16x?x?xf32>
  %7 = nn.cast %6 : (tensor<?x16x?x?xf32>) -> tensor<?x16x?x?xf16>
  %8 = nn.matmul %7, %kv : (tensor<?x16x?x?xf16>, tensor<?x1x?x512xf16>) -> tensor<?x16x?x512xf16>
  return %8 : tensor<?x16x?x512xf16>
}

// -----

// The keys of the values come first, and a factor that one product alone has goes to its queries. A cap.
// CHECK-LABEL: func @rotated_first
// CHECK-SAME: (%[[QC:[a-z0-9]*]]: tensor<2x4x5x32xf32>, %[[QR:[a-z0-9]*]]: tensor<2x4x5x8xf32>, %[[KV:[a-z0-9]*]]: tensor<2x1x7x32xf32>, %[[PE:[a-z0-9]*]]: tensor<2x1x7x8xf32>
// CHECK: %[[TWO:.*]] = nn.constant {value = dense<2.000000e+00> : tensor<f32>}
// CHECK: %[[R:.*]] = nn.mul %[[QR]], %[[TWO]]
// CHECK-DAG: %[[K:.*]] = nn.concat %[[KV]], %[[PE]] {axis = 3 : i64}
// CHECK-DAG: %[[Q:.*]] = nn.concat %[[QC]], %[[R]] {axis = 3 : i64}
// CHECK: nn.attention %[[Q]], %[[K]], %[[KV]] {scale = 2.500000e-01 : f32, softcap = 5.000000e+01 : f32}
func.func @rotated_first(%qc: tensor<2x4x5x32xf32>, %qr: tensor<2x4x5x8xf32>, %kv: tensor<2x1x7x32xf32>, %pe: tensor<2x1x7x8xf32>) -> tensor<2x4x5x32xf32> {
  %c = nn.constant {value = dense<0.25> : tensor<f32>} : () -> tensor<f32>
  %d = nn.constant {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %cap = nn.constant {value = dense<50.0> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.matmul %qr, %pe {transpose_b = true} : (tensor<2x4x5x8xf32>, tensor<2x1x7x8xf32>) -> tensor<2x4x5x7xf32>
  %1 = nn.mul %0, %d : (tensor<2x4x5x7xf32>, tensor<f32>) -> tensor<2x4x5x7xf32>
  %2 = nn.mul %qc, %c : (tensor<2x4x5x32xf32>, tensor<f32>) -> tensor<2x4x5x32xf32>
  %3 = nn.matmul %2, %kv {transpose_b = true} : (tensor<2x4x5x32xf32>, tensor<2x1x7x32xf32>) -> tensor<2x4x5x7xf32>
  %4 = nn.add %1, %3 : (tensor<2x4x5x7xf32>, tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %5 = nn.div %4, %cap : (tensor<2x4x5x7xf32>, tensor<f32>) -> tensor<2x4x5x7xf32>
  %6 = nn.tanh %5 : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %7 = nn.mul %6, %cap : (tensor<2x4x5x7xf32>, tensor<f32>) -> tensor<2x4x5x7xf32>
  %8 = nn.softmax %7 {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %9 = nn.matmul %8, %kv : (tensor<2x4x5x7xf32>, tensor<2x1x7x32xf32>) -> tensor<2x4x5x32xf32>
  return %9 : tensor<2x4x5x32xf32>
}

// -----

// einsum('bshc,btc->bsht'): queries and heads are rows of one matmul, the heads after the queries. The mask
// is the triangle of -inf of DeepSeek's inference code. What the graph views twice is one value.
// CHECK-LABEL: func @einsum
// CHECK-SAME: (%[[QC:[a-z0-9]*]]: tensor<?x?x4x32xf16> {{.*}}, %[[QR:[a-z0-9]*]]: tensor<?x?x4x8xf16> {{.*}}, %[[KV:[a-z0-9]*]]: tensor<?x?x32xf16> {{.*}}, %[[PE:[a-z0-9]*]]: tensor<?x?x8xf16>
// CHECK-DAG: %[[V:.*]] = nn.reshape %[[KV]] {shape = ["b", 1, "s", 32]}
// CHECK-DAG: %[[R:.*]] = nn.reshape %[[PE]] {shape = ["b", 1, "s", 8]}
// CHECK-DAG: %[[K:.*]] = nn.concat %[[V]], %[[R]] {axis = 3 : i64}
// CHECK-DAG: %[[QS:.*]] = nn.concat %[[QC]], %[[QR]] {axis = 3 : i64}
// CHECK-DAG: %[[Q:.*]] = nn.transpose %[[QS]] {perm = array<i64: 0, 2, 1, 3>}
// CHECK: %[[A:.*]] = nn.attention %[[Q]], %[[K]], %[[V]] {causal = true, scale = 5.000000e-01 : f32} : {{.*}} -> tensor<?x4x?x32xf16>
// CHECK: nn.transpose %[[A]] {perm = array<i64: 0, 2, 1, 3>}
func.func @einsum(%qc: tensor<?x?x4x32xf16> {nn.dims = ["b", "s", 4, 32]}, %qr: tensor<?x?x4x8xf16> {nn.dims = ["b", "s", 4, 8]},
                  %kv: tensor<?x?x32xf16> {nn.dims = ["b", "s", 32]}, %pe: tensor<?x?x8xf16> {nn.dims = ["b", "s", 8]}) -> tensor<?x?x32xf16> {
  %c = nn.constant {value = dense<0.5> : tensor<f16>} : () -> tensor<f16>
  %low = nn.constant {value = dense<0xFC00> : tensor<f16>} : () -> tensor<f16>
  %full = nn.expand %low {shape = ["s", "s"]} : (tensor<f16>) -> tensor<?x?xf16>
  %triangle = nn.trilu %full {upper = true, k = 1 : i64} : (tensor<?x?xf16>) -> tensor<?x?xf16>
  %m = nn.reshape %triangle {shape = ["s", 1, "s"]} : (tensor<?x?xf16>) -> tensor<?x1x?xf16>
  %q0 = nn.reshape %qc {shape = ["b", "4*s", 32]} : (tensor<?x?x4x32xf16>) -> tensor<?x?x32xf16>
  %q1 = nn.reshape %qr {shape = ["b", "4*s", 8]} : (tensor<?x?x4x8xf16>) -> tensor<?x?x8xf16>
  %0 = nn.matmul %q0, %kv {transpose_b = true} : (tensor<?x?x32xf16>, tensor<?x?x32xf16>) -> tensor<?x?x?xf16>
  %1 = nn.reshape %0 {shape = ["b", "s", 4, "s"]} : (tensor<?x?x?xf16>) -> tensor<?x?x4x?xf16>
  %2 = nn.matmul %q1, %pe {transpose_b = true} : (tensor<?x?x8xf16>, tensor<?x?x8xf16>) -> tensor<?x?x?xf16>
  %3 = nn.reshape %2 {shape = ["b", "s", 4, "s"]} : (tensor<?x?x?xf16>) -> tensor<?x?x4x?xf16>
  %4 = nn.add %1, %3 : (tensor<?x?x4x?xf16>, tensor<?x?x4x?xf16>) -> tensor<?x?x4x?xf16>
  %5 = nn.mul %4, %c : (tensor<?x?x4x?xf16>, tensor<f16>) -> tensor<?x?x4x?xf16>
  %6 = nn.add %5, %m : (tensor<?x?x4x?xf16>, tensor<?x1x?xf16>) -> tensor<?x?x4x?xf16>
  %7 = nn.softmax %6 {axis = 3 : i64} : (tensor<?x?x4x?xf16>) -> tensor<?x?x4x?xf16>
  %8 = nn.reshape %7 {shape = ["b", "4*s", "s"]} : (tensor<?x?x4x?xf16>) -> tensor<?x?x?xf16>
  %9 = nn.matmul %8, %kv : (tensor<?x?x?xf16>, tensor<?x?x32xf16>) -> tensor<?x?x32xf16>
  return %9 : tensor<?x?x32xf16>
}

// -----

// einsum('bshc,btc->bhst'): the scores are transposed, the result is not.
// CHECK-LABEL: func @heads_first
// CHECK-SAME: (%[[QC:[a-z0-9]*]]: tensor<?x?x4x32xf32> {{.*}}, %[[QR:[a-z0-9]*]]: tensor<?x?x4x8xf32>
// CHECK-DAG: %[[C:.*]] = nn.transpose %[[QC]] {perm = array<i64: 0, 2, 1, 3>}
// CHECK-DAG: %[[R:.*]] = nn.transpose %[[QR]] {perm = array<i64: 0, 2, 1, 3>}
// CHECK: %[[Q:.*]] = nn.concat %[[C]], %[[R]] {axis = 3 : i64}
// CHECK: %[[A:.*]] = nn.attention %[[Q]], %{{.*}}, %{{.*}}, %{{.*}} {scale = 1.000000e+00 : f32} : (tensor<?x4x?x40xf32>, tensor<?x1x?x40xf32>, tensor<?x1x?x32xf32>, tensor<?x?xf32>) -> tensor<?x4x?x32xf32>
// CHECK-NEXT: nn.reshape %[[A]] {shape = ["b", "4*s", 32]}
func.func @heads_first(%qc: tensor<?x?x4x32xf32> {nn.dims = ["b", "s", 4, 32]}, %qr: tensor<?x?x4x8xf32> {nn.dims = ["b", "s", 4, 8]},
                       %kv: tensor<?x?x32xf32> {nn.dims = ["b", "t", 32]}, %pe: tensor<?x?x8xf32> {nn.dims = ["b", "t", 8]},
                       %m: tensor<?x?xf32> {nn.dims = ["s", "t"]}) -> tensor<?x?x32xf32> {
  %q0 = nn.reshape %qc {shape = ["b", "4*s", 32]} : (tensor<?x?x4x32xf32>) -> tensor<?x?x32xf32>
  %q1 = nn.reshape %qr {shape = ["b", "4*s", 8]} : (tensor<?x?x4x8xf32>) -> tensor<?x?x8xf32>
  %0 = nn.matmul %q0, %kv {transpose_b = true} : (tensor<?x?x32xf32>, tensor<?x?x32xf32>) -> tensor<?x?x?xf32>
  %1 = nn.reshape %0 {shape = ["b", "s", 4, "t"]} : (tensor<?x?x?xf32>) -> tensor<?x?x4x?xf32>
  %2 = nn.transpose %1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x4x?xf32>) -> tensor<?x4x?x?xf32>
  %3 = nn.matmul %q1, %pe {transpose_b = true} : (tensor<?x?x8xf32>, tensor<?x?x8xf32>) -> tensor<?x?x?xf32>
  %4 = nn.reshape %3 {shape = ["b", "s", 4, "t"]} : (tensor<?x?x?xf32>) -> tensor<?x?x4x?xf32>
  %5 = nn.transpose %4 {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x4x?xf32>) -> tensor<?x4x?x?xf32>
  %6 = nn.add %2, %5 : (tensor<?x4x?x?xf32>, tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %7 = nn.add %6, %m : (tensor<?x4x?x?xf32>, tensor<?x?xf32>) -> tensor<?x4x?x?xf32>
  %8 = nn.softmax %7 {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %9 = nn.reshape %8 {shape = ["b", "4*s", "t"]} : (tensor<?x4x?x?xf32>) -> tensor<?x?x?xf32>
  %10 = nn.matmul %9, %kv : (tensor<?x?x?xf32>, tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
  return %10 : tensor<?x?x32xf32>
}

// -----

// Heads stacked before the sum. The values are neither part: the wider one comes first.
// CHECK-LABEL: func @other_values
// CHECK: nn.concat %{{.*}} : (tensor<2x4x5x16xf32>, tensor<2x4x5x8xf32>)
// CHECK: nn.concat %{{.*}} : (tensor<2x1x7x16xf32>, tensor<2x1x7x8xf32>)
// CHECK: nn.attention %{{.*}} : (tensor<2x4x5x24xf32>, tensor<2x1x7x24xf32>, tensor<2x1x7x12xf32>) -> tensor<2x4x5x12xf32>
func.func @other_values(%qr: tensor<2x20x8xf32>, %qc: tensor<2x20x16xf32>, %pe: tensor<2x7x8xf32>, %kv: tensor<2x7x16xf32>, %v: tensor<2x7x12xf32>) -> tensor<2x20x12xf32> {
  %0 = nn.matmul %qr, %pe {transpose_b = true} : (tensor<2x20x8xf32>, tensor<2x7x8xf32>) -> tensor<2x20x7xf32>
  %1 = nn.matmul %qc, %kv {transpose_b = true} : (tensor<2x20x16xf32>, tensor<2x7x16xf32>) -> tensor<2x20x7xf32>
  %2 = nn.add %0, %1 : (tensor<2x20x7xf32>, tensor<2x20x7xf32>) -> tensor<2x20x7xf32>
  %3 = nn.reshape %2 {shape = [2, 4, 5, 7]} : (tensor<2x20x7xf32>) -> tensor<2x4x5x7xf32>
  %4 = nn.softmax %3 {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %5 = nn.reshape %4 {shape = [2, 20, 7]} : (tensor<2x4x5x7xf32>) -> tensor<2x20x7xf32>
  %6 = nn.matmul %5, %v : (tensor<2x20x7xf32>, tensor<2x7x12xf32>) -> tensor<2x20x12xf32>
  return %6 : tensor<2x20x12xf32>
}

// -----

// Keys of each head beside rotated keys that all heads share.
// CHECK-LABEL: func @shared_rotation
// CHECK-SAME: %[[K1:[a-z0-9]*]]: tensor<2x4x7x16xf32>, %[[K2:[a-z0-9]*]]: tensor<2x1x7x8xf32>
// CHECK: %[[E:.*]] = nn.expand %[[K2]] {shape = [2, 4, 7, 8]}
// CHECK: nn.concat %[[K1]], %[[E]] {axis = 3 : i64}
// CHECK: nn.attention %{{.*}} : (tensor<2x4x5x24xf32>, tensor<2x4x7x24xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32>
func.func @shared_rotation(%q1: tensor<2x4x5x16xf32>, %q2: tensor<2x4x5x8xf32>, %k1: tensor<2x4x7x16xf32>, %k2: tensor<2x1x7x8xf32>, %v: tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32> {
  %0 = nn.matmul %q1, %k1 {transpose_b = true} : (tensor<2x4x5x16xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x7xf32>
  %1 = nn.matmul %q2, %k2 {transpose_b = true} : (tensor<2x4x5x8xf32>, tensor<2x1x7x8xf32>) -> tensor<2x4x5x7xf32>
  %2 = nn.add %0, %1 : (tensor<2x4x5x7xf32>, tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %3 = nn.softmax %2 {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %4 = nn.matmul %3, %v : (tensor<2x4x5x7xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %4 : tensor<2x4x5x16xf32>
}

// -----

// One cache, of which both products read a part: the keys are the cache, the values a part of the keys.
// CHECK-LABEL: func @one_cache
// CHECK-SAME: %[[CACHE:[a-z0-9]*]]: tensor<2x7x40xf32>
// CHECK: %[[K:.*]] = nn.reshape %[[CACHE]] {shape = [2, 1, 7, 40]}
// CHECK: %[[V:.*]] = nn.slice %[[K]] {sizes = [2, 1, 7, 32], starts = [0, 0, 0, 0]
// CHECK: nn.attention %{{.*}}, %[[K]], %[[V]] {
func.func @one_cache(%qc: tensor<2x4x5x32xf32>, %qr: tensor<2x4x5x8xf32>, %cache: tensor<2x7x40xf32>) -> tensor<2x4x5x32xf32> {
  %kv = nn.slice %cache {starts = [0, 0, 0], sizes = [2, 7, 32], steps = array<i64: 1, 1, 1>} : (tensor<2x7x40xf32>) -> tensor<2x7x32xf32>
  %pe = nn.slice %cache {starts = [0, 0, 32], sizes = [2, 7, 8], steps = array<i64: 1, 1, 1>} : (tensor<2x7x40xf32>) -> tensor<2x7x8xf32>
  %k1 = nn.reshape %kv {shape = [2, 1, 7, 32]} : (tensor<2x7x32xf32>) -> tensor<2x1x7x32xf32>
  %k2 = nn.reshape %pe {shape = [2, 1, 7, 8]} : (tensor<2x7x8xf32>) -> tensor<2x1x7x8xf32>
  %0 = nn.matmul %qc, %k1 {transpose_b = true} : (tensor<2x4x5x32xf32>, tensor<2x1x7x32xf32>) -> tensor<2x4x5x7xf32>
  %1 = nn.matmul %qr, %k2 {transpose_b = true} : (tensor<2x4x5x8xf32>, tensor<2x1x7x8xf32>) -> tensor<2x4x5x7xf32>
  %2 = nn.add %0, %1 : (tensor<2x4x5x7xf32>, tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %3 = nn.softmax %2 {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %4 = nn.matmul %3, %k1 : (tensor<2x4x5x7xf32>, tensor<2x1x7x32xf32>) -> tensor<2x4x5x32xf32>
  return %4 : tensor<2x4x5x32xf32>
}

// -----

// Views hide that values are columns of the keys: of a concatenation, and of one that others read.
// CHECK-LABEL: func @concatenated
// CHECK-SAME: %[[KV:[a-z0-9]*]]: tensor<2x7x32xf32>, %[[PE:[a-z0-9]*]]: tensor<2x7x8xf32>, %[[KVS:[a-z0-9]*]]: tensor<2x7x32xf32>
// CHECK-DAG: %[[V:.*]] = nn.reshape %[[KV]] {shape = [2, 1, 7, 32]}
// CHECK-DAG: %[[R:.*]] = nn.reshape %[[PE]] {shape = [2, 1, 7, 8]}
// CHECK-DAG: %[[K:.*]] = nn.concat %[[V]], %[[R]] {axis = 3 : i64}
// CHECK: nn.attention %{{.*}}, %[[K]], %[[V]] {
// CHECK: %[[CACHE:.*]] = nn.concat %[[KVS]], %{{.*}} {axis = 2 : i64}
// CHECK: %[[KS:.*]] = nn.reshape %[[CACHE]] {shape = [2, 1, 7, 40]}
// CHECK: %[[VS:.*]] = nn.slice %[[KS]] {sizes = [2, 1, 7, 32]
// CHECK: nn.attention %{{.*}}, %[[KS]], %[[VS]] {
func.func @concatenated(%q: tensor<2x4x5x40xf32>, %kv: tensor<2x7x32xf32>, %pe: tensor<2x7x8xf32>, %kvs: tensor<2x7x32xf32>) -> (tensor<2x4x5x32xf32>, tensor<2x4x5x32xf32>, tensor<2x7x40xf32>) {
  %k3 = nn.concat %kv, %pe {axis = 2 : i64} : (tensor<2x7x32xf32>, tensor<2x7x8xf32>) -> tensor<2x7x40xf32>
  %k = nn.reshape %k3 {shape = [2, 1, 7, 40]} : (tensor<2x7x40xf32>) -> tensor<2x1x7x40xf32>
  %v = nn.reshape %kv {shape = [2, 1, 7, 32]} : (tensor<2x7x32xf32>) -> tensor<2x1x7x32xf32>
  %y = nn.attention %q, %k, %v {scale = 0.5 : f32} : (tensor<2x4x5x40xf32>, tensor<2x1x7x40xf32>, tensor<2x1x7x32xf32>) -> tensor<2x4x5x32xf32>
  %cache = nn.concat %kvs, %pe {axis = 2 : i64} : (tensor<2x7x32xf32>, tensor<2x7x8xf32>) -> tensor<2x7x40xf32>
  %ks = nn.reshape %cache {shape = [2, 1, 7, 40]} : (tensor<2x7x40xf32>) -> tensor<2x1x7x40xf32>
  %vs = nn.reshape %kvs {shape = [2, 1, 7, 32]} : (tensor<2x7x32xf32>) -> tensor<2x1x7x32xf32>
  %ys = nn.attention %q, %ks, %vs {scale = 0.5 : f32} : (tensor<2x4x5x40xf32>, tensor<2x1x7x40xf32>, tensor<2x1x7x32xf32>) -> tensor<2x4x5x32xf32>
  return %y, %ys, %cache : tensor<2x4x5x32xf32>, tensor<2x4x5x32xf32>, tensor<2x7x40xf32>
}

// -----

// A third product.
// CHECK-LABEL: func @three
// CHECK-NOT: nn.attention
// CHECK: nn.softmax
// MISS: a part of the scores' sum is made by nn.add, not by nn.matmul
func.func @three(%q: tensor<2x4x5x16xf32>, %k1: tensor<2x1x7x16xf32>, %k2: tensor<2x1x7x16xf32>, %k3: tensor<2x1x7x16xf32>) -> tensor<2x4x5x16xf32> {
  %0 = nn.matmul %q, %k1 {transpose_b = true} : (tensor<2x4x5x16xf32>, tensor<2x1x7x16xf32>) -> tensor<2x4x5x7xf32>
  %1 = nn.matmul %q, %k2 {transpose_b = true} : (tensor<2x4x5x16xf32>, tensor<2x1x7x16xf32>) -> tensor<2x4x5x7xf32>
  %2 = nn.matmul %q, %k3 {transpose_b = true} : (tensor<2x4x5x16xf32>, tensor<2x1x7x16xf32>) -> tensor<2x4x5x7xf32>
  %3 = nn.add %0, %1 : (tensor<2x4x5x7xf32>, tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %4 = nn.add %3, %2 : (tensor<2x4x5x7xf32>, tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %5 = nn.softmax %4 {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %6 = nn.matmul %5, %k1 : (tensor<2x4x5x7xf32>, tensor<2x1x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %6 : tensor<2x4x5x16xf32>
}

// -----

// One row of scores for all queries is added: no part of each query.
// CHECK-LABEL: func @one_query
// CHECK-NOT: nn.attention
// CHECK: nn.softmax
// MISS: the scores sum two products of queries whose dim 2 is 5 and 1
func.func @one_query(%q: tensor<2x4x5x16xf32>, %r: tensor<2x4x1x16xf32>, %k1: tensor<2x1x7x16xf32>, %k2: tensor<2x1x7x16xf32>) -> tensor<2x4x5x16xf32> {
  %0 = nn.matmul %q, %k1 {transpose_b = true} : (tensor<2x4x5x16xf32>, tensor<2x1x7x16xf32>) -> tensor<2x4x5x7xf32>
  %1 = nn.matmul %r, %k2 {transpose_b = true} : (tensor<2x4x1x16xf32>, tensor<2x1x7x16xf32>) -> tensor<2x4x1x7xf32>
  %2 = nn.add %0, %1 : (tensor<2x4x5x7xf32>, tensor<2x4x1x7xf32>) -> tensor<2x4x5x7xf32>
  %3 = nn.softmax %2 {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %4 = nn.matmul %3, %k1 : (tensor<2x4x5x7xf32>, tensor<2x1x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %4 : tensor<2x4x5x16xf32>
}

// -----

// CHECK-LABEL: func @other_types
// CHECK-NOT: nn.attention
// CHECK: nn.softmax
// MISS: the scores sum two products of queries in f16 and f32
func.func @other_types(%q: tensor<2x4x5x16xf16>, %r: tensor<2x4x5x8xf32>, %k1: tensor<2x1x7x16xf16>, %k2: tensor<2x1x7x8xf32>) -> tensor<2x4x5x16xf16> {
  %0 = nn.matmul %q, %k1 {transpose_b = true} : (tensor<2x4x5x16xf16>, tensor<2x1x7x16xf16>) -> tensor<2x4x5x7xf32>
  %1 = nn.matmul %r, %k2 {transpose_b = true} : (tensor<2x4x5x8xf32>, tensor<2x1x7x8xf32>) -> tensor<2x4x5x7xf32>
  %2 = nn.add %0, %1 : (tensor<2x4x5x7xf32>, tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %3 = nn.softmax %2 {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %4 = nn.cast %3 : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf16>
  %5 = nn.matmul %4, %k1 : (tensor<2x4x5x7xf16>, tensor<2x1x7x16xf16>) -> tensor<2x4x5x16xf16>
  return %5 : tensor<2x4x5x16xf16>
}

// -----

// Keys by row, queries by column in one of the products.
// CHECK-LABEL: func @other_layouts
// CHECK-NOT: nn.attention
// CHECK: nn.softmax
// MISS: the scores sum two products of different layouts
func.func @other_layouts(%q: tensor<2x4x5x16xf32>, %r: tensor<2x4x5x8xf32>, %k1: tensor<2x1x7x16xf32>, %k2: tensor<2x1x7x8xf32>) -> tensor<2x4x5x16xf32> {
  %0 = nn.matmul %q, %k1 {transpose_b = true} : (tensor<2x4x5x16xf32>, tensor<2x1x7x16xf32>) -> tensor<2x4x5x7xf32>
  %1 = nn.matmul %k2, %r {transpose_b = true} : (tensor<2x1x7x8xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x7x5xf32>
  %t = nn.transpose %1 {perm = array<i64: 0, 1, 3, 2>} : (tensor<2x4x7x5xf32>) -> tensor<2x4x5x7xf32>
  %2 = nn.add %0, %t : (tensor<2x4x5x7xf32>, tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %3 = nn.softmax %2 {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %4 = nn.matmul %3, %k1 : (tensor<2x4x5x7xf32>, tensor<2x1x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %4 : tensor<2x4x5x16xf32>
}

// -----

// Keys of each query are no keys of heads.
// CHECK-LABEL: func @keys_of_queries
// CHECK-NOT: nn.attention
// CHECK: nn.softmax
// MISS: the scores are made of keys of each query
func.func @keys_of_queries(%q: tensor<2x5x4x16xf32>, %k: tensor<2x5x7x16xf32>, %v: tensor<2x1x7x16xf32>) -> tensor<2x4x5x16xf32> {
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<2x5x4x16xf32>, tensor<2x5x7x16xf32>) -> tensor<2x5x4x7xf32>
  %1 = nn.transpose %0 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x5x4x7xf32>) -> tensor<2x4x5x7xf32>
  %2 = nn.softmax %1 {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %3 = nn.matmul %2, %v : (tensor<2x4x5x7xf32>, tensor<2x1x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %3 : tensor<2x4x5x16xf32>
}
