// RUN: fusion-opt %s --fuse-embedding-norm --split-input-file 2>/dev/null | FileCheck %s

// A decoder's: the rows are the residual, too.
// CHECK-LABEL: @decoder
// CHECK: %[[G:.*]]:2 = fusion.group "embedding_norm" schedule "row"
// CHECK-NEXT: nn.gather
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: fusion.yield
// CHECK: return %[[G]]#0, %[[G]]#1
func.func @decoder(%i: tensor<?x1xi64>, %t: tensor<1000x128xbf16>, %g: tensor<128xbf16>) -> (tensor<?x1x128xbf16>, tensor<?x1x128xbf16>) {
  %0 = nn.gather %t, %i {axis = 0 : i64} : (tensor<1000x128xbf16>, tensor<?x1xi64>) -> tensor<?x1x128xbf16>
  %1 = nn.rms_norm %0, %g {eps = 1.0e-6 : f32} : (tensor<?x1x128xbf16>, tensor<128xbf16>) -> tensor<?x1x128xbf16>
  return %0, %1 : tensor<?x1x128xbf16>, tensor<?x1x128xbf16>
}

// -----

// Gemma scales its rows, and rounds the scale.
// CHECK-LABEL: @scaled
// CHECK: fusion.group "embedding_norm"
// CHECK: nn.gather
// CHECK: nn.mul
// CHECK: nn.rms_norm {{.*}}weight_bias = 1.000000e+00
// CHECK: fusion.yield
func.func @scaled(%i: tensor<2x8xi64>, %t: tensor<1000x128xbf16>, %g: tensor<128xbf16>) -> (tensor<2x8x128xbf16>, tensor<2x8x128xbf16>) {
  %s = nn.constant {value = dense<1.131250e+01> : tensor<bf16>} : () -> tensor<bf16>
  %0 = nn.gather %t, %i {axis = 0 : i64} : (tensor<1000x128xbf16>, tensor<2x8xi64>) -> tensor<2x8x128xbf16>
  %1 = nn.mul %0, %s : (tensor<2x8x128xbf16>, tensor<bf16>) -> tensor<2x8x128xbf16>
  %2 = nn.rms_norm %1, %g {eps = 1.0e-6 : f32, weight_bias = 1.0 : f32} : (tensor<2x8x128xbf16>, tensor<128xbf16>) -> tensor<2x8x128xbf16>
  return %1, %2 : tensor<2x8x128xbf16>, tensor<2x8x128xbf16>
}

// -----

// BERT: words, their kind, and a row of another table for each position.
// CHECK-LABEL: @bert
// CHECK: fusion.group "embedding_norm"
// CHECK-COUNT-2: nn.gather
// CHECK: nn.layer_norm
// CHECK-NEXT: fusion.yield
func.func @bert(%i: tensor<2x8xi64>, %k: tensor<2x8xi64>, %t: tensor<1000x128xf32>, %u: tensor<2x128xf32>, %p: tensor<8x128xf32>,
                %g: tensor<128xf32>, %b: tensor<128xf32>) -> tensor<2x8x128xf32> {
  %0 = nn.gather %t, %i {axis = 0 : i64} : (tensor<1000x128xf32>, tensor<2x8xi64>) -> tensor<2x8x128xf32>
  %1 = nn.gather %u, %k {axis = 0 : i64} : (tensor<2x128xf32>, tensor<2x8xi64>) -> tensor<2x8x128xf32>
  %2 = nn.add %0, %1 : (tensor<2x8x128xf32>, tensor<2x8x128xf32>) -> tensor<2x8x128xf32>
  %3 = nn.add %2, %p : (tensor<2x8x128xf32>, tensor<8x128xf32>) -> tensor<2x8x128xf32>
  %4 = nn.layer_norm %3, %g, %b {eps = 1.0e-5 : f32} : (tensor<2x8x128xf32>, tensor<128xf32>, tensor<128xf32>) -> tensor<2x8x128xf32>
  return %4 : tensor<2x8x128xf32>
}

// -----

// A sum with what is computed otherwise is no embedding.
// CHECK-LABEL: @later
// CHECK-NOT: "embedding_norm"
func.func @later(%i: tensor<2x8xi64>, %t: tensor<1000x128xf32>, %x: tensor<2x8x128xf32>, %w: tensor<128x128xf32>, %g: tensor<128xf32>) -> tensor<2x8x128xf32> {
  %0 = nn.gather %t, %i {axis = 0 : i64} : (tensor<1000x128xf32>, tensor<2x8xi64>) -> tensor<2x8x128xf32>
  %1 = nn.matmul %x, %w : (tensor<2x8x128xf32>, tensor<128x128xf32>) -> tensor<2x8x128xf32>
  %2 = nn.add %0, %1 : (tensor<2x8x128xf32>, tensor<2x8x128xf32>) -> tensor<2x8x128xf32>
  %3 = nn.rms_norm %2, %g {eps = 1.0e-5 : f32} : (tensor<2x8x128xf32>, tensor<128xf32>) -> tensor<2x8x128xf32>
  return %3 : tensor<2x8x128xf32>
}

// -----

// Columns of a table, which are no rows.
// CHECK-LABEL: @columns
// CHECK-NOT: "embedding_norm"
func.func @columns(%i: tensor<128xi64>, %t: tensor<16x1000xf32>, %g: tensor<128xf32>) -> tensor<16x128xf32> {
  %0 = nn.gather %t, %i {axis = 1 : i64} : (tensor<16x1000xf32>, tensor<128xi64>) -> tensor<16x128xf32>
  %1 = nn.rms_norm %0, %g {eps = 1.0e-5 : f32} : (tensor<16x128xf32>, tensor<128xf32>) -> tensor<16x128xf32>
  return %1 : tensor<16x128xf32>
}

// -----

// What computes the numbers stays outside.
// CHECK-LABEL: @computed_numbers
// CHECK: nn.add
// CHECK-NEXT: fusion.group "embedding_norm"
// CHECK-NEXT: nn.gather
func.func @computed_numbers(%i: tensor<8xi64>, %k: tensor<8xi64>, %t: tensor<1000x128xf32>, %g: tensor<128xf32>) -> tensor<8x128xf32> {
  %n = nn.neg %k : (tensor<8xi64>) -> tensor<8xi64>
  %j = nn.add %i, %n : (tensor<8xi64>, tensor<8xi64>) -> tensor<8xi64>
  %0 = nn.gather %t, %j {axis = 0 : i64} : (tensor<1000x128xf32>, tensor<8xi64>) -> tensor<8x128xf32>
  %1 = nn.rms_norm %0, %g {eps = 1.0e-5 : f32} : (tensor<8x128xf32>, tensor<128xf32>) -> tensor<8x128xf32>
  return %1 : tensor<8x128xf32>
}
