// fusion-opt norm_matmul.mlir --fuse-norm-matmul
func.func @norm_matmul(%x: tensor<1x4096xbf16> {nn.name = "x"},
                       %w: tensor<4096xbf16> {nn.name = "w"},
                       %w_q: tensor<4096x4096xbf16> {nn.name = "w_q"})
    -> (tensor<1x4096xbf16> {nn.name = "y"}) {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32}
      : (tensor<1x4096xbf16>, tensor<4096xbf16>) -> tensor<1x4096xbf16>
  %y = nn.matmul %n, %w_q : (tensor<1x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<1x4096xbf16>
  return %y : tensor<1x4096xbf16>
}
