// The gate of a Mamba-2 layer, rms_norm(x, w) * silu(z).
func.func @main(%x: tensor<?x256xbf16> {nn.name = "x", nn.dims = ["rows", 256]},
                %z: tensor<?x256xbf16> {nn.name = "z", nn.dims = ["rows", 256]},
                %w: tensor<256xbf16> {nn.name = "w"})
    -> (tensor<?x256xbf16> {nn.name = "y"}) {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x256xbf16>, tensor<256xbf16>) -> tensor<?x256xbf16>
  %s = nn.silu %z : (tensor<?x256xbf16>) -> tensor<?x256xbf16>
  %y = nn.mul %n, %s : (tensor<?x256xbf16>, tensor<?x256xbf16>) -> tensor<?x256xbf16>
  return %y : tensor<?x256xbf16>
}
