// RUN: fusion-opt %s --fuse --profit=model 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-norm-matmul 2>/dev/null | FileCheck %s --check-prefix=ALONE
// RUN: fusion-opt %s --fuse --profit=model --report=%t.md -o /dev/null && FileCheck %s --check-prefix=MISS --input-file=%t.md

// For one row all of it could be one kernel; unless a measurement says so, it is the two that add_norm and gated_matmul
// make.
// CHECK-LABEL: @main
// CHECK: fusion.group "add_norm"
// CHECK: fusion.group "gated_matmul"
// ALONE-LABEL: @main
// ALONE: fusion.group "norm_matmul"
// ALONE-COUNT-2: nn.matmul
// ALONE: fusion.yield
// ALONE-NOT: fusion.group
// ALONE: return
// MISS: every block computes the norm again before its first nn.matmul: taken only where a measurement shows that this is faster
func.func @main(%x: tensor<1x128xf32>, %r: tensor<1x128xf32>, %g: tensor<128xf32>, %a: tensor<128x64xf32>, %b: tensor<128x64xf32>) -> (tensor<1x128xf32>, tensor<1x64xf32>) {
  %s = nn.add %x, %r : (tensor<1x128xf32>, tensor<1x128xf32>) -> tensor<1x128xf32>
  %n = nn.rms_norm %s, %g {eps = 1.0e-6 : f32} : (tensor<1x128xf32>, tensor<128xf32>) -> tensor<1x128xf32>
  %0 = nn.matmul %n, %a : (tensor<1x128xf32>, tensor<128x64xf32>) -> tensor<1x64xf32>
  %1 = nn.matmul %n, %b : (tensor<1x128xf32>, tensor<128x64xf32>) -> tensor<1x64xf32>
  %2 = nn.silu %0 : (tensor<1x64xf32>) -> tensor<1x64xf32>
  %3 = nn.mul %2, %1 : (tensor<1x64xf32>, tensor<1x64xf32>) -> tensor<1x64xf32>
  return %s, %3 : tensor<1x128xf32>, tensor<1x64xf32>
}
