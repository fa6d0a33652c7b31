// fusion-opt rope_attention.mlir --fuse --profit=model --require=rope_attention=1
func.func @rope_attention(%q: tensor<1x1x32x64xbf16> {nn.name = "q"},
                          %k: tensor<1x1x8x64xbf16> {nn.name = "k"},
                          %v: tensor<1x1x8x64xbf16> {nn.name = "v"},
                          %past_k: tensor<1x8x?x64xbf16> {nn.name = "past_k", nn.dims = [1, 8, "past", 64], nn.storage = [1, 8, 4096, 64]},
                          %past_v: tensor<1x8x?x64xbf16> {nn.name = "past_v", nn.dims = [1, 8, "past", 64], nn.storage = [1, 8, 4096, 64]},
                          %cos: tensor<1x1x1x64xbf16> {nn.name = "cos"},
                          %sin: tensor<1x1x1x64xbf16> {nn.name = "sin"})
    -> (tensor<1x32x1x64xbf16> {nn.name = "attended"},
        tensor<1x8x?x64xbf16> {nn.name = "present_k", nn.alias = 3 : i64},
        tensor<1x8x?x64xbf16> {nn.name = "present_v", nn.alias = 4 : i64}) {
  %q_turned = nn.transpose %q {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x32x64xbf16>) -> tensor<1x32x1x64xbf16>
  %k_turned = nn.transpose %k {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x8x64xbf16>) -> tensor<1x8x1x64xbf16>
  %v_turned = nn.transpose %v {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x8x64xbf16>) -> tensor<1x8x1x64xbf16>
  %q_rotated = nn.rope %q_turned, %cos, %sin {interleaved = false, rotary_dim = 64 : i64}
      : (tensor<1x32x1x64xbf16>, tensor<1x1x1x64xbf16>, tensor<1x1x1x64xbf16>) -> tensor<1x32x1x64xbf16>
  %k_rotated = nn.rope %k_turned, %cos, %sin {interleaved = false, rotary_dim = 64 : i64}
      : (tensor<1x8x1x64xbf16>, tensor<1x1x1x64xbf16>, tensor<1x1x1x64xbf16>) -> tensor<1x8x1x64xbf16>
  %keys = nn.concat %past_k, %k_rotated {axis = 2 : i64}
      : (tensor<1x8x?x64xbf16>, tensor<1x8x1x64xbf16>) -> tensor<1x8x?x64xbf16>
  %values = nn.concat %past_v, %v_turned {axis = 2 : i64}
      : (tensor<1x8x?x64xbf16>, tensor<1x8x1x64xbf16>) -> tensor<1x8x?x64xbf16>
  %attended = nn.attention %q_rotated, %keys, %values {scale = 0.125 : f32}
      : (tensor<1x32x1x64xbf16>, tensor<1x8x?x64xbf16>, tensor<1x8x?x64xbf16>) -> tensor<1x32x1x64xbf16>
  return %attended, %keys, %values
      : tensor<1x32x1x64xbf16>, tensor<1x8x?x64xbf16>, tensor<1x8x?x64xbf16>
}
