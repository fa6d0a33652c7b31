// fusion-opt matmul_arg_max.mlir --fuse --profit=model --require=matmul_arg_max=1
func.func @matmul_arg_max(%x: tensor<?x2048xbf16> {nn.name = "x", nn.dims = ["rows", 2048]},
                          %w: tensor<128256x2048xbf16> {nn.name = "w"})
    -> (tensor<?xi64> {nn.name = "ids"}) {
  %logits = nn.matmul %x, %w {transpose_b = true}
      : (tensor<?x2048xbf16>, tensor<128256x2048xbf16>) -> tensor<?x128256xbf16>
  %ids = nn.arg_max %logits {axis = 1 : i64, keepdims = false} : (tensor<?x128256xbf16>) -> tensor<?xi64>
  return %ids : tensor<?xi64>
}
