// GELU of -9 is about -4e-18, or 0 where a kernel takes 1 - 1: an infinite factor makes an infinity of the one
// and NaN of the other.
// RUN: fusion-fuzz %s --seed=130125 --device=emulate

func.func @main(%v7: tensor<?x1xi64> {nn.dims = ["s", 1], nn.name = "index_v7"},
    %v11: tensor<8x64x32xf32> {nn.dims = [8, 64, 32], nn.name = "v11"},
    %v24: tensor<?x1x32xf32> {nn.dims = ["s", 1, 32], nn.name = "v24"})
    -> (tensor<?x1x32xf32>) {
  %v12 = nn.expert_matmul %v24, %v11, %v7 {transpose_w = true} : (tensor<?x1x32xf32>, tensor<8x64x32xf32>, tensor<?x1xi64>) -> (tensor<?x1x64xf32>)
  %v13 = nn.slice %v12 {starts = [0, 0, 0], sizes = ["s", 1, 32], steps = array<i64: 1, 1, 1>} : (tensor<?x1x64xf32>) -> (tensor<?x1x32xf32>)
  %v14 = nn.gelu %v13 : (tensor<?x1x32xf32>) -> (tensor<?x1x32xf32>)
  %v15 = nn.slice %v12 {starts = [0, 0, 32], sizes = ["s", 1, 32], steps = array<i64: 1, 1, 1>} : (tensor<?x1x64xf32>) -> (tensor<?x1x32xf32>)
  %v16 = nn.mul %v14, %v15 : (tensor<?x1x32xf32>, tensor<?x1x32xf32>) -> (tensor<?x1x32xf32>)
  return %v16 : tensor<?x1x32xf32>
}

