// fusion-opt scaled_matmul.mlir --fuse --profit=model --require=scaled_matmul=1
func.func @scaled_matmul(%x: tensor<?x4096xi8> {nn.name = "x", nn.dims = ["rows", 4096]},
                         %scale_x: tensor<f32> {nn.name = "scale_x"},
                         %w: tensor<4096x4096xi8> {nn.name = "w"},
                         %scale_w: tensor<4096xf32> {nn.name = "scale_w"})
    -> (tensor<?x4096xf32> {nn.name = "y"}) {
  %a = nn.dequantize %x, %scale_x : (tensor<?x4096xi8>, tensor<f32>) -> tensor<?x4096xf32>
  %b = nn.dequantize %w, %scale_w {axis = 1 : i64}
      : (tensor<4096x4096xi8>, tensor<4096xf32>) -> tensor<4096x4096xf32>
  %y = nn.matmul %a, %b : (tensor<?x4096xf32>, tensor<4096x4096xf32>) -> tensor<?x4096xf32>
  return %y : tensor<?x4096xf32>
}
