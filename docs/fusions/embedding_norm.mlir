// fusion-opt embedding_norm.mlir --fuse --profit=model --require=embedding_norm=1
func.func @embedding_norm(%ids: tensor<?x?xi64> {nn.name = "ids", nn.dims = ["batch", "tokens"]},
                          %table: tensor<128256x2048xbf16> {nn.name = "table"},
                          %w: tensor<2048xbf16> {nn.name = "w"})
    -> (tensor<?x?x2048xbf16> {nn.name = "x"}, tensor<?x?x2048xbf16> {nn.name = "y"}) {
  %x = nn.gather %table, %ids {axis = 0 : i64}
      : (tensor<128256x2048xbf16>, tensor<?x?xi64>) -> tensor<?x?x2048xbf16>
  %y = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x?x2048xbf16>, tensor<2048xbf16>) -> tensor<?x?x2048xbf16>
  return %x, %y : tensor<?x?x2048xbf16>, tensor<?x?x2048xbf16>
}
