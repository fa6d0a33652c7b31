// fusion-opt rope.mlir --fuse --profit=model --require=rope=1
func.func @rope(%q: tensor<1x32x?x128xbf16> {nn.name = "q", nn.dims = [1, 32, "seq", 128]},
                %k: tensor<1x8x?x128xbf16> {nn.name = "k", nn.dims = [1, 8, "seq", 128]},
                %v: tensor<1x8x?x128xbf16> {nn.name = "v", nn.dims = [1, 8, "seq", 128]},
                %cos: tensor<1x1x?x128xbf16> {nn.name = "cos", nn.dims = [1, 1, "seq", 128]},
                %sin: tensor<1x1x?x128xbf16> {nn.name = "sin", nn.dims = [1, 1, "seq", 128]})
    -> (tensor<1x32x?x128xbf16> {nn.name = "attended"}) {
  %q_rotated = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 128 : i64}
      : (tensor<1x32x?x128xbf16>, tensor<1x1x?x128xbf16>, tensor<1x1x?x128xbf16>) -> tensor<1x32x?x128xbf16>
  %k_rotated = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 128 : i64}
      : (tensor<1x8x?x128xbf16>, tensor<1x1x?x128xbf16>, tensor<1x1x?x128xbf16>) -> tensor<1x8x?x128xbf16>
  %attended = nn.attention %q_rotated, %k_rotated, %v {scale = 0.088388 : f32}
      : (tensor<1x32x?x128xbf16>, tensor<1x8x?x128xbf16>, tensor<1x8x?x128xbf16>) -> tensor<1x32x?x128xbf16>
  return %attended : tensor<1x32x?x128xbf16>
}
