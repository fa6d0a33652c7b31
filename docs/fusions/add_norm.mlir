// fusion-opt add_norm.mlir --fuse --profit=model --require=add_norm=1
func.func @add_norm(%x: tensor<?x4096xbf16> {nn.name = "x", nn.dims = ["rows", 4096]},
                    %residual: tensor<?x4096xbf16> {nn.name = "residual", nn.dims = ["rows", 4096]},
                    %w: tensor<4096xbf16> {nn.name = "w"})
    -> (tensor<?x4096xbf16> {nn.name = "y"}, tensor<?x4096xbf16> {nn.name = "next"}) {
  %sum = nn.add %x, %residual : (tensor<?x4096xbf16>, tensor<?x4096xbf16>) -> tensor<?x4096xbf16>
  %y = nn.rms_norm %sum, %w {eps = 1.0e-6 : f32}
      : (tensor<?x4096xbf16>, tensor<4096xbf16>) -> tensor<?x4096xbf16>
  return %y, %sum : tensor<?x4096xbf16>, tensor<?x4096xbf16>
}
