// RUN: fusion-opt %s --nn-decompose-attention --split-input-file | FileCheck %s

// One key/value head, whose values are a part of its keys: all query heads are rows of one matmul.
// CHECK-LABEL: func @latent
// CHECK: nn.reshape %arg0 {shape = ["b", 1, "16*s", 320]}
// CHECK: nn.matmul %{{.*}}, %arg1 {transpose_b = true} : {{.*}} -> tensor<?x1x?x?xf32>
// CHECK: nn.less_equal
// CHECK: nn.softmax
// CHECK: nn.matmul {{.*}} -> tensor<?x1x?x288xbf16>
// CHECK: nn.reshape %{{.*}} {shape = ["b", 16, "s", 288]}
// CHECK-NOT: nn.attention
func.func @latent(%q: tensor<?x16x?x320xbf16> {nn.dims = ["b", 16, "s", 320]},
                  %cache: tensor<?x1x?x320xbf16> {nn.dims = ["b", 1, "t", 320]}) -> tensor<?x16x?x288xbf16> {
  %v = nn.slice %cache {starts = [0, 0, 0, 0], sizes = ["b", 1, "t", 288], steps = array<i64: 1, 1, 1, 1>} : (tensor<?x1x?x320xbf16>) -> tensor<?x1x?x288xbf16>
  %y = nn.attention %q, %cache, %v {scale = 0.07 : f32, causal = true} : (tensor<?x16x?x320xbf16>, tensor<?x1x?x320xbf16>, tensor<?x1x?x288xbf16>) -> tensor<?x16x?x288xbf16>
  return %y : tensor<?x16x?x288xbf16>
}

// -----

// A mask that chooses, a window, a cap, rows without keys; two heads of keys for four of queries.
// CHECK-LABEL: func @masked
// CHECK: nn.tanh
// CHECK: nn.greater
// CHECK: nn.where %arg3
// CHECK: nn.softmax
// CHECK: nn.reduce %{{.*}} {axes = array<i64: 3>, keepdims = true, kind = "max"}
// CHECK-NOT: nn.attention
func.func @masked(%q: tensor<2x4x3x272xf32>, %k: tensor<2x2x7x272xf32>, %v: tensor<2x2x7x16xf32>, %m: tensor<2x1x3x7xi1>) -> tensor<2x4x3x16xf32> {
  %y = nn.attention %q, %k, %v, %m {scale = 0.06 : f32, window = 5 : i64, softcap = 20.0 : f32, zero_masked_rows = true} : (tensor<2x4x3x272xf32>, tensor<2x2x7x272xf32>, tensor<2x2x7x16xf32>, tensor<2x1x3x7xi1>) -> tensor<2x4x3x16xf32>
  return %y : tensor<2x4x3x16xf32>
}

// -----

// CHECK-LABEL: func @small
// CHECK: nn.attention
func.func @small(%q: tensor<2x4x3x256xf32>, %k: tensor<2x2x7x256xf32>) -> tensor<2x4x3x256xf32> {
  %y = nn.attention %q, %k, %k {scale = 0.06 : f32} : (tensor<2x4x3x256xf32>, tensor<2x2x7x256xf32>, tensor<2x2x7x256xf32>) -> tensor<2x4x3x256xf32>
  return %y : tensor<2x4x3x256xf32>
}

// -----

// Attention among channels: a head is as long as the picture has places.
// CHECK-LABEL: func @channels
// CHECK-NOT: nn.attention
// CHECK: nn.softmax
func.func @channels(%q: tensor<?x2x16x?xf32> {nn.dims = ["b", 2, 16, "h*w"]}, %k: tensor<?x2x16x?xf32> {nn.dims = ["b", 2, 16, "h*w"]}, %v: tensor<?x2x16x?xf32> {nn.dims = ["b", 2, 16, "h*w"]}) -> tensor<?x2x16x?xf32> {
  %y = nn.attention %q, %k, %v {scale = 0.25 : f32} : (tensor<?x2x16x?xf32>, tensor<?x2x16x?xf32>, tensor<?x2x16x?xf32>) -> tensor<?x2x16x?xf32>
  return %y : tensor<?x2x16x?xf32>
}

// -----

// Keys of two caches: two matmuls of the parts, which are not copied into one tensor. A concatenation that
// others read stays.
// CHECK-LABEL: func @two_caches
// CHECK-SAME: %[[KV:[a-z0-9]*]]: tensor<?x1x?x512xf16> {{.*}}, %[[PE:[a-z0-9]*]]: tensor<?x1x?x64xf16>
// CHECK: %[[A:.*]] = nn.matmul %{{.*}}, %[[KV]] {transpose_b = true} : (tensor<?x1x?x512xf16>, tensor<?x1x?x512xf16>) -> tensor<?x1x?x?xf32>
// CHECK: %[[B:.*]] = nn.matmul %{{.*}}, %[[PE]] {transpose_b = true} : (tensor<?x1x?x64xf16>, tensor<?x1x?x64xf16>) -> tensor<?x1x?x?xf32>
// CHECK: nn.add %[[A]], %[[B]]
// CHECK: nn.softmax
// CHECK: nn.matmul %{{.*}}, %[[KV]]
// CHECK: nn.matmul %{{.*}}, %{{.*}} {transpose_b = true} : (tensor<?x1x?x576xf16>, tensor<?x1x?x576xf16>) -> tensor<?x1x?x?xf32>
// CHECK-NOT: nn.attention
func.func @two_caches(%qc: tensor<?x16x?x512xf16> {nn.dims = ["b", 16, "s", 512]}, %qr: tensor<?x16x?x64xf16> {nn.dims = ["b", 16, "s", 64]},
                      %kv: tensor<?x1x?x512xf16> {nn.dims = ["b", 1, "t", 512]}, %pe: tensor<?x1x?x64xf16> {nn.dims = ["b", 1, "t", 64]}) -> (tensor<?x16x?x512xf16>, tensor<?x16x?x512xf16>, tensor<?x1x?x576xf16>) {
  %q = nn.concat %qc, %qr {axis = 3 : i64} : (tensor<?x16x?x512xf16>, tensor<?x16x?x64xf16>) -> tensor<?x16x?x576xf16>
  %k = nn.concat %kv, %pe {axis = 3 : i64} : (tensor<?x1x?x512xf16>, tensor<?x1x?x64xf16>) -> tensor<?x1x?x576xf16>
  %y = nn.attention %q, %k, %kv {scale = 0.07 : f32} : (tensor<?x16x?x576xf16>, tensor<?x1x?x576xf16>, tensor<?x1x?x512xf16>) -> tensor<?x16x?x512xf16>
  %returned = nn.concat %kv, %pe {axis = 3 : i64} : (tensor<?x1x?x512xf16>, tensor<?x1x?x64xf16>) -> tensor<?x1x?x576xf16>
  %z = nn.attention %q, %returned, %kv {scale = 0.07 : f32} : (tensor<?x16x?x576xf16>, tensor<?x1x?x576xf16>, tensor<?x1x?x512xf16>) -> tensor<?x16x?x512xf16>
  return %y, %z, %returned : tensor<?x16x?x512xf16>, tensor<?x16x?x512xf16>, tensor<?x1x?x576xf16>
}
