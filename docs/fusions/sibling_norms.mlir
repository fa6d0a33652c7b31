// fusion-opt sibling_norms.mlir --fuse --profit=model --require=sibling_norms=1
func.func @sibling_norms(%x: tensor<?x4096xbf16> {nn.name = "x", nn.dims = ["rows", 4096]},
                         %w_a: tensor<4096xbf16> {nn.name = "w_a"},
                         %w_b: tensor<4096xbf16> {nn.name = "w_b"})
    -> (tensor<?x4096xbf16> {nn.name = "a"}, tensor<?x4096xbf16> {nn.name = "b"}) {
  %a = nn.rms_norm %x, %w_a {eps = 1.0e-6 : f32}
      : (tensor<?x4096xbf16>, tensor<4096xbf16>) -> tensor<?x4096xbf16>
  %b = nn.rms_norm %x, %w_b {eps = 1.0e-6 : f32}
      : (tensor<?x4096xbf16>, tensor<4096xbf16>) -> tensor<?x4096xbf16>
  return %a, %b : tensor<?x4096xbf16>, tensor<?x4096xbf16>
}
