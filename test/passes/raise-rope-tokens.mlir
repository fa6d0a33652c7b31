// Tokens beside those that rotate, as a class token before the patches: one rotation with longer tables.
// RUN: fusion-opt %s --nn-canonicalize --nn-raise-rope | FileCheck %s
// RUN: fusion-opt %s --nn-canonicalize --nn-raise-rope=assume-finite=false | FileCheck %s --check-prefix=EXACT
// RUN: fusion-opt %s --fuse --target=sm_90a --verify-fusions --report=%t.md -o /dev/null && FileCheck %s --check-prefix=REPORT --input-file=%t.md

// CHECK-LABEL: func @main
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<2x4x9x16xf32> {{.*}}, %[[COS:[a-z0-9]*]]: tensor<6x16xf32> {{.*}}, %[[SIN:[a-z0-9]*]]: tensor<6x16xf32>
// CHECK: %[[ONE:.*]] = nn.constant {value = dense<1.000000e+00> : tensor<f32>}
// CHECK: %[[C1:.*]] = nn.expand %[[ONE]] {shape = [1, 16]}
// CHECK: %[[C2:.*]] = nn.expand %[[ONE]] {shape = [2, 16]}
// CHECK: %[[C:.*]] = nn.concat %[[C1]], %[[COS]], %[[C2]] {axis = 0 : i64}
// CHECK: %[[S:.*]] = nn.concat %{{.*}}, %[[SIN]], %{{.*}} {axis = 0 : i64}
// CHECK: %[[Y:.*]] = nn.rope %[[X]], %[[C]], %[[S]] {interleaved = false, rotary_dim = 16 : i64}
// CHECK-NEXT: return %[[Y]]
// EXACT: %[[Y:.*]] = nn.rope %{{.*}} : (tensor<2x4x6x16xf32>
// EXACT: nn.concat %{{.*}}, %[[Y]], %{{.*}} {axis = 2 : i64}
// REPORT: tokens that do not rotate are finite
func.func @main(%x: tensor<2x4x9x16xf32> {nn.name = "x"}, %cos: tensor<6x16xf32> {nn.name = "cos"}, %sin: tensor<6x16xf32> {nn.name = "sin"}) -> (tensor<2x4x9x16xf32> {nn.name = "y"}) {
  %class = nn.slice %x {starts = [0, 0, 0, 0], sizes = [2, 4, 1, 16], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x9x16xf32>) -> tensor<2x4x1x16xf32>
  %patches = nn.slice %x {starts = [0, 0, 1, 0], sizes = [2, 4, 6, 16], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x9x16xf32>) -> tensor<2x4x6x16xf32>
  %last = nn.slice %x {starts = [0, 0, 7, 0], sizes = [2, 4, 2, 16], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x9x16xf32>) -> tensor<2x4x2x16xf32>
  %first = nn.slice %patches {starts = [0, 0, 0, 0], sizes = [2, 4, 6, 8], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x6x16xf32>) -> tensor<2x4x6x8xf32>
  %second = nn.slice %patches {starts = [0, 0, 0, 8], sizes = [2, 4, 6, 8], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x6x16xf32>) -> tensor<2x4x6x8xf32>
  %neg = nn.neg %second : (tensor<2x4x6x8xf32>) -> tensor<2x4x6x8xf32>
  %turned = nn.concat %neg, %first {axis = 3 : i64} : (tensor<2x4x6x8xf32>, tensor<2x4x6x8xf32>) -> tensor<2x4x6x16xf32>
  %c = nn.mul %patches, %cos : (tensor<2x4x6x16xf32>, tensor<6x16xf32>) -> tensor<2x4x6x16xf32>
  %s = nn.mul %turned, %sin : (tensor<2x4x6x16xf32>, tensor<6x16xf32>) -> tensor<2x4x6x16xf32>
  %r = nn.add %c, %s : (tensor<2x4x6x16xf32>, tensor<2x4x6x16xf32>) -> tensor<2x4x6x16xf32>
  %y = nn.concat %class, %r, %last {axis = 2 : i64} : (tensor<2x4x1x16xf32>, tensor<2x4x6x16xf32>, tensor<2x4x2x16xf32>) -> tensor<2x4x9x16xf32>
  return %y : tensor<2x4x9x16xf32>
}
