// fusion-opt norm_quant.mlir --fuse --profit=model --require=norm_quant=1
func.func @norm_quant(%x: tensor<?x4096xbf16> {nn.name = "x", nn.dims = ["rows", 4096]},
                      %w: tensor<4096xbf16> {nn.name = "w"},
                      %scale: tensor<f32> {nn.name = "scale"})
    -> (tensor<?x4096xf8E4M3FN> {nn.name = "y"}) {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32}
      : (tensor<?x4096xbf16>, tensor<4096xbf16>) -> tensor<?x4096xbf16>
  %y = nn.quantize %n, %scale : (tensor<?x4096xbf16>, tensor<f32>) -> tensor<?x4096xf8E4M3FN>
  return %y : tensor<?x4096xf8E4M3FN>
}
