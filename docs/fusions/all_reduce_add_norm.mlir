// fusion-opt all_reduce_add_norm.mlir --fuse --profit=model --require=all_reduce_add_norm=1
func.func @all_reduce_add_norm(%x: tensor<?x8192xbf16> {nn.name = "x", nn.dims = ["rows", 8192]},
    %residual: tensor<?x8192xbf16> {nn.name = "residual", nn.dims = ["rows", 8192]},
    %w: tensor<8192xbf16> {nn.name = "w"})
    -> (tensor<?x8192xbf16> {nn.name = "y"}, tensor<?x8192xbf16> {nn.name = "next"}) {
  %sum = nn.all_reduce %x : (tensor<?x8192xbf16>) -> tensor<?x8192xbf16>
  %t = nn.add %sum, %residual : (tensor<?x8192xbf16>, tensor<?x8192xbf16>) -> tensor<?x8192xbf16>
  %y = nn.rms_norm %t, %w {eps = 1.0e-6 : f32}
      : (tensor<?x8192xbf16>, tensor<8192xbf16>) -> tensor<?x8192xbf16>
  return %y, %t : tensor<?x8192xbf16>, tensor<?x8192xbf16>
}
