// q, k and v lie in a dim of their own, as ModernBERT has them: the halves of one stay halves of it.
// RUN: fusion-opt %s --fuse --target=sm_90a --verify-fusions -o - | FileCheck %s

// CHECK: nn.rope
// CHECK-NOT: nn.neg
// CHECK: return
func.func @main(%qkv: tensor<?x3x4x?x16xf32> {nn.name = "qkv", nn.dims = ["b", 3, 4, "s", 16]},
    %cos: tensor<1x1x?x16xf32> {nn.name = "cos", nn.dims = [1, 1, "s", 16]},
    %sin: tensor<1x1x?x16xf32> {nn.name = "sin", nn.dims = [1, 1, "s", 16]}) -> (tensor<?x4x?x16xf32> {nn.name = "y"}) {
  %part = nn.slice %qkv {starts = [0, 1, 0, 0, 0], sizes = ["b", 1, 4, "s", 16], steps = array<i64: 1, 1, 1, 1, 1>} : (tensor<?x3x4x?x16xf32>) -> tensor<?x1x4x?x16xf32>
  %k = nn.reshape %part {shape = ["b", 4, "s", 16]} : (tensor<?x1x4x?x16xf32>) -> tensor<?x4x?x16xf32>
  %first = nn.slice %k {starts = [0, 0, 0, 0], sizes = ["b", 4, "s", 8], steps = array<i64: 1, 1, 1, 1>} : (tensor<?x4x?x16xf32>) -> tensor<?x4x?x8xf32>
  %second = nn.slice %k {starts = [0, 0, 0, 8], sizes = ["b", 4, "s", 8], steps = array<i64: 1, 1, 1, 1>} : (tensor<?x4x?x16xf32>) -> tensor<?x4x?x8xf32>
  %neg = nn.neg %second : (tensor<?x4x?x8xf32>) -> tensor<?x4x?x8xf32>
  %turned = nn.concat %neg, %first {axis = 3 : i64} : (tensor<?x4x?x8xf32>, tensor<?x4x?x8xf32>) -> tensor<?x4x?x16xf32>
  %c = nn.mul %k, %cos : (tensor<?x4x?x16xf32>, tensor<1x1x?x16xf32>) -> tensor<?x4x?x16xf32>
  %s = nn.mul %turned, %sin : (tensor<?x4x?x16xf32>, tensor<1x1x?x16xf32>) -> tensor<?x4x?x16xf32>
  %y = nn.add %c, %s : (tensor<?x4x?x16xf32>, tensor<?x4x?x16xf32>) -> tensor<?x4x?x16xf32>
  return %y : tensor<?x4x?x16xf32>
}
