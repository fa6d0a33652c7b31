// fusion-opt rope_kv_write.mlir --fuse --profit=model --require=rope_kv_write=1
func.func @rope_kv_write(%q: tensor<1x32x1x128xbf16> {nn.name = "q"},
                         %k: tensor<1x8x1x128xbf16> {nn.name = "k"},
                         %v: tensor<1x8x1x128xbf16> {nn.name = "v"},
                         %past_k: tensor<1x8x?x128xbf16> {nn.name = "past_k", nn.dims = [1, 8, "past", 128]},
                         %past_v: tensor<1x8x?x128xbf16> {nn.name = "past_v", nn.dims = [1, 8, "past", 128]},
                         %cos: tensor<1x1x1x128xbf16> {nn.name = "cos"},
                         %sin: tensor<1x1x1x128xbf16> {nn.name = "sin"})
    -> (tensor<1x32x1x128xbf16> {nn.name = "attended"},
        tensor<1x8x?x128xbf16> {nn.name = "present_k"},
        tensor<1x8x?x128xbf16> {nn.name = "present_v"}) {
  %q_rotated = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 128 : i64}
      : (tensor<1x32x1x128xbf16>, tensor<1x1x1x128xbf16>, tensor<1x1x1x128xbf16>) -> tensor<1x32x1x128xbf16>
  %k_rotated = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 128 : i64}
      : (tensor<1x8x1x128xbf16>, tensor<1x1x1x128xbf16>, tensor<1x1x1x128xbf16>) -> tensor<1x8x1x128xbf16>
  %keys = nn.concat %past_k, %k_rotated {axis = 2 : i64}
      : (tensor<1x8x?x128xbf16>, tensor<1x8x1x128xbf16>) -> tensor<1x8x?x128xbf16>
  %values = nn.concat %past_v, %v {axis = 2 : i64}
      : (tensor<1x8x?x128xbf16>, tensor<1x8x1x128xbf16>) -> tensor<1x8x?x128xbf16>
  %attended = nn.attention %q_rotated, %keys, %values {scale = 0.088388 : f32}
      : (tensor<1x32x1x128xbf16>, tensor<1x8x?x128xbf16>, tensor<1x8x?x128xbf16>) -> tensor<1x32x1x128xbf16>
  return %attended, %keys, %values
      : tensor<1x32x1x128xbf16>, tensor<1x8x?x128xbf16>, tensor<1x8x?x128xbf16>
}
