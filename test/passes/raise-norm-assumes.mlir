// What a norm with statistics of f16 assumes is in the report, and may be forbidden.
// RUN: fusion-opt %s --fuse --report=%t.md -o - | FileCheck %s
// RUN: FileCheck %s --check-prefix=WHY < %t.md
// RUN: fusion-opt %s --fuse --no-assume-finite --report=%t.strict.md -o - | FileCheck %s --check-prefix=STRICT
// RUN: FileCheck %s --check-prefix=MISS < %t.strict.md

// CHECK: nn.rms_norm
// WHY: rms_norm found at {{.*}}: squares and their mean are finite in f16, to which the graph rounds them; here they are computed in f32
// STRICT-NOT: nn.rms_norm
// MISS: rms_norm missed at {{.*}}: statistics are computed in f16, not in f32
func.func @converted(%x: tensor<2x5x64xf16>, %w: tensor<64xf16>) -> tensor<2x5x64xf16> {
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f16>} : () -> tensor<f16>
  %one = nn.constant {value = dense<1.0> : tensor<f16>} : () -> tensor<f16>
  %0 = nn.square %x : (tensor<2x5x64xf16>) -> tensor<2x5x64xf16>
  %1 = nn.reduce %0 {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x5x64xf16>) -> tensor<2x5x1xf16>
  %2 = nn.add %1, %eps : (tensor<2x5x1xf16>, tensor<f16>) -> tensor<2x5x1xf16>
  %3 = nn.sqrt %2 : (tensor<2x5x1xf16>) -> tensor<2x5x1xf16>
  %4 = nn.div %one, %3 : (tensor<f16>, tensor<2x5x1xf16>) -> tensor<2x5x1xf16>
  %5 = nn.mul %x, %4 : (tensor<2x5x64xf16>, tensor<2x5x1xf16>) -> tensor<2x5x64xf16>
  %6 = nn.mul %w, %5 : (tensor<64xf16>, tensor<2x5x64xf16>) -> tensor<2x5x64xf16>
  return %6 : tensor<2x5x64xf16>
}
