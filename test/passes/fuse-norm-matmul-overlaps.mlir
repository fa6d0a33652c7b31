// RUN: fusion-opt %s --fuse 2>/dev/null | FileCheck %s

// For one row all of it is one kernel, which add_norm and gated_matmul would have shared.
// CHECK-LABEL: @main
// CHECK: fusion.group "norm_matmul"
// CHECK-COUNT-2: nn.matmul
// CHECK: nn.mul
// CHECK: fusion.yield
// CHECK-NOT: fusion.group
func.func @main(%x: tensor<1x128xf16>, %r: tensor<1x128xf16>, %g: tensor<128xf16>, %a: tensor<128x64xf16>, %b: tensor<128x64xf16>) -> (tensor<1x128xf16>, tensor<1x64xf16>) {
  %s = nn.add %x, %r : (tensor<1x128xf16>, tensor<1x128xf16>) -> tensor<1x128xf16>
  %n = nn.rms_norm %s, %g {eps = 1.0e-6 : f32} : (tensor<1x128xf16>, tensor<128xf16>) -> tensor<1x128xf16>
  %0 = nn.matmul %n, %a : (tensor<1x128xf16>, tensor<128x64xf16>) -> tensor<1x64xf16>
  %1 = nn.matmul %n, %b : (tensor<1x128xf16>, tensor<128x64xf16>) -> tensor<1x64xf16>
  %2 = nn.silu %0 : (tensor<1x64xf16>) -> tensor<1x64xf16>
  %3 = nn.mul %2, %1 : (tensor<1x64xf16>, tensor<1x64xf16>) -> tensor<1x64xf16>
  return %s, %3 : tensor<1x128xf16>, tensor<1x64xf16>
}
