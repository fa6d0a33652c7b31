// Attention in windows whose scores a tensor multiplies, with the probabilities on the right, has the numbers of its ops.
// RUN: fusion-opt %s --fuse --target=sm_90a --verify-fusions -o - | FileCheck %s

// CHECK: nn.attention
func.func @main(%q: tensor<?x2x9x16xf32> {nn.name = "q", nn.dims = ["4*b", 2, 9, 16]}, %k: tensor<?x2x9x16xf32> {nn.name = "k", nn.dims = ["4*b", 2, 9, 16]}, %v: tensor<?x2x16x9xf32> {nn.name = "v", nn.dims = ["4*b", 2, 16, 9]},
                %t: tensor<2x1x1xf32> {nn.name = "t"}, %bias: tensor<1x2x9x9xf32> {nn.name = "bias"}, %mask: tensor<4x9x9xf32> {nn.name = "mask"}) -> (tensor<?x2x16x9xf32> {nn.name = "y"}) {
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<?x2x9x16xf32>, tensor<?x2x9x16xf32>) -> tensor<?x2x9x9xf32>
  %st = nn.mul %s, %t : (tensor<?x2x9x9xf32>, tensor<2x1x1xf32>) -> tensor<?x2x9x9xf32>
  %sb = nn.add %st, %bias : (tensor<?x2x9x9xf32>, tensor<1x2x9x9xf32>) -> tensor<?x2x9x9xf32>
  %s5 = nn.reshape %sb {shape = ["b", 4, 2, 9, 9]} : (tensor<?x2x9x9xf32>) -> tensor<?x4x2x9x9xf32>
  %m5 = nn.reshape %mask {shape = [1, 4, 1, 9, 9]} : (tensor<4x9x9xf32>) -> tensor<1x4x1x9x9xf32>
  %sm = nn.add %s5, %m5 : (tensor<?x4x2x9x9xf32>, tensor<1x4x1x9x9xf32>) -> tensor<?x4x2x9x9xf32>
  %s4 = nn.reshape %sm {shape = ["4*b", 2, 9, 9]} : (tensor<?x4x2x9x9xf32>) -> tensor<?x2x9x9xf32>
  %p = nn.softmax %s4 {axis = 3 : i64} : (tensor<?x2x9x9xf32>) -> tensor<?x2x9x9xf32>
  %o = nn.matmul %v, %p {transpose_b = true} : (tensor<?x2x16x9xf32>, tensor<?x2x9x9xf32>) -> tensor<?x2x16x9xf32>
  return %o : tensor<?x2x16x9xf32>
}
