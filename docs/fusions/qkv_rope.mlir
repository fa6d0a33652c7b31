// fusion-opt qkv_rope.mlir --fuse-qkv-rope
func.func @qkv_rope(%x: tensor<1x1x2048xbf16> {nn.name = "x"},
                    %past_k: tensor<1x8x?x64xbf16> {nn.name = "past_k", nn.dims = [1, 8, "past", 64], nn.storage = [1, 8, 4096, 64]},
                    %past_v: tensor<1x8x?x64xbf16> {nn.name = "past_v", nn.dims = [1, 8, "past", 64], nn.storage = [1, 8, 4096, 64]},
                    %cos: tensor<1x1x1x64xbf16> {nn.name = "cos"},
                    %sin: tensor<1x1x1x64xbf16> {nn.name = "sin"})
    -> (tensor<1x32x1x64xbf16> {nn.name = "attended"},
        tensor<1x8x?x64xbf16> {nn.name = "present_k", nn.alias = 1 : i64},
        tensor<1x8x?x64xbf16> {nn.name = "present_v", nn.alias = 2 : i64}) {
  %w = nn.constant {value = dense<1.0> : tensor<2048xbf16>} : () -> tensor<2048xbf16>
  %w_q = nn.constant {value = dense<0.1> : tensor<2048x2048xbf16>} : () -> tensor<2048x2048xbf16>
  %w_k = nn.constant {value = dense<0.2> : tensor<2048x512xbf16>} : () -> tensor<2048x512xbf16>
  %w_v = nn.constant {value = dense<0.3> : tensor<2048x512xbf16>} : () -> tensor<2048x512xbf16>
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32}
      : (tensor<1x1x2048xbf16>, tensor<2048xbf16>) -> tensor<1x1x2048xbf16>
  %q = nn.matmul %n, %w_q : (tensor<1x1x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<1x1x2048xbf16>
  %k = nn.matmul %n, %w_k : (tensor<1x1x2048xbf16>, tensor<2048x512xbf16>) -> tensor<1x1x512xbf16>
  %v = nn.matmul %n, %w_v : (tensor<1x1x2048xbf16>, tensor<2048x512xbf16>) -> tensor<1x1x512xbf16>
  %q_heads = nn.reshape %q {shape = [1, 1, 32, 64]} : (tensor<1x1x2048xbf16>) -> tensor<1x1x32x64xbf16>
  %k_heads = nn.reshape %k {shape = [1, 1, 8, 64]} : (tensor<1x1x512xbf16>) -> tensor<1x1x8x64xbf16>
  %v_heads = nn.reshape %v {shape = [1, 1, 8, 64]} : (tensor<1x1x512xbf16>) -> tensor<1x1x8x64xbf16>
  %q_turned = nn.transpose %q_heads {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x32x64xbf16>) -> tensor<1x32x1x64xbf16>
  %k_turned = nn.transpose %k_heads {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x8x64xbf16>) -> tensor<1x8x1x64xbf16>
  %v_turned = nn.transpose %v_heads {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x8x64xbf16>) -> tensor<1x8x1x64xbf16>
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
