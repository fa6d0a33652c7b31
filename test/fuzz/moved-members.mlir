// Elementwise ops that are joined: a group before theirs moves one of them behind the others.
// RUN: fusion-fuzz %s --seed=457402
// RUN: fusion-opt %s --fuse --target=sm_90a | FileCheck %s
// CHECK: fusion.group "pointwise"
// CHECK: nn.reduce
// CHECK: fusion.group "pointwise"
// CHECK-DAG: nn.exp
// CHECK-DAG: nn.mul

func.func @main(%v0: tensor<2x3x1xbf16> {nn.dims = [2, 3, 1], nn.name = "v0"},
    %v10: tensor<1xbf16> {nn.dims = [1], nn.name = "v10"},
    %v22: tensor<2x3x1xbf16> {nn.dims = [2, 3, 1], nn.name = "v22"},
    %v29: tensor<2x3x1xbf16> {nn.dims = [2, 3, 1], nn.name = "v29"},
    %v30: tensor<2x3x1xi1> {nn.dims = [2, 3, 1], nn.name = "v30"})
    -> (tensor<2x3x1xbf16>, tensor<2x3x1xbf16>, tensor<2x3x1xbf16>, tensor<2x3x1xbf16>) {
  %v3 = nn.add %v0, %v22 : (tensor<2x3x1xbf16>, tensor<2x3x1xbf16>) -> (tensor<2x3x1xbf16>)
  %v4 = nn.mul %v0, %v0 : (tensor<2x3x1xbf16>, tensor<2x3x1xbf16>) -> (tensor<2x3x1xbf16>)
  %v5 = nn.reduce %v4 {kind = "mean", axes = array<i64: -1>, keepdims = true} : (tensor<2x3x1xbf16>) -> (tensor<2x3x1xbf16>)
  %v11 = nn.mul %v5, %v10 : (tensor<2x3x1xbf16>, tensor<1xbf16>) -> (tensor<2x3x1xbf16>)
  %v17 = nn.exp %v29 : (tensor<2x3x1xbf16>) -> (tensor<2x3x1xbf16>)
  %v21 = nn.where %v30, %v3, %v0 : (tensor<2x3x1xi1>, tensor<2x3x1xbf16>, tensor<2x3x1xbf16>) -> (tensor<2x3x1xbf16>)
  return %v3, %v11, %v17, %v21 : tensor<2x3x1xbf16>, tensor<2x3x1xbf16>, tensor<2x3x1xbf16>, tensor<2x3x1xbf16>
}
