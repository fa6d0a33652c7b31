// Halves in a dim of their own, as diffusers takes them apart: the rotation of the whole.
// RUN: fusion-opt %s --fuse --target=sm_90a --verify-fusions -o - | FileCheck %s

// CHECK: nn.rope {{.*}} {interleaved = false, rotary_dim = 16 : i64}
// CHECK-NOT: nn.neg
// CHECK: return
func.func @main(%x: tensor<?x4x?x16xf32> {nn.name = "x", nn.dims = ["b", 4, "s", 16]},
    %cos: tensor<1x1x?x16xf32> {nn.name = "cos", nn.dims = [1, 1, "s", 16]},
    %sin: tensor<1x1x?x16xf32> {nn.name = "sin", nn.dims = [1, 1, "s", 16]}) -> (tensor<?x4x?x16xf32> {nn.name = "y"}) {
  %halves = nn.reshape %x {shape = ["b", 4, "s", 2, 8]} : (tensor<?x4x?x16xf32>) -> tensor<?x4x?x2x8xf32>
  %h0 = nn.slice %halves {starts = [0, 0, 0, 0, 0], sizes = ["b", 4, "s", 1, 8], steps = array<i64: 1, 1, 1, 1, 1>} : (tensor<?x4x?x2x8xf32>) -> tensor<?x4x?x1x8xf32>
  %h1 = nn.slice %halves {starts = [0, 0, 0, 1, 0], sizes = ["b", 4, "s", 1, 8], steps = array<i64: 1, 1, 1, 1, 1>} : (tensor<?x4x?x2x8xf32>) -> tensor<?x4x?x1x8xf32>
  %first = nn.reshape %h0 {shape = ["b", 4, "s", 8]} : (tensor<?x4x?x1x8xf32>) -> tensor<?x4x?x8xf32>
  %second = nn.reshape %h1 {shape = ["b", 4, "s", 8]} : (tensor<?x4x?x1x8xf32>) -> tensor<?x4x?x8xf32>
  %neg = nn.neg %second : (tensor<?x4x?x8xf32>) -> tensor<?x4x?x8xf32>
  %turned = nn.concat %neg, %first {axis = 3 : i64} : (tensor<?x4x?x8xf32>, tensor<?x4x?x8xf32>) -> tensor<?x4x?x16xf32>
  %c = nn.mul %x, %cos : (tensor<?x4x?x16xf32>, tensor<1x1x?x16xf32>) -> tensor<?x4x?x16xf32>
  %s = nn.mul %turned, %sin : (tensor<?x4x?x16xf32>, tensor<1x1x?x16xf32>) -> tensor<?x4x?x16xf32>
  %y = nn.add %c, %s : (tensor<?x4x?x16xf32>, tensor<?x4x?x16xf32>) -> tensor<?x4x?x16xf32>
  return %y : tensor<?x4x?x16xf32>
}
