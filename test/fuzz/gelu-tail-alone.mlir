// A row of one element in the tail of a GELU, where 1 + erf(x) has the roundings of 1.
// RUN: fusion-fuzz %s --seed=423192 --device=emulate

func.func @main(%v31: tensor<32x1xf32> {nn.dims = [32, 1], nn.name = "v31"},
    %v40: tensor<6x20x1x32xf32> {nn.dims = [6, 20, 1, 32], nn.name = "v40"})
    -> (tensor<6x20x1x1xf32>) {
  %v32 = nn.matmul %v40, %v31 : (tensor<6x20x1x32xf32>, tensor<32x1xf32>) -> (tensor<6x20x1x1xf32>)
  %v34 = nn.gelu %v32 : (tensor<6x20x1x1xf32>) -> (tensor<6x20x1x1xf32>)
  return %v34 : tensor<6x20x1x1xf32>
}
