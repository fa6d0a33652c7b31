// fusion-opt row_reduction.mlir --fuse --profit=model --require=row_reduction=1
func.func @row_reduction(%scores: tensor<?x8x1x?xbf16> {nn.name = "scores", nn.dims = ["batch", 8, 1, "keys"]},
                         %mask: tensor<?x1x1x?xbf16> {nn.name = "mask", nn.dims = ["batch", 1, 1, "keys"]})
    -> (tensor<?x8x1x?xbf16> {nn.name = "probabilities"}) {
  %scale = nn.constant {value = dense<0.125> : tensor<bf16>} : () -> tensor<bf16>
  %s = nn.mul %scores, %scale : (tensor<?x8x1x?xbf16>, tensor<bf16>) -> tensor<?x8x1x?xbf16>
  %m = nn.add %s, %mask : (tensor<?x8x1x?xbf16>, tensor<?x1x1x?xbf16>) -> tensor<?x8x1x?xbf16>
  %p = nn.softmax %m {axis = 3 : i64} : (tensor<?x8x1x?xbf16>) -> tensor<?x8x1x?xbf16>
  return %p : tensor<?x8x1x?xbf16>
}
