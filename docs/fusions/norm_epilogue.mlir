// fusion-opt norm_epilogue.mlir --fuse --profit=model --require=norm_epilogue=1
func.func @norm_epilogue(%x: tensor<?x128xbf16> {nn.name = "x", nn.dims = ["rows", 128]},
                         %z: tensor<?x128xbf16> {nn.name = "z", nn.dims = ["rows", 128]},
                         %w: tensor<128xbf16> {nn.name = "w"})
    -> (tensor<?x128xbf16> {nn.name = "y"}) {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32}
      : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
  %g = nn.silu %z : (tensor<?x128xbf16>) -> tensor<?x128xbf16>
  %y = nn.mul %n, %g : (tensor<?x128xbf16>, tensor<?x128xbf16>) -> tensor<?x128xbf16>
  return %y : tensor<?x128xbf16>
}
