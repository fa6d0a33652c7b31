// RUN: fusion-opt %s --nn-raise-attention --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-raise-attention --split-input-file --remarks-filter-missed=raise 2>&1 | FileCheck %s --check-prefix=MISS

// √s on both sides, an additive mask, the guard against NaN rows.
// CHECK-LABEL: func @both_sides
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<?x4x?x32xf32> {{.*}}, %[[K:[a-z0-9]*]]: tensor<?x4x?x32xf32> {{.*}}, %[[V:[a-z0-9]*]]: tensor<?x4x?x32xf32> {{.*}}, %[[M:[a-z0-9]*]]: tensor<?x1x?x?xf32>
// CHECK-NEXT: %[[A:.*]] = nn.attention %[[Q]], %[[K]], %[[V]], %[[M]] {scale = 2.500000e-01 : f32, zero_masked_rows = true}
// CHECK-NEXT: return %[[A]]
func.func @both_sides(%q: tensor<?x4x?x32xf32> {nn.dims = ["b", 4, "s", 32]}, %k: tensor<?x4x?x32xf32> {nn.dims = ["b", 4, "t", 32]},
                      %v: tensor<?x4x?x32xf32> {nn.dims = ["b", 4, "t", 32]}, %m: tensor<?x1x?x?xf32> {nn.dims = ["b", 1, "s", "t"]}) -> tensor<?x4x?x32xf32> {
  %h = nn.constant {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %qs = nn.mul %q, %h : (tensor<?x4x?x32xf32>, tensor<f32>) -> tensor<?x4x?x32xf32>
  %ks = nn.mul %k, %h : (tensor<?x4x?x32xf32>, tensor<f32>) -> tensor<?x4x?x32xf32>
  %0 = nn.matmul %qs, %ks {transpose_b = true} : (tensor<?x4x?x32xf32>, tensor<?x4x?x32xf32>) -> tensor<?x4x?x?xf32>
  %1 = nn.add %0, %m : (tensor<?x4x?x?xf32>, tensor<?x1x?x?xf32>) -> tensor<?x4x?x?xf32>
  %2 = nn.softmax %1 {axis = -1 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %n = nn.is_nan %2 : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xi1>
  %3 = nn.where %n, %zero, %2 : (tensor<?x4x?x?xi1>, tensor<f32>, tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %4 = nn.matmul %3, %v : (tensor<?x4x?x?xf32>, tensor<?x4x?x32xf32>) -> tensor<?x4x?x32xf32>
  return %4 : tensor<?x4x?x32xf32>
}

// -----

// Eager: repeated heads, Mul after, the mask commuted, the softmax in f32 between casts.
// CHECK-LABEL: func @grouped
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<?x4x?x32xf16> {{.*}}, %[[K:[a-z0-9]*]]: tensor<?x2x?x32xf16> {{.*}}, %[[V:[a-z0-9]*]]: tensor<?x2x?x32xf16>
// CHECK-NEXT: nn.attention %[[Q]], %[[K]], %[[V]], %{{.*}} {scale = 1.250000e-01 : f32} : (tensor<?x4x?x32xf16>, tensor<?x2x?x32xf16>, tensor<?x2x?x32xf16>, tensor<?x1x?x?xf16>) -> tensor<?x4x?x32xf16>
// CHECK-NEXT: return
func.func @grouped(%q: tensor<?x4x?x32xf16> {nn.dims = ["b", 4, "s", 32]}, %k: tensor<?x2x?x32xf16> {nn.dims = ["b", 2, "s", 32]},
                   %v: tensor<?x2x?x32xf16> {nn.dims = ["b", 2, "s", 32]}, %m: tensor<?x1x?x?xf16> {nn.dims = ["b", 1, "s", "s"]}) -> tensor<?x4x?x32xf16> {
  %c = nn.constant {value = dense<8.0> : tensor<f16>} : () -> tensor<f16>
  %k0 = nn.reshape %k {shape = ["b", 2, 1, "s", 32]} : (tensor<?x2x?x32xf16>) -> tensor<?x2x1x?x32xf16>
  %k1 = nn.expand %k0 {shape = ["b", 2, 2, "s", 32]} : (tensor<?x2x1x?x32xf16>) -> tensor<?x2x2x?x32xf16>
  %k2 = nn.reshape %k1 {shape = ["b", 4, "s", 32]} : (tensor<?x2x2x?x32xf16>) -> tensor<?x4x?x32xf16>
  %v0 = nn.reshape %v {shape = ["b", 2, 1, "s", 32]} : (tensor<?x2x?x32xf16>) -> tensor<?x2x1x?x32xf16>
  %v1 = nn.expand %v0 {shape = ["b", 2, 2, "s", 32]} : (tensor<?x2x1x?x32xf16>) -> tensor<?x2x2x?x32xf16>
  %v2 = nn.reshape %v1 {shape = ["b", 4, "s", 32]} : (tensor<?x2x2x?x32xf16>) -> tensor<?x4x?x32xf16>
  %0 = nn.matmul %q, %k2 {transpose_b = true} : (tensor<?x4x?x32xf16>, tensor<?x4x?x32xf16>) -> tensor<?x4x?x?xf16>
  %1 = nn.div %0, %c : (tensor<?x4x?x?xf16>, tensor<f16>) -> tensor<?x4x?x?xf16>
  %2 = nn.add %m, %1 : (tensor<?x1x?x?xf16>, tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf16>
  %3 = nn.cast %2 : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf32>
  %4 = nn.softmax %3 {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %5 = nn.cast %4 : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf16>
  %6 = nn.matmul %5, %v2 : (tensor<?x4x?x?xf16>, tensor<?x4x?x32xf16>) -> tensor<?x4x?x32xf16>
  return %6 : tensor<?x4x?x32xf16>
}

// -----

// -inf where a condition fails is a mask of i1; without a guard, wholly masked rows are NaN.
// CHECK-LABEL: func @minus_infinity
// CHECK-SAME: %[[C:[a-z0-9]*]]: tensor<1x1x8x8xi1>
// CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}}, %[[C]] {scale = 1.000000e+00 : f32} :
// CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}}, %[[C]] {scale = 1.000000e+00 : f32} :
func.func @minus_infinity(%q: tensor<2x4x8x32xf32>, %k: tensor<2x4x8x32xf32>, %v: tensor<2x4x8x32xf32>,
                          %c: tensor<1x1x8x8xi1>) -> (tensor<2x4x8x32xf32>, tensor<2x4x8x32xf32>) {
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %low = nn.constant {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
  %m = nn.where %c, %zero, %low : (tensor<1x1x8x8xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x8x8xf32>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x8x32xf32>, tensor<2x4x8x32xf32>) -> tensor<2x4x8x8xf32>
  %1 = nn.add %0, %m : (tensor<2x4x8x8xf32>, tensor<1x1x8x8xf32>) -> tensor<2x4x8x8xf32>
  %2 = nn.softmax %1 {axis = 3 : i64} : (tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %3 = nn.matmul %2, %v : (tensor<2x4x8x8xf32>, tensor<2x4x8x32xf32>) -> tensor<2x4x8x32xf32>
  %4 = nn.where %c, %0, %low : (tensor<1x1x8x8xi1>, tensor<2x4x8x8xf32>, tensor<f32>) -> tensor<2x4x8x8xf32>
  %5 = nn.softmax %4 {axis = 3 : i64} : (tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %6 = nn.matmul %5, %v : (tensor<2x4x8x8xf32>, tensor<2x4x8x32xf32>) -> tensor<2x4x8x32xf32>
  return %3, %6 : tensor<2x4x8x32xf32>, tensor<2x4x8x32xf32>
}

// -----

// A finite lowest number averages a wholly masked row, since it swallows the score: in f32 a lower one has to.
// CHECK-LABEL: func @finite_lowest
// CHECK: %[[K:.*]] = nn.constant {value = dense<-3.40282347E+38> : tensor<f32>}
// CHECK: %[[M:.*]] = nn.where %{{.*}}, %{{.*}}, %[[K]]
// CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}}, %[[M]] {{.*}}tensor<1x1x8x8xf32>) ->
// CHECK: %[[L:.*]] = nn.constant {value = dense<-3.40282347E+38> : tensor<f32>}
// CHECK: %[[N:.*]] = nn.where %{{.*}}, %{{.*}}, %[[L]]
// CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}}, %[[N]] {{.*}}tensor<1x1x8x8xf32>) ->
func.func @finite_lowest(%q: tensor<2x4x8x32xf16>, %k: tensor<2x4x8x32xf16>, %v: tensor<2x4x8x32xf16>,
                         %c: tensor<1x1x8x8xi1>) -> (tensor<2x4x8x32xf16>, tensor<2x4x8x32xf16>) {
  %zero = nn.constant {value = dense<0.0> : tensor<f16>} : () -> tensor<f16>
  %low = nn.constant {value = dense<-65504.0> : tensor<f16>} : () -> tensor<f16>
  %m = nn.where %c, %zero, %low : (tensor<1x1x8x8xi1>, tensor<f16>, tensor<f16>) -> tensor<1x1x8x8xf16>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x8x32xf16>, tensor<2x4x8x32xf16>) -> tensor<2x4x8x8xf16>
  %1 = nn.add %0, %m : (tensor<2x4x8x8xf16>, tensor<1x1x8x8xf16>) -> tensor<2x4x8x8xf16>
  %2 = nn.softmax %1 {axis = 3 : i64} : (tensor<2x4x8x8xf16>) -> tensor<2x4x8x8xf16>
  %3 = nn.matmul %2, %v : (tensor<2x4x8x8xf16>, tensor<2x4x8x32xf16>) -> tensor<2x4x8x32xf16>
  %4 = nn.where %c, %0, %low : (tensor<1x1x8x8xi1>, tensor<2x4x8x8xf16>, tensor<f16>) -> tensor<2x4x8x8xf16>
  %5 = nn.softmax %4 {axis = 3 : i64} : (tensor<2x4x8x8xf16>) -> tensor<2x4x8x8xf16>
  %6 = nn.matmul %5, %v : (tensor<2x4x8x8xf16>, tensor<2x4x8x32xf16>) -> tensor<2x4x8x32xf16>
  return %3, %6 : tensor<2x4x8x32xf16>, tensor<2x4x8x32xf16>
}

// -----

// Gemma 2: the scores capped before the mask. Kᵀ comes ready from a cache.
// CHECK-LABEL: func @softcap
// CHECK: %[[T:.*]] = nn.transpose %{{.*}} {perm = array<i64: 0, 1, 3, 2>}
// CHECK: nn.attention %{{.*}}, %[[T]], %{{.*}}, %{{.*}} {scale = 2.500000e-01 : f32, softcap = 5.000000e+01 : f32}
func.func @softcap(%q: tensor<1x4x8x32xf32>, %kt: tensor<1x4x32x8xf32>, %v: tensor<1x4x8x32xf32>, %m: tensor<8x8xf32>) -> tensor<1x4x8x32xf32> {
  %s = nn.constant {value = dense<0.25> : tensor<f32>} : () -> tensor<f32>
  %cap = nn.constant {value = dense<50.0> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.matmul %q, %kt : (tensor<1x4x8x32xf32>, tensor<1x4x32x8xf32>) -> tensor<1x4x8x8xf32>
  %1 = nn.mul %0, %s : (tensor<1x4x8x8xf32>, tensor<f32>) -> tensor<1x4x8x8xf32>
  %2 = nn.div %1, %cap : (tensor<1x4x8x8xf32>, tensor<f32>) -> tensor<1x4x8x8xf32>
  %3 = nn.tanh %2 : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %4 = nn.mul %cap, %3 : (tensor<f32>, tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %5 = nn.add %4, %m : (tensor<1x4x8x8xf32>, tensor<8x8xf32>) -> tensor<1x4x8x8xf32>
  %6 = nn.softmax %5 {axis = 3 : i64} : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %7 = nn.matmul %6, %v : (tensor<1x4x8x8xf32>, tensor<1x4x8x32xf32>) -> tensor<1x4x8x32xf32>
  return %7 : tensor<1x4x8x32xf32>
}

// -----

// Heads merged into the batch: one head of its own.
// CHECK-LABEL: func @rank_three
// CHECK: nn.attention %{{.*}} -> tensor<8x1x8x32xf32>
// CHECK: nn.reshape %{{.*}} {shape = [8, 8, 32]}
func.func @rank_three(%q: tensor<8x8x32xf32>, %k: tensor<8x8x32xf32>, %v: tensor<8x8x32xf32>) -> tensor<8x8x32xf32> {
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<8x8x32xf32>, tensor<8x8x32xf32>) -> tensor<8x8x8xf32>
  %1 = nn.softmax %0 {axis = 2 : i64} : (tensor<8x8x8xf32>) -> tensor<8x8x8xf32>
  %2 = nn.matmul %1, %v : (tensor<8x8x8xf32>, tensor<8x8x32xf32>) -> tensor<8x8x32xf32>
  return %2 : tensor<8x8x32xf32>
}

// -----

// An attention that is named already loses its repeated heads too; all heads expanded from one.
// CHECK-LABEL: func @named
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<?x4x?x32xbf16> {{.*}}, %[[K:[a-z0-9]*]]: tensor<?x1x?x32xbf16> {{.*}}, %[[V:[a-z0-9]*]]: tensor<?x1x?x32xbf16>
// CHECK-NEXT: nn.attention %[[Q]], %[[K]], %[[V]] {
// CHECK-NEXT: return
func.func @named(%q: tensor<?x4x?x32xbf16> {nn.dims = ["b", 4, "s", 32]}, %k: tensor<?x1x?x32xbf16> {nn.dims = ["b", 1, "s", 32]},
                 %v: tensor<?x1x?x32xbf16> {nn.dims = ["b", 1, "s", 32]}) -> tensor<?x4x?x32xbf16> {
  %k1 = nn.expand %k {shape = ["b", 4, "s", 32]} : (tensor<?x1x?x32xbf16>) -> tensor<?x4x?x32xbf16>
  %v1 = nn.expand %v {shape = ["b", 4, "s", 32]} : (tensor<?x1x?x32xbf16>) -> tensor<?x4x?x32xbf16>
  %0 = nn.attention %q, %k1, %v1 {scale = 0.25 : f32, causal = true} : (tensor<?x4x?x32xbf16>, tensor<?x4x?x32xbf16>, tensor<?x4x?x32xbf16>) -> tensor<?x4x?x32xbf16>
  return %0 : tensor<?x4x?x32xbf16>
}

// -----

// Interleaved heads, [b, group, kv, ..], are not what nn.attention means by grouped heads.
// CHECK-LABEL: func @tiled_heads
// CHECK: nn.attention %{{.*}} : (tensor<1x4x8x32xf32>, tensor<1x4x8x32xf32>, tensor<1x4x8x32xf32>)
func.func @tiled_heads(%q: tensor<1x4x8x32xf32>, %k: tensor<1x2x8x32xf32>) -> tensor<1x4x8x32xf32> {
  %0 = nn.reshape %k {shape = [1, 1, 2, 8, 32]} : (tensor<1x2x8x32xf32>) -> tensor<1x1x2x8x32xf32>
  %1 = nn.expand %0 {shape = [1, 2, 2, 8, 32]} : (tensor<1x1x2x8x32xf32>) -> tensor<1x2x2x8x32xf32>
  %2 = nn.reshape %1 {shape = [1, 4, 8, 32]} : (tensor<1x2x2x8x32xf32>) -> tensor<1x4x8x32xf32>
  %3 = nn.attention %q, %2, %2 {scale = 0.25 : f32} : (tensor<1x4x8x32xf32>, tensor<1x4x8x32xf32>, tensor<1x4x8x32xf32>) -> tensor<1x4x8x32xf32>
  return %3 : tensor<1x4x8x32xf32>
}

// -----

// The probabilities leave the graph.
// CHECK-LABEL: func @probabilities_used
// CHECK-NOT: nn.attention
// MISS: the probabilities are used 2 times
func.func @probabilities_used(%q: tensor<1x4x8x32xf32>, %k: tensor<1x4x8x32xf32>, %v: tensor<1x4x8x32xf32>)
    -> (tensor<1x4x8x32xf32>, tensor<1x4x8x8xf32>) {
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<1x4x8x32xf32>, tensor<1x4x8x32xf32>) -> tensor<1x4x8x8xf32>
  %1 = nn.softmax %0 {axis = 3 : i64} : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %2 = nn.matmul %1, %v : (tensor<1x4x8x8xf32>, tensor<1x4x8x32xf32>) -> tensor<1x4x8x32xf32>
  return %2, %1 : tensor<1x4x8x32xf32>, tensor<1x4x8x8xf32>
}

// -----

// A router's softmax, and one whose probabilities are masked afterwards.
// CHECK-LABEL: func @other_softmax
// CHECK-NOT: nn.attention
// MISS: the scores are made by an argument, not by nn.matmul
// MISS: the probabilities go to nn.mul, not to an nn.matmul
func.func @other_softmax(%x: tensor<8x4xf32>, %q: tensor<1x4x8x32xf32>, %k: tensor<1x4x8x32xf32>, %v: tensor<1x4x8x32xf32>)
    -> (tensor<8x4xf32>, tensor<1x4x8x32xf32>) {
  %two = nn.constant {value = dense<2.0> : tensor<f32>} : () -> tensor<f32>
  %r = nn.softmax %x {axis = 1 : i64} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<1x4x8x32xf32>, tensor<1x4x8x32xf32>) -> tensor<1x4x8x8xf32>
  %1 = nn.softmax %0 {axis = 3 : i64} : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %2 = nn.mul %1, %two : (tensor<1x4x8x8xf32>, tensor<f32>) -> tensor<1x4x8x8xf32>
  %3 = nn.matmul %2, %v : (tensor<1x4x8x8xf32>, tensor<1x4x8x32xf32>) -> tensor<1x4x8x32xf32>
  return %r, %3 : tensor<8x4xf32>, tensor<1x4x8x32xf32>
}

// -----

// A mask of positions is causal with a window, whatever the sizes; the finite number never fills a row.
// CHECK-LABEL: func @causal_window
// CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}} {causal = true, scale = 1.000000e+00 : f32, window = 4 : i64} : (tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>)
func.func @causal_window(%q: tensor<1x2x?x8xf32> {nn.dims = [1, 2, "s", 8]}, %k: tensor<1x2x?x8xf32> {nn.dims = [1, 2, "s", 8]},
                         %v: tensor<1x2x?x8xf32> {nn.dims = [1, 2, "s", 8]}) -> tensor<1x2x?x8xf32> {
  %i0 = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %i1 = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %i4 = nn.constant {value = dense<4> : tensor<i64>} : () -> tensor<i64>
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %low = nn.constant {value = dense<-3.40282347E+38> : tensor<f32>} : () -> tensor<f32>
  %r = nn.iota %i0, %i1 {size = ["s"]} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
  %row = nn.reshape %r {shape = [1, 1, "s", 1]} : (tensor<?xi64>) -> tensor<1x1x?x1xi64>
  %col = nn.reshape %r {shape = [1, 1, 1, "s"]} : (tensor<?xi64>) -> tensor<1x1x1x?xi64>
  %c = nn.less_equal %col, %row : (tensor<1x1x1x?xi64>, tensor<1x1x?x1xi64>) -> tensor<1x1x?x?xi1>
  %b = nn.sub %row, %i4 : (tensor<1x1x?x1xi64>, tensor<i64>) -> tensor<1x1x?x1xi64>
  %w = nn.greater %col, %b : (tensor<1x1x1x?xi64>, tensor<1x1x?x1xi64>) -> tensor<1x1x?x?xi1>
  %both = nn.and %w, %c : (tensor<1x1x?x?xi1>, tensor<1x1x?x?xi1>) -> tensor<1x1x?x?xi1>
  %m = nn.where %both, %zero, %low : (tensor<1x1x?x?xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x?x?xf32>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>) -> tensor<1x2x?x?xf32>
  %1 = nn.add %0, %m : (tensor<1x2x?x?xf32>, tensor<1x1x?x?xf32>) -> tensor<1x2x?x?xf32>
  %2 = nn.softmax %1 {axis = 3 : i64} : (tensor<1x2x?x?xf32>) -> tensor<1x2x?x?xf32>
  %3 = nn.matmul %2, %v : (tensor<1x2x?x?xf32>, tensor<1x2x?x8xf32>) -> tensor<1x2x?x8xf32>
  return %3 : tensor<1x2x?x8xf32>
}

// -----

// A padding mask beside the causal one: of i1, the causal part goes and the padding stays; as one finite number, all
// stays, since a wholly masked row would not.
// CHECK-LABEL: func @causal_and_padding
// CHECK-SAME: %[[P:[a-z0-9]*]]: tensor<2x1x1x?xi1>
// CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}}, %[[P]] {causal = true, scale = 1.000000e+00 : f32}
// CHECK: %[[M:.*]] = nn.where
// CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}}, %[[M]] {scale = 1.000000e+00 : f32}
func.func @causal_and_padding(%q: tensor<2x2x?x8xf32> {nn.dims = [2, 2, "s", 8]}, %k: tensor<2x2x?x8xf32> {nn.dims = [2, 2, "s", 8]},
                              %p: tensor<2x1x1x?xi1> {nn.dims = [2, 1, 1, "s"]}) -> (tensor<2x2x?x8xf32>, tensor<2x2x?x8xf32>) {
  %i0 = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %i1 = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %low = nn.constant {value = dense<-3.40282347E+38> : tensor<f32>} : () -> tensor<f32>
  %r = nn.iota %i0, %i1 {size = ["s"]} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
  %row = nn.reshape %r {shape = ["s", 1]} : (tensor<?xi64>) -> tensor<?x1xi64>
  %c = nn.less_equal %r, %row : (tensor<?xi64>, tensor<?x1xi64>) -> tensor<?x?xi1>
  %both = nn.and %c, %p : (tensor<?x?xi1>, tensor<2x1x1x?xi1>) -> tensor<2x1x?x?xi1>
  %0 = nn.attention %q, %k, %k, %both {scale = 1.0 : f32} : (tensor<2x2x?x8xf32>, tensor<2x2x?x8xf32>, tensor<2x2x?x8xf32>, tensor<2x1x?x?xi1>) -> tensor<2x2x?x8xf32>
  %m = nn.where %both, %zero, %low : (tensor<2x1x?x?xi1>, tensor<f32>, tensor<f32>) -> tensor<2x1x?x?xf32>
  %1 = nn.attention %q, %k, %k, %m {scale = 1.0 : f32} : (tensor<2x2x?x8xf32>, tensor<2x2x?x8xf32>, tensor<2x2x?x8xf32>, tensor<2x1x?x?xf32>) -> tensor<2x2x?x8xf32>
  return %0, %1 : tensor<2x2x?x8xf32>, tensor<2x2x?x8xf32>
}

// -----

// Another diagonal is no causal mask.
// CHECK-LABEL: func @other_diagonal
// CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {scale
func.func @other_diagonal(%q: tensor<1x2x?x8xf32> {nn.dims = [1, 2, "s", 8]}, %k: tensor<1x2x?x8xf32> {nn.dims = [1, 2, "s", 8]}) -> tensor<1x2x?x8xf32> {
  %i0 = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %i1 = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %r = nn.iota %i0, %i1 {size = ["s"]} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
  %row = nn.reshape %r {shape = ["s", 1]} : (tensor<?xi64>) -> tensor<?x1xi64>
  %n = nn.add %row, %i1 : (tensor<?x1xi64>, tensor<i64>) -> tensor<?x1xi64>
  %c = nn.less_equal %r, %n : (tensor<?xi64>, tensor<?x1xi64>) -> tensor<?x?xi1>
  %0 = nn.attention %q, %k, %k, %c {scale = 1.0 : f32} : (tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<?x?xi1>) -> tensor<1x2x?x8xf32>
  return %0 : tensor<1x2x?x8xf32>
}

// -----

// Bloom: baddbmm adds the position bias to scale * q kᵀ over batch * heads; the mask is added after the split.
// CHECK-LABEL: func @merged_heads
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<?x4x?x8xf32> {{.*}}, %[[K:[a-z0-9]*]]: tensor<?x4x?x8xf32> {{.*}}, %[[V:[a-z0-9]*]]: tensor<?x4x?x8xf32>
// CHECK: %[[B:.*]] = nn.reshape %{{.*}} {shape = ["b", 4, 1, "s"]}
// CHECK: %[[M:.*]] = nn.add %{{.*}}, %[[B]] : {{.*}} -> tensor<?x4x?x?xf32>
// CHECK: nn.attention %[[Q]], %[[K]], %[[V]], %[[M]] {{{.*}}scale = 2.500000e-01 : f32}
func.func @merged_heads(%q: tensor<?x4x?x8xf32> {nn.dims = ["b", 4, "s", 8]}, %k: tensor<?x4x?x8xf32> {nn.dims = ["b", 4, "s", 8]}, %v: tensor<?x4x?x8xf32> {nn.dims = ["b", 4, "s", 8]},
                        %bias: tensor<?x1x?xf32> {nn.dims = ["4*b", 1, "s"]}, %mask: tensor<?x1x?x?xf32> {nn.dims = ["b", 1, "s", "s"]}) -> tensor<?x?x8xf32> {
  %c = nn.constant {value = dense<0.25> : tensor<f32>} : () -> tensor<f32>
  %q3 = nn.reshape %q {shape = ["4*b", "s", 8]} : (tensor<?x4x?x8xf32>) -> tensor<?x?x8xf32>
  %k3 = nn.reshape %k {shape = ["4*b", "s", 8]} : (tensor<?x4x?x8xf32>) -> tensor<?x?x8xf32>
  %v3 = nn.reshape %v {shape = ["4*b", "s", 8]} : (tensor<?x4x?x8xf32>) -> tensor<?x?x8xf32>
  %0 = nn.matmul %q3, %k3 {transpose_b = true} : (tensor<?x?x8xf32>, tensor<?x?x8xf32>) -> tensor<?x?x?xf32>
  %1 = nn.mul %0, %c : (tensor<?x?x?xf32>, tensor<f32>) -> tensor<?x?x?xf32>
  %2 = nn.add %1, %bias : (tensor<?x?x?xf32>, tensor<?x1x?xf32>) -> tensor<?x?x?xf32>
  %3 = nn.reshape %2 {shape = ["b", 4, "s", "s"]} : (tensor<?x?x?xf32>) -> tensor<?x4x?x?xf32>
  %4 = nn.add %3, %mask : (tensor<?x4x?x?xf32>, tensor<?x1x?x?xf32>) -> tensor<?x4x?x?xf32>
  %5 = nn.softmax %4 {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %6 = nn.reshape %5 {shape = ["4*b", "s", "s"]} : (tensor<?x4x?x?xf32>) -> tensor<?x?x?xf32>
  %7 = nn.matmul %6, %v3 : (tensor<?x?x?xf32>, tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %7 : tensor<?x?x8xf32>
}

// -----

// OPT: the scores are split for the mask only, and q, k, v have one batch dim of their own.
// CHECK-LABEL: func @split_for_the_mask
// CHECK: nn.attention %{{.*}} : (tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>, tensor<2x1x3x5xf32>) -> tensor<2x4x3x8xf32>
// CHECK-NOT: nn.softmax
func.func @split_for_the_mask(%q: tensor<8x3x8xf32>, %k: tensor<8x5x8xf32>, %v: tensor<8x5x8xf32>, %mask: tensor<2x1x3x5xf32>) -> tensor<8x3x8xf32> {
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<8x3x8xf32>, tensor<8x5x8xf32>) -> tensor<8x3x5xf32>
  %1 = nn.reshape %0 {shape = [2, 4, 3, 5]} : (tensor<8x3x5xf32>) -> tensor<2x4x3x5xf32>
  %2 = nn.add %1, %mask : (tensor<2x4x3x5xf32>, tensor<2x1x3x5xf32>) -> tensor<2x4x3x5xf32>
  %3 = nn.reshape %2 {shape = [8, 3, 5]} : (tensor<2x4x3x5xf32>) -> tensor<8x3x5xf32>
  %4 = nn.softmax %3 {axis = 2 : i64} : (tensor<8x3x5xf32>) -> tensor<8x3x5xf32>
  %5 = nn.matmul %4, %v : (tensor<8x3x5xf32>, tensor<8x5x8xf32>) -> tensor<8x3x8xf32>
  return %5 : tensor<8x3x8xf32>
}

// -----

// The bias is scaled with the product: so is the mask that nn.attention adds to scale * q kᵀ.
// CHECK-LABEL: func @scaled_bias
// CHECK-DAG: %[[F:.*]] = nn.constant {{.*}}2.500000e-01
// CHECK: %[[M:.*]] = nn.mul %{{.*}}, %[[F]]
// CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}}, %[[M]] {scale = 2.500000e-01 : f32}
func.func @scaled_bias(%q: tensor<8x3x8xf32>, %k: tensor<8x5x8xf32>, %v: tensor<8x5x8xf32>, %bias: tensor<8x1x5xf32>) -> tensor<8x3x8xf32> {
  %c = nn.constant {value = dense<0.25> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<8x3x8xf32>, tensor<8x5x8xf32>) -> tensor<8x3x5xf32>
  %1 = nn.add %0, %bias : (tensor<8x3x5xf32>, tensor<8x1x5xf32>) -> tensor<8x3x5xf32>
  %2 = nn.mul %1, %c : (tensor<8x3x5xf32>, tensor<f32>) -> tensor<8x3x5xf32>
  %3 = nn.softmax %2 {axis = 2 : i64} : (tensor<8x3x5xf32>) -> tensor<8x3x5xf32>
  %4 = nn.matmul %3, %v : (tensor<8x3x5xf32>, tensor<8x5x8xf32>) -> tensor<8x3x8xf32>
  return %4 : tensor<8x3x8xf32>
}

// -----

// CodeGen: the mask of f16 is added in f32 and divided with the product.
// CHECK-LABEL: func @mask_divided
// CHECK: %[[M:.*]] = nn.mul
// CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}}, %[[M]] {scale = 2.500000e-01 : f32}
// CHECK-NOT: nn.softmax
func.func @mask_divided(%q: tensor<1x8x3x16xf32>, %k: tensor<1x8x5x16xf32>, %v: tensor<1x8x5x16xf16>, %keep: tensor<1x1x3x5xi1>) -> tensor<1x8x3x16xf16> {
  %zero = nn.constant {value = dense<0.0> : tensor<f16>} : () -> tensor<f16>
  %low = nn.constant {value = dense<-65504.0> : tensor<f16>} : () -> tensor<f16>
  %c = nn.constant {value = dense<4.0> : tensor<f32>} : () -> tensor<f32>
  %m = nn.where %keep, %zero, %low : (tensor<1x1x3x5xi1>, tensor<f16>, tensor<f16>) -> tensor<1x1x3x5xf16>
  %w = nn.cast %m : (tensor<1x1x3x5xf16>) -> tensor<1x1x3x5xf32>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<1x8x3x16xf32>, tensor<1x8x5x16xf32>) -> tensor<1x8x3x5xf32>
  %1 = nn.add %0, %w : (tensor<1x8x3x5xf32>, tensor<1x1x3x5xf32>) -> tensor<1x8x3x5xf32>
  %2 = nn.div %1, %c : (tensor<1x8x3x5xf32>, tensor<f32>) -> tensor<1x8x3x5xf32>
  %3 = nn.softmax %2 {axis = 3 : i64} : (tensor<1x8x3x5xf32>) -> tensor<1x8x3x5xf32>
  %4 = nn.cast %3 : (tensor<1x8x3x5xf32>) -> tensor<1x8x3x5xf16>
  %5 = nn.matmul %4, %v : (tensor<1x8x3x5xf16>, tensor<1x8x5x16xf16>) -> tensor<1x8x3x16xf16>
  return %5 : tensor<1x8x3x16xf16>
}

// -----

// The number that masks, scaled, is near ordinary scores.
// CHECK-LABEL: func @faint_mask
// CHECK: nn.softmax
// MISS: {{.*}}raise-attention.mlir{{.*}}Missed{{.*}}the number that masks is no large negative one once it is scaled
func.func @faint_mask(%q: tensor<1x8x3x16xf32>, %k: tensor<1x8x5x16xf32>, %v: tensor<1x8x5x16xf32>, %keep: tensor<1x1x3x5xi1>) -> tensor<1x8x3x16xf32> {
  %low = nn.constant {value = dense<-1.0e4> : tensor<f32>} : () -> tensor<f32>
  %c = nn.constant {value = dense<0.01> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<1x8x3x16xf32>, tensor<1x8x5x16xf32>) -> tensor<1x8x3x5xf32>
  %1 = nn.where %keep, %0, %low : (tensor<1x1x3x5xi1>, tensor<1x8x3x5xf32>, tensor<f32>) -> tensor<1x8x3x5xf32>
  %2 = nn.mul %1, %c : (tensor<1x8x3x5xf32>, tensor<f32>) -> tensor<1x8x3x5xf32>
  %3 = nn.softmax %2 {axis = 3 : i64} : (tensor<1x8x3x5xf32>) -> tensor<1x8x3x5xf32>
  %4 = nn.matmul %3, %v : (tensor<1x8x3x5xf32>, tensor<1x8x5x16xf32>) -> tensor<1x8x3x16xf32>
  return %4 : tensor<1x8x3x16xf32>
}

// -----

// The probabilities are split unlike the scores.
// CHECK-LABEL: func @split_otherwise
// CHECK: nn.softmax
// MISS: {{.*}}raise-attention.mlir{{.*}}Missed{{.*}}the probabilities go to nn.reshape
func.func @split_otherwise(%q: tensor<8x3x8xf32>, %k: tensor<8x5x8xf32>, %v: tensor<4x2x5x8xf32>, %mask: tensor<2x1x3x5xf32>) -> tensor<4x2x3x8xf32> {
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<8x3x8xf32>, tensor<8x5x8xf32>) -> tensor<8x3x5xf32>
  %1 = nn.reshape %0 {shape = [2, 4, 3, 5]} : (tensor<8x3x5xf32>) -> tensor<2x4x3x5xf32>
  %2 = nn.add %1, %mask : (tensor<2x4x3x5xf32>, tensor<2x1x3x5xf32>) -> tensor<2x4x3x5xf32>
  %3 = nn.reshape %2 {shape = [8, 3, 5]} : (tensor<2x4x3x5xf32>) -> tensor<8x3x5xf32>
  %4 = nn.softmax %3 {axis = 2 : i64} : (tensor<8x3x5xf32>) -> tensor<8x3x5xf32>
  %5 = nn.reshape %4 {shape = [4, 2, 3, 5]} : (tensor<8x3x5xf32>) -> tensor<4x2x3x5xf32>
  %6 = nn.matmul %5, %v : (tensor<4x2x3x5xf32>, tensor<4x2x5x8xf32>) -> tensor<4x2x3x8xf32>
  return %6 : tensor<4x2x3x8xf32>
}

// -----

// The scores divided by a number of shape [1], the axis counted from the front.
// CHECK-LABEL: func @divided_scores
// CHECK-NEXT: nn.attention %{{.*}}, %{{.*}}, %{{.*}} {scale = 2.500000e-01 : f32}
// CHECK-NEXT: return
func.func @divided_scores(%q: tensor<1x4x8x16xf32>, %k: tensor<1x4x8x16xf32>, %v: tensor<1x4x8x16xf32>) -> tensor<1x4x8x16xf32> {
  %s = nn.constant {value = dense<4.0> : tensor<1xf32>} : () -> tensor<1xf32>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<1x4x8x16xf32>, tensor<1x4x8x16xf32>) -> tensor<1x4x8x8xf32>
  %1 = nn.div %0, %s : (tensor<1x4x8x8xf32>, tensor<1xf32>) -> tensor<1x4x8x8xf32>
  %2 = nn.softmax %1 {axis = 3 : i64} : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %3 = nn.matmul %2, %v : (tensor<1x4x8x8xf32>, tensor<1x4x8x16xf32>) -> tensor<1x4x8x16xf32>
  return %3 : tensor<1x4x8x16xf32>
}

// -----

// The scores leave the graph, which the attention does not need them for.
// CHECK-LABEL: func @scores_used
// CHECK-NEXT: %[[S:.*]] = nn.matmul
// CHECK-NEXT: %[[A:.*]] = nn.attention
// CHECK-NEXT: return %[[A]], %[[S]]
func.func @scores_used(%q: tensor<1x4x8x16xf32>, %k: tensor<1x4x8x16xf32>, %v: tensor<1x4x8x16xf32>) -> (tensor<1x4x8x16xf32>, tensor<1x4x8x8xf32>) {
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<1x4x8x16xf32>, tensor<1x4x8x16xf32>) -> tensor<1x4x8x8xf32>
  %2 = nn.softmax %0 {axis = -1 : i64} : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %3 = nn.matmul %2, %v : (tensor<1x4x8x8xf32>, tensor<1x4x8x16xf32>) -> tensor<1x4x8x16xf32>
  return %3, %0 : tensor<1x4x8x16xf32>, tensor<1x4x8x8xf32>
}

// -----

// Over the queries instead of the keys.
// CHECK-LABEL: func @other_axis
// CHECK-NOT: nn.attention
// CHECK: nn.softmax
// MISS: {{.*}}raise-attention.mlir{{.*}}Missed{{.*}}the softmax runs over another axis than the one that the nn.matmul with v sums over
func.func @other_axis(%q: tensor<1x4x8x16xf32>, %k: tensor<1x4x8x16xf32>, %v: tensor<1x4x8x16xf32>) -> tensor<1x4x8x16xf32> {
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<1x4x8x16xf32>, tensor<1x4x8x16xf32>) -> tensor<1x4x8x8xf32>
  %2 = nn.softmax %0 {axis = 2 : i64} : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %3 = nn.matmul %2, %v : (tensor<1x4x8x8xf32>, tensor<1x4x8x16xf32>) -> tensor<1x4x8x16xf32>
  return %3 : tensor<1x4x8x16xf32>
}

// -----

// CHECK-LABEL: func @log_softmax
// CHECK-NOT: nn.attention
// CHECK: nn.softmax
// MISS: {{.*}}raise-attention.mlir{{.*}}Missed{{.*}}the softmax is the logarithm of one
func.func @log_softmax(%q: tensor<1x4x8x16xf32>, %k: tensor<1x4x8x16xf32>, %v: tensor<1x4x8x16xf32>) -> tensor<1x4x8x16xf32> {
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<1x4x8x16xf32>, tensor<1x4x8x16xf32>) -> tensor<1x4x8x8xf32>
  %2 = nn.softmax %0 {axis = -1 : i64, log = true} : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %3 = nn.matmul %2, %v : (tensor<1x4x8x8xf32>, tensor<1x4x8x16xf32>) -> tensor<1x4x8x16xf32>
  return %3 : tensor<1x4x8x16xf32>
}

// -----

// Nobody reads the attention.
// CHECK-LABEL: func @dead
// CHECK-NEXT: return
func.func @dead(%q: tensor<1x4x8x16xf32>, %k: tensor<1x4x8x16xf32>, %v: tensor<1x4x8x16xf32>) -> tensor<1x4x8x16xf32> {
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<1x4x8x16xf32>, tensor<1x4x8x16xf32>) -> tensor<1x4x8x8xf32>
  %2 = nn.softmax %0 {axis = 3 : i64} : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %3 = nn.matmul %2, %v : (tensor<1x4x8x8xf32>, tensor<1x4x8x16xf32>) -> tensor<1x4x8x16xf32>
  return %v : tensor<1x4x8x16xf32>
}

// -----

// Nobody reads the probabilities.
// CHECK-LABEL: func @dead_softmax
// CHECK-NEXT: return
// MISS: {{.*}}raise-attention.mlir{{.*}}Missed{{.*}}the probabilities are used 0 times
func.func @dead_softmax(%q: tensor<1x4x8x16xf32>, %k: tensor<1x4x8x16xf32>) -> tensor<1x4x8x16xf32> {
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<1x4x8x16xf32>, tensor<1x4x8x16xf32>) -> tensor<1x4x8x8xf32>
  %2 = nn.softmax %0 {axis = -1 : i64} : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  return %q : tensor<1x4x8x16xf32>
}
