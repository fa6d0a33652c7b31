// fusion-opt qk_norm_rope.mlir --fuse --profit=model --require=qk_norm_rope=1
func.func @qk_norm_rope(%q: tensor<1x32x?x128xbf16> {nn.name = "q", nn.dims = [1, 32, "seq", 128]},
                        %k: tensor<1x8x?x128xbf16> {nn.name = "k", nn.dims = [1, 8, "seq", 128]},
                        %v: tensor<1x8x?x128xbf16> {nn.name = "v", nn.dims = [1, 8, "seq", 128]},
                        %w_q: tensor<128xbf16> {nn.name = "w_q"},
                        %w_k: tensor<128xbf16> {nn.name = "w_k"},
                        %cos: tensor<1x1x?x128xbf16> {nn.name = "cos", nn.dims = [1, 1, "seq", 128]},
                        %sin: tensor<1x1x?x128xbf16> {nn.name = "sin", nn.dims = [1, 1, "seq", 128]})
    -> (tensor<1x32x?x128xbf16> {nn.name = "attended"}) {
  %q_normed = nn.rms_norm %q, %w_q {eps = 1.0e-6 : f32}
      : (tensor<1x32x?x128xbf16>, tensor<128xbf16>) -> tensor<1x32x?x128xbf16>
  %q_rotated = nn.rope %q_normed, %cos, %sin {interleaved = false, rotary_dim = 128 : i64}
      : (tensor<1x32x?x128xbf16>, tensor<1x1x?x128xbf16>, tensor<1x1x?x128xbf16>) -> tensor<1x32x?x128xbf16>
  %k_normed = nn.rms_norm %k, %w_k {eps = 1.0e-6 : f32}
      : (tensor<1x8x?x128xbf16>, tensor<128xbf16>) -> tensor<1x8x?x128xbf16>
  %k_rotated = nn.rope %k_normed, %cos, %sin {interleaved = false, rotary_dim = 128 : i64}
      : (tensor<1x8x?x128xbf16>, tensor<1x1x?x128xbf16>, tensor<1x1x?x128xbf16>) -> tensor<1x8x?x128xbf16>
  %attended = nn.attention %q_rotated, %k_rotated, %v {scale = 0.088388 : f32}
      : (tensor<1x32x?x128xbf16>, tensor<1x8x?x128xbf16>, tensor<1x8x?x128xbf16>) -> tensor<1x32x?x128xbf16>
  return %attended : tensor<1x32x?x128xbf16>
}
