// fusion-opt add_norm_quant.mlir --fuse --profit=model --require=add_norm_quant=1
func.func @add_norm_quant(%x: tensor<?x4096xbf16> {nn.name = "x", nn.dims = ["rows", 4096]},
                          %residual: tensor<?x4096xbf16> {nn.name = "residual", nn.dims = ["rows", 4096]},
                          %w: tensor<4096xbf16> {nn.name = "w"},
                          %scale: tensor<f32> {nn.name = "scale"})
    -> (tensor<?x4096xf8E4M3FN> {nn.name = "y"},
        tensor<?x4096xbf16> {nn.name = "next"}) {
  %sum = nn.add %x, %residual : (tensor<?x4096xbf16>, tensor<?x4096xbf16>) -> tensor<?x4096xbf16>
  %n = nn.rms_norm %sum, %w {eps = 1.0e-6 : f32}
      : (tensor<?x4096xbf16>, tensor<4096xbf16>) -> tensor<?x4096xbf16>
  %y = nn.quantize %n, %scale : (tensor<?x4096xbf16>, tensor<f32>) -> tensor<?x4096xf8E4M3FN>
  return %y, %sum : tensor<?x4096xf8E4M3FN>, tensor<?x4096xbf16>
}
