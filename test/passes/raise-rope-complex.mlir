// Products of complex numbers, real and imaginary parts in a last dim of 1: one rotation of pairs.
// RUN: fusion-opt %s --nn-canonicalize --nn-raise-rope | FileCheck %s
// RUN: fusion-opt %s --fuse --target=sm_90a --verify-fusions -o /dev/null

// CHECK-LABEL: func @main
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<2x?x4x16xf32> {{.*}}, %[[COS:[a-z0-9]*]]: tensor<?x1x8x1xf32> {{.*}}, %[[SIN:[a-z0-9]*]]: tensor<?x1x8x1xf32>
// CHECK-DAG: %[[C:.*]] = nn.reshape %[[COS]] {shape = ["s", 1, 8]}
// CHECK-DAG: %[[S:.*]] = nn.reshape %[[SIN]] {shape = ["s", 1, 8]}
// CHECK: %[[Y:.*]] = nn.rope %[[X]], %[[C]], %[[S]] {interleaved = true, rotary_dim = 16 : i64}
// CHECK-NEXT: return %[[Y]]
func.func @main(%x: tensor<2x?x4x16xf32> {nn.name = "x", nn.dims = [2, "s", 4, 16]}, %cos: tensor<?x1x8x1xf32> {nn.name = "cos", nn.dims = ["s", 1, 8, 1]},
    %sin: tensor<?x1x8x1xf32> {nn.name = "sin", nn.dims = ["s", 1, 8, 1]}) -> (tensor<2x?x4x16xf32> {nn.name = "y"}) {
  %pairs = nn.reshape %x {shape = [2, "s", 4, 8, 2]} : (tensor<2x?x4x16xf32>) -> tensor<2x?x4x8x2xf32>
  %re = nn.slice %pairs {starts = [0, 0, 0, 0, 0], sizes = [2, "s", 4, 8, 1], steps = array<i64: 1, 1, 1, 1, 1>} : (tensor<2x?x4x8x2xf32>) -> tensor<2x?x4x8x1xf32>
  %im = nn.slice %pairs {starts = [0, 0, 0, 0, 1], sizes = [2, "s", 4, 8, 1], steps = array<i64: 1, 1, 1, 1, 1>} : (tensor<2x?x4x8x2xf32>) -> tensor<2x?x4x8x1xf32>
  %0 = nn.mul %re, %cos : (tensor<2x?x4x8x1xf32>, tensor<?x1x8x1xf32>) -> tensor<2x?x4x8x1xf32>
  %1 = nn.mul %im, %sin : (tensor<2x?x4x8x1xf32>, tensor<?x1x8x1xf32>) -> tensor<2x?x4x8x1xf32>
  %2 = nn.mul %re, %sin : (tensor<2x?x4x8x1xf32>, tensor<?x1x8x1xf32>) -> tensor<2x?x4x8x1xf32>
  %3 = nn.mul %im, %cos : (tensor<2x?x4x8x1xf32>, tensor<?x1x8x1xf32>) -> tensor<2x?x4x8x1xf32>
  %real = nn.sub %0, %1 : (tensor<2x?x4x8x1xf32>, tensor<2x?x4x8x1xf32>) -> tensor<2x?x4x8x1xf32>
  %imaginary = nn.add %2, %3 : (tensor<2x?x4x8x1xf32>, tensor<2x?x4x8x1xf32>) -> tensor<2x?x4x8x1xf32>
  %both = nn.concat %real, %imaginary {axis = 4 : i64} : (tensor<2x?x4x8x1xf32>, tensor<2x?x4x8x1xf32>) -> tensor<2x?x4x8x2xf32>
  %y = nn.reshape %both {shape = [2, "s", 4, 16]} : (tensor<2x?x4x8x2xf32>) -> tensor<2x?x4x16xf32>
  return %y : tensor<2x?x4x16xf32>
}
