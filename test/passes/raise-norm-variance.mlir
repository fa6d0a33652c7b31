// The variance as mean(x^2) - mean(x)^2, not below 0, as Flax has it. The report says what the norm computes otherwise.
// RUN: fusion-opt %s --fuse --report=%t.md -o - | FileCheck %s
// RUN: FileCheck %s --check-prefix=WHY < %t.md
// RUN: fusion-opt %s --fuse --no-assume-finite --report=%t.strict.md -o - | FileCheck %s --check-prefix=STRICT
// RUN: FileCheck %s --check-prefix=WHYNOT < %t.strict.md

// WHY: layer_norm found at {{.*}}: mean(x^2) - mean(x)^2 is the variance, which is computed of x - mean(x) here

// STRICT-LABEL: func @main
// STRICT-NOT: nn.layer_norm
// WHYNOT: it would take for granted, which --no-assume-finite forbids: mean(x^2) - mean(x)^2 is the variance

// CHECK-LABEL: func @main
// CHECK: nn.layer_norm %{{.*}} {eps = 9.99999997E-7 : f32}
// CHECK-NOT: nn.reduce
// CHECK: return
func.func @main(%x: tensor<2x5x64xf32>, %w: tensor<64xf32>, %b: tensor<64xf32>) -> tensor<2x5x64xf32> {
  %eps = nn.constant {value = dense<1.0e-6> : tensor<f32>} : () -> tensor<f32>
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %mean = nn.reduce %x {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x5x64xf32>) -> tensor<2x5x1xf32>
  %0 = nn.mul %x, %x : (tensor<2x5x64xf32>, tensor<2x5x64xf32>) -> tensor<2x5x64xf32>
  %1 = nn.reduce %0 {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x5x64xf32>) -> tensor<2x5x1xf32>
  %2 = nn.mul %mean, %mean : (tensor<2x5x1xf32>, tensor<2x5x1xf32>) -> tensor<2x5x1xf32>
  %3 = nn.sub %1, %2 : (tensor<2x5x1xf32>, tensor<2x5x1xf32>) -> tensor<2x5x1xf32>
  %4 = nn.max %3, %zero : (tensor<2x5x1xf32>, tensor<f32>) -> tensor<2x5x1xf32>
  %5 = nn.add %4, %eps : (tensor<2x5x1xf32>, tensor<f32>) -> tensor<2x5x1xf32>
  %6 = nn.rsqrt %5 : (tensor<2x5x1xf32>) -> tensor<2x5x1xf32>
  %7 = nn.mul %6, %w : (tensor<2x5x1xf32>, tensor<64xf32>) -> tensor<2x5x64xf32>
  %8 = nn.sub %x, %mean : (tensor<2x5x64xf32>, tensor<2x5x1xf32>) -> tensor<2x5x64xf32>
  %9 = nn.mul %8, %7 : (tensor<2x5x64xf32>, tensor<2x5x64xf32>) -> tensor<2x5x64xf32>
  %10 = nn.add %9, %b : (tensor<2x5x64xf32>, tensor<64xf32>) -> tensor<2x5x64xf32>
  return %10 : tensor<2x5x64xf32>
}
