// fusion-opt matmul_epilogue.mlir --fuse --profit=model --require=matmul_epilogue=1
func.func @matmul_epilogue(%x: tensor<?x4096xbf16> {nn.name = "x", nn.dims = ["rows", 4096]},
                           %w: tensor<4096x14336xbf16> {nn.name = "w"},
                           %bias: tensor<14336xbf16> {nn.name = "bias"})
    -> (tensor<?x14336xbf16> {nn.name = "y"}) {
  %m = nn.matmul %x, %w : (tensor<?x4096xbf16>, tensor<4096x14336xbf16>) -> tensor<?x14336xbf16>
  %b = nn.add %m, %bias : (tensor<?x14336xbf16>, tensor<14336xbf16>) -> tensor<?x14336xbf16>
  %y = nn.gelu %b : (tensor<?x14336xbf16>) -> tensor<?x14336xbf16>
  return %y : tensor<?x14336xbf16>
}
