// fusion-opt all_reduce_add_norm_quant.mlir --fuse --profit=model --require=all_reduce_add_norm_quant=1
func.func @all_reduce_add_norm_quant(%x: tensor<?x8192xbf16> {nn.name = "x", nn.dims = ["rows", 8192]},
    %residual: tensor<?x8192xbf16> {nn.name = "residual", nn.dims = ["rows", 8192]},
    %w: tensor<8192xbf16> {nn.name = "w"},
    %scale: tensor<f32> {nn.name = "scale"})
    -> (tensor<?x8192xf8E4M3FN> {nn.name = "y"},
        tensor<?x8192xbf16> {nn.name = "next"}) {
  %sum = nn.all_reduce %x : (tensor<?x8192xbf16>) -> tensor<?x8192xbf16>
  %t = nn.add %sum, %residual : (tensor<?x8192xbf16>, tensor<?x8192xbf16>) -> tensor<?x8192xbf16>
  %n = nn.rms_norm %t, %w {eps = 1.0e-6 : f32}
      : (tensor<?x8192xbf16>, tensor<8192xbf16>) -> tensor<?x8192xbf16>
  %y = nn.quantize %n, %scale : (tensor<?x8192xbf16>, tensor<f32>) -> tensor<?x8192xf8E4M3FN>
  return %y, %t : tensor<?x8192xf8E4M3FN>, tensor<?x8192xbf16>
}
