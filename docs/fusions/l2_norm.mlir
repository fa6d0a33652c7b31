// fusion-opt l2_norm.mlir --fuse --profit=model --require=l2_norm=1
func.func @l2_norm(%x: tensor<?x128xbf16> {nn.name = "x", nn.dims = ["rows", 128]})
    -> (tensor<?x128xbf16> {nn.name = "y"}) {
  %sum = nn.reduce %x {kind = "sum_square", axes = array<i64: 1>, keepdims = true}
      : (tensor<?x128xbf16>) -> tensor<?x1xbf16>
  %length = nn.sqrt %sum : (tensor<?x1xbf16>) -> tensor<?x1xbf16>
  %y = nn.div %x, %length : (tensor<?x128xbf16>, tensor<?x1xbf16>) -> tensor<?x128xbf16>
  return %y : tensor<?x128xbf16>
}
