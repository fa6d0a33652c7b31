// RUN: fusion-opt %s --fuse-rope-kv-write --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-rope-kv-write --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// Llama: no norm. Both caches are results, and attention reads them.
// CHECK-LABEL: @llama
// CHECK: %[[G:.*]]:3 = fusion.group "rope_kv_write" schedule "row"
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.concat
// CHECK-NEXT: nn.concat
// CHECK-NEXT: fusion.yield
// CHECK: %[[A:.*]] = nn.attention %[[G]]#0, %[[G]]#1, %[[G]]#2
// CHECK: return %[[A]], %[[G]]#1, %[[G]]#2
func.func @llama(%q: tensor<1x4x1x32xf16>, %k: tensor<1x2x1x32xf16>, %v: tensor<1x2x1x32xf16>,
                 %past_k: tensor<1x2x?x32xf16> {nn.dims = [1, 2, "p", 32]}, %past_v: tensor<1x2x?x32xf16> {nn.dims = [1, 2, "p", 32]},
                 %cos: tensor<1x1x1x32xf16>, %sin: tensor<1x1x1x32xf16>) -> (tensor<1x4x1x32xf16>, tensor<1x2x?x32xf16>, tensor<1x2x?x32xf16>) {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x1x32xf16>, tensor<1x1x1x32xf16>, tensor<1x1x1x32xf16>) -> tensor<1x4x1x32xf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x1x32xf16>, tensor<1x1x1x32xf16>, tensor<1x1x1x32xf16>) -> tensor<1x2x1x32xf16>
  %2 = nn.concat %past_k, %1 {axis = 2 : i64} : (tensor<1x2x?x32xf16>, tensor<1x2x1x32xf16>) -> tensor<1x2x?x32xf16>
  %3 = nn.concat %past_v, %v {axis = -2 : i64} : (tensor<1x2x?x32xf16>, tensor<1x2x1x32xf16>) -> tensor<1x2x?x32xf16>
  %4 = nn.attention %0, %2, %3 {scale = 0.25 : f32} : (tensor<1x4x1x32xf16>, tensor<1x2x?x32xf16>, tensor<1x2x?x32xf16>) -> tensor<1x4x1x32xf16>
  return %4, %2, %3 : tensor<1x4x1x32xf16>, tensor<1x2x?x32xf16>, tensor<1x2x?x32xf16>
}

// -----

// New rows go where data says. Layers without an attention of their own share its angles, not its kernel.
// CHECK-LABEL: @placed
// CHECK: fusion.group "rope_kv_write" schedule "row"
// CHECK-NEXT: nn.rope %
// CHECK-NEXT: nn.rope %
// CHECK-NEXT: nn.cache_write
// CHECK-NEXT: nn.cache_write
// CHECK-NEXT: fusion.yield
// CHECK: fusion.group "rope_kv_write" schedule "row"
// CHECK-NEXT: nn.rope %
// CHECK-NEXT: nn.cache_write
// CHECK-NEXT: fusion.yield
func.func @placed(%q: tensor<2x4x1x32xf16>, %k: tensor<2x2x1x32xf16>, %v: tensor<2x2x1x32xf16>, %l: tensor<2x2x1x32xf16>,
                  %past_k: tensor<2x2x?x32xf16> {nn.dims = [2, 2, "p", 32], nn.storage = [2, 2, 64, 32]},
                  %past_v: tensor<2x2x?x32xf16> {nn.dims = [2, 2, "p", 32], nn.storage = [2, 2, 64, 32]},
                  %past_l: tensor<2x2x?x32xf16> {nn.dims = [2, 2, "p", 32], nn.storage = [2, 2, 64, 32]},
                  %cos: tensor<1x1x1x32xf16>, %sin: tensor<1x1x1x32xf16>, %rows: tensor<2x1x1x1xi64>)
    -> (tensor<2x4x1x32xf16>, tensor<2x2x?x32xf16> {nn.alias = 4 : i64}, tensor<2x2x?x32xf16> {nn.alias = 5 : i64}, tensor<2x2x?x32xf16> {nn.alias = 6 : i64}) {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<2x4x1x32xf16>, tensor<1x1x1x32xf16>, tensor<1x1x1x32xf16>) -> tensor<2x4x1x32xf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<2x2x1x32xf16>, tensor<1x1x1x32xf16>, tensor<1x1x1x32xf16>) -> tensor<2x2x1x32xf16>
  %2 = nn.cache_write %past_k, %1, %rows {axis = 2 : i64, grows = true} : (tensor<2x2x?x32xf16>, tensor<2x2x1x32xf16>, tensor<2x1x1x1xi64>) -> tensor<2x2x?x32xf16>
  %3 = nn.cache_write %past_v, %v, %rows {axis = -2 : i64, grows = true} : (tensor<2x2x?x32xf16>, tensor<2x2x1x32xf16>, tensor<2x1x1x1xi64>) -> tensor<2x2x?x32xf16>
  %4 = nn.attention %0, %2, %3 {scale = 0.25 : f32} : (tensor<2x4x1x32xf16>, tensor<2x2x?x32xf16>, tensor<2x2x?x32xf16>) -> tensor<2x4x1x32xf16>
  %5 = nn.rope %l, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<2x2x1x32xf16>, tensor<1x1x1x32xf16>, tensor<1x1x1x32xf16>) -> tensor<2x2x1x32xf16>
  %6 = nn.cache_write %past_l, %5, %rows {axis = 2 : i64, grows = true} : (tensor<2x2x?x32xf16>, tensor<2x2x1x32xf16>, tensor<2x1x1x1xi64>) -> tensor<2x2x?x32xf16>
  return %4, %2, %3, %6 : tensor<2x4x1x32xf16>, tensor<2x2x?x32xf16>, tensor<2x2x?x32xf16>, tensor<2x2x?x32xf16>
}

// -----

// A cache of heads side by side, which is written head by head, with positions first.
// CHECK-LABEL: @flat
// CHECK: %[[G:.*]]:3 = fusion.group "rope_kv_write" schedule "row"
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.cache_write
// CHECK-NEXT: nn.cache_write
// CHECK-NEXT: fusion.yield
func.func @flat(%q: tensor<2x4x3x32xf16>, %k: tensor<2x3x2x32xf16>, %v: tensor<2x3x2x32xf16>, %past_k: tensor<2x16x64xf16> {nn.storage = [2, 16, 64]},
                %past_v: tensor<2x16x64xf16> {nn.storage = [2, 16, 64]}, %cos: tensor<2x3x1x16xf16>, %sin: tensor<2x3x1x16xf16>, %rows: tensor<2x3x1x1xi64>)
    -> (tensor<2x4x3x32xf16>, tensor<2x16x64xf16> {nn.alias = 3 : i64}, tensor<2x16x64xf16> {nn.alias = 4 : i64}) {
  %c = nn.transpose %cos {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x3x1x16xf16>) -> tensor<2x1x3x16xf16>
  %s = nn.transpose %sin {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x3x1x16xf16>) -> tensor<2x1x3x16xf16>
  %pk = nn.reshape %past_k {shape = [2, 16, 2, 32]} : (tensor<2x16x64xf16>) -> tensor<2x16x2x32xf16>
  %pv = nn.reshape %past_v {shape = [2, 16, 2, 32]} : (tensor<2x16x64xf16>) -> tensor<2x16x2x32xf16>
  %0 = nn.rope %q, %c, %s {interleaved = false, rotary_dim = 32 : i64} : (tensor<2x4x3x32xf16>, tensor<2x1x3x16xf16>, tensor<2x1x3x16xf16>) -> tensor<2x4x3x32xf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<2x3x2x32xf16>, tensor<2x3x1x16xf16>, tensor<2x3x1x16xf16>) -> tensor<2x3x2x32xf16>
  %2 = nn.cache_write %pk, %1, %rows {axis = 1 : i64} : (tensor<2x16x2x32xf16>, tensor<2x3x2x32xf16>, tensor<2x3x1x1xi64>) -> tensor<2x16x2x32xf16>
  %3 = nn.cache_write %pv, %v, %rows {axis = 1 : i64} : (tensor<2x16x2x32xf16>, tensor<2x3x2x32xf16>, tensor<2x3x1x1xi64>) -> tensor<2x16x2x32xf16>
  %4 = nn.transpose %2 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x16x2x32xf16>) -> tensor<2x2x16x32xf16>
  %5 = nn.transpose %3 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x16x2x32xf16>) -> tensor<2x2x16x32xf16>
  %6 = nn.attention %0, %4, %5 {scale = 0.25 : f32} : (tensor<2x4x3x32xf16>, tensor<2x2x16x32xf16>, tensor<2x2x16x32xf16>) -> tensor<2x4x3x32xf16>
  %7 = nn.reshape %2 {shape = [2, 16, 64]} : (tensor<2x16x2x32xf16>) -> tensor<2x16x64xf16>
  %8 = nn.reshape %3 {shape = [2, 16, 64]} : (tensor<2x16x2x32xf16>) -> tensor<2x16x64xf16>
  return %6, %7, %8 : tensor<2x4x3x32xf16>, tensor<2x16x64xf16>, tensor<2x16x64xf16>
}

// -----

// A norm along each head: of Gemma's kind for the queries, LayerNorm for the keys. A part of the head is rotated, in
// interleaved pairs. The values are a slice of one packed product.
// CHECK-LABEL: @norms
// CHECK: %[[V:.*]] = nn.transpose
// CHECK: fusion.group "rope_kv_write" schedule "row" ({{.*}} = %[[V]])
// CHECK-NEXT: nn.rms_norm {{.*}}weight_bias
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.layer_norm
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.concat
// CHECK-NEXT: nn.concat
func.func @norms(%q: tensor<1x4x3x32xbf16>, %k: tensor<1x2x3x32xbf16>, %qkv: tensor<1x3x256xbf16>, %past_k: tensor<1x2x8x32xbf16>, %past_v: tensor<1x2x8x32xbf16>,
                 %a: tensor<32xf32>, %b: tensor<32xbf16>, %cos: tensor<3x16xf32>, %sin: tensor<3x16xf32>) -> (tensor<1x4x3x32xbf16>, tensor<1x2x11x32xbf16>, tensor<1x2x11x32xbf16>) {
  %n = nn.rms_norm %q, %a {eps = 1.0e-6 : f32, weight_bias = 1.0 : f32} : (tensor<1x4x3x32xbf16>, tensor<32xf32>) -> tensor<1x4x3x32xbf16>
  %0 = nn.rope %n, %cos, %sin {interleaved = true, rotary_dim = 16 : i64} : (tensor<1x4x3x32xbf16>, tensor<3x16xf32>, tensor<3x16xf32>) -> tensor<1x4x3x32xbf16>
  %m = nn.layer_norm %k, %b, %b {eps = 1.0e-5 : f32} : (tensor<1x2x3x32xbf16>, tensor<32xbf16>, tensor<32xbf16>) -> tensor<1x2x3x32xbf16>
  %1 = nn.rope %m, %cos, %sin {interleaved = true, rotary_dim = 16 : i64} : (tensor<1x2x3x32xbf16>, tensor<3x16xf32>, tensor<3x16xf32>) -> tensor<1x2x3x32xbf16>
  %s = nn.slice %qkv {starts = [0, 0, 192], sizes = [1, 3, 64], steps = array<i64: 1, 1, 1>} : (tensor<1x3x256xbf16>) -> tensor<1x3x64xbf16>
  %r = nn.reshape %s {shape = [1, 3, 2, 32]} : (tensor<1x3x64xbf16>) -> tensor<1x3x2x32xbf16>
  %v = nn.transpose %r {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x3x2x32xbf16>) -> tensor<1x2x3x32xbf16>
  %2 = nn.concat %past_k, %1 {axis = 2 : i64} : (tensor<1x2x8x32xbf16>, tensor<1x2x3x32xbf16>) -> tensor<1x2x11x32xbf16>
  %3 = nn.concat %past_v, %v {axis = 2 : i64} : (tensor<1x2x8x32xbf16>, tensor<1x2x3x32xbf16>) -> tensor<1x2x11x32xbf16>
  %4 = nn.attention %0, %2, %3 {scale = 0.25 : f32} : (tensor<1x4x3x32xbf16>, tensor<1x2x11x32xbf16>, tensor<1x2x11x32xbf16>) -> tensor<1x4x3x32xbf16>
  return %4, %2, %3 : tensor<1x4x3x32xbf16>, tensor<1x2x11x32xbf16>, tensor<1x2x11x32xbf16>
}

// -----

// Hunyuan: the norms follow the rotations.
// CHECK-LABEL: @norms_after
// CHECK: fusion.group "rope_kv_write" schedule "row"
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: nn.concat
// CHECK-NEXT: nn.concat
func.func @norms_after(%q: tensor<1x4x1x32xf16>, %k: tensor<1x2x1x32xf16>, %v: tensor<1x2x1x32xf16>, %past_k: tensor<1x2x8x32xf16>, %past_v: tensor<1x2x8x32xf16>,
                        %a: tensor<32xf16>, %cos: tensor<1x32xf16>, %sin: tensor<1x32xf16>) -> (tensor<1x4x1x32xf16>, tensor<1x2x9x32xf16>, tensor<1x2x9x32xf16>) {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x1x32xf16>, tensor<1x32xf16>, tensor<1x32xf16>) -> tensor<1x4x1x32xf16>
  %n = nn.rms_norm %0, %a {eps = 1.0e-6 : f32} : (tensor<1x4x1x32xf16>, tensor<32xf16>) -> tensor<1x4x1x32xf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x1x32xf16>, tensor<1x32xf16>, tensor<1x32xf16>) -> tensor<1x2x1x32xf16>
  %m = nn.rms_norm %1, %a {eps = 1.0e-6 : f32} : (tensor<1x2x1x32xf16>, tensor<32xf16>) -> tensor<1x2x1x32xf16>
  %2 = nn.concat %past_k, %m {axis = 2 : i64} : (tensor<1x2x8x32xf16>, tensor<1x2x1x32xf16>) -> tensor<1x2x9x32xf16>
  %3 = nn.concat %past_v, %v {axis = 2 : i64} : (tensor<1x2x8x32xf16>, tensor<1x2x1x32xf16>) -> tensor<1x2x9x32xf16>
  %4 = nn.attention %n, %2, %3 {scale = 0.25 : f32} : (tensor<1x4x1x32xf16>, tensor<1x2x9x32xf16>, tensor<1x2x9x32xf16>) -> tensor<1x4x1x32xf16>
  return %4, %2, %3 : tensor<1x4x1x32xf16>, tensor<1x2x9x32xf16>, tensor<1x2x9x32xf16>
}

// -----

// A cache of [batch, positions, heads, width], which attention reads transposed; the rotation stands before the transpose.
// CHECK-LABEL: @positions_first
// CHECK: %[[G:.*]]:3 = fusion.group "rope_kv_write" schedule "row"
// CHECK: nn.rope
// CHECK: nn.rope
// CHECK: nn.transpose
// CHECK: nn.concat
// CHECK: nn.concat
// CHECK: nn.transpose %[[G]]
// CHECK: nn.attention
func.func @positions_first(%q: tensor<1x4x3x32xf16>, %k: tensor<1x2x3x32xf16>, %v: tensor<1x3x2x32xf16>, %past_k: tensor<1x8x2x32xf16>, %past_v: tensor<1x8x2x32xf16>,
                           %cos: tensor<3x32xf16>, %sin: tensor<3x32xf16>) -> (tensor<1x4x3x32xf16>, tensor<1x11x2x32xf16>, tensor<1x11x2x32xf16>) {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x3x32xf16>, tensor<3x32xf16>, tensor<3x32xf16>) -> tensor<1x4x3x32xf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x3x32xf16>, tensor<3x32xf16>, tensor<3x32xf16>) -> tensor<1x2x3x32xf16>
  %t = nn.transpose %1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x2x3x32xf16>) -> tensor<1x3x2x32xf16>
  %2 = nn.concat %past_k, %t {axis = 1 : i64} : (tensor<1x8x2x32xf16>, tensor<1x3x2x32xf16>) -> tensor<1x11x2x32xf16>
  %3 = nn.concat %past_v, %v {axis = 1 : i64} : (tensor<1x8x2x32xf16>, tensor<1x3x2x32xf16>) -> tensor<1x11x2x32xf16>
  %4 = nn.transpose %2 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x11x2x32xf16>) -> tensor<1x2x11x32xf16>
  %5 = nn.transpose %3 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x11x2x32xf16>) -> tensor<1x2x11x32xf16>
  %6 = nn.attention %0, %4, %5 {scale = 0.25 : f32} : (tensor<1x4x3x32xf16>, tensor<1x2x11x32xf16>, tensor<1x2x11x32xf16>) -> tensor<1x4x3x32xf16>
  return %6, %2, %3 : tensor<1x4x3x32xf16>, tensor<1x11x2x32xf16>, tensor<1x11x2x32xf16>
}

// -----

// GPT-2: nothing is rotated; the two writes still are one kernel.
// CHECK-LABEL: @no_rotation
// CHECK: fusion.group "rope_kv_write" schedule "row"
// CHECK-NEXT: nn.concat
// CHECK-NEXT: nn.concat
func.func @no_rotation(%q: tensor<1x4x1x32xf16>, %k: tensor<1x4x1x32xf16>, %v: tensor<1x4x1x32xf16>, %past_k: tensor<1x4x8x32xf16>, %past_v: tensor<1x4x8x32xf16>)
    -> (tensor<1x4x1x32xf16>, tensor<1x4x9x32xf16>, tensor<1x4x9x32xf16>) {
  %2 = nn.concat %past_k, %k {axis = 2 : i64} : (tensor<1x4x8x32xf16>, tensor<1x4x1x32xf16>) -> tensor<1x4x9x32xf16>
  %3 = nn.concat %past_v, %v {axis = 2 : i64} : (tensor<1x4x8x32xf16>, tensor<1x4x1x32xf16>) -> tensor<1x4x9x32xf16>
  %4 = nn.attention %q, %2, %3 {scale = 0.25 : f32} : (tensor<1x4x1x32xf16>, tensor<1x4x9x32xf16>, tensor<1x4x9x32xf16>) -> tensor<1x4x1x32xf16>
  return %4, %2, %3 : tensor<1x4x1x32xf16>, tensor<1x4x9x32xf16>, tensor<1x4x9x32xf16>
}

// -----

// CHECK-LABEL: @no_cache
// CHECK-NOT: fusion.group
// MISS: rope_kv_write missed at {{.*}}: the keys of nn.attention are produced by nn.rope, not by nn.concat of the past and the new ones
func.func @no_cache(%q: tensor<1x4x8x32xf16>, %k: tensor<1x2x8x32xf16>, %v: tensor<1x2x8x32xf16>, %cos: tensor<8x32xf16>, %sin: tensor<8x32xf16>) -> tensor<1x4x8x32xf16> {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x8x32xf16>, tensor<8x32xf16>, tensor<8x32xf16>) -> tensor<1x4x8x32xf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x8x32xf16>, tensor<8x32xf16>, tensor<8x32xf16>) -> tensor<1x2x8x32xf16>
  %2 = nn.attention %0, %1, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf16>, tensor<1x2x8x32xf16>, tensor<1x2x8x32xf16>) -> tensor<1x4x8x32xf16>
  return %2 : tensor<1x4x8x32xf16>
}

// -----

// CHECK-LABEL: @values_without_cache
// CHECK-NOT: fusion.group
// MISS: rope_kv_write missed at {{.*}}: the values of nn.attention are produced by an argument, not by nn.concat
func.func @values_without_cache(%q: tensor<1x4x1x32xf16>, %k: tensor<1x2x1x32xf16>, %v: tensor<1x2x9x32xf16>, %past: tensor<1x2x8x32xf16>) -> tensor<1x4x1x32xf16> {
  %0 = nn.concat %past, %k {axis = 2 : i64} : (tensor<1x2x8x32xf16>, tensor<1x2x1x32xf16>) -> tensor<1x2x9x32xf16>
  %1 = nn.attention %q, %0, %v {scale = 0.25 : f32} : (tensor<1x4x1x32xf16>, tensor<1x2x9x32xf16>, tensor<1x2x9x32xf16>) -> tensor<1x4x1x32xf16>
  return %1 : tensor<1x4x1x32xf16>
}

// -----

// Heads one after the other, not positions.
// CHECK-LABEL: @wrong_axis
// CHECK-NOT: fusion.group
// MISS: rope_kv_write missed at {{.*}}: nn.concat joins the keys along dim 1, the positions are dim 2
func.func @wrong_axis(%q: tensor<1x4x1x32xf16>, %k: tensor<1x1x9x32xf16>, %v: tensor<1x1x9x32xf16>, %past: tensor<1x1x9x32xf16>) -> tensor<1x4x1x32xf16> {
  %0 = nn.concat %past, %k {axis = 1 : i64} : (tensor<1x1x9x32xf16>, tensor<1x1x9x32xf16>) -> tensor<1x2x9x32xf16>
  %1 = nn.concat %past, %v {axis = 1 : i64} : (tensor<1x1x9x32xf16>, tensor<1x1x9x32xf16>) -> tensor<1x2x9x32xf16>
  %2 = nn.attention %q, %0, %1 {scale = 0.25 : f32} : (tensor<1x4x1x32xf16>, tensor<1x2x9x32xf16>, tensor<1x2x9x32xf16>) -> tensor<1x4x1x32xf16>
  return %2 : tensor<1x4x1x32xf16>
}

// -----

// CHECK-LABEL: @three_parts
// CHECK-NOT: fusion.group
// MISS: rope_kv_write missed at {{.*}}: the keys are an nn.concat of 3 parts, not of the past and the new ones
func.func @three_parts(%q: tensor<1x4x1x32xf16>, %k: tensor<1x2x1x32xf16>, %past: tensor<1x2x8x32xf16>) -> tensor<1x4x1x32xf16> {
  %0 = nn.concat %past, %past, %k {axis = 2 : i64} : (tensor<1x2x8x32xf16>, tensor<1x2x8x32xf16>, tensor<1x2x1x32xf16>) -> tensor<1x2x17x32xf16>
  %1 = nn.attention %q, %0, %0 {scale = 0.25 : f32} : (tensor<1x4x1x32xf16>, tensor<1x2x17x32xf16>, tensor<1x2x17x32xf16>) -> tensor<1x4x1x32xf16>
  return %1 : tensor<1x4x1x32xf16>
}

// -----

// OLMo 2: the norms of all heads together, split and transposed before the rotations, go along.
// CHECK-LABEL: @whole_norm
// CHECK: fusion.group "rope_kv_write" schedule "row"
// CHECK-COUNT-2: nn.rms_norm
// CHECK-COUNT-2: nn.rope
// CHECK-COUNT-2: nn.concat
// CHECK: nn.attention
func.func @whole_norm(%q: tensor<1x1x128xbf16>, %k: tensor<1x1x64xbf16>, %v: tensor<1x2x1x32xbf16>, %pk: tensor<1x2x7x32xbf16>, %pv: tensor<1x2x7x32xbf16>,
                      %a: tensor<128xbf16>, %b: tensor<64xbf16>, %cos: tensor<1x32xf32>, %sin: tensor<1x32xf32>)
    -> (tensor<1x4x1x32xbf16>, tensor<1x2x8x32xbf16>, tensor<1x2x8x32xbf16>) {
  %qn = nn.rms_norm %q, %a {eps = 1.0e-6 : f32, scale_in = f32} : (tensor<1x1x128xbf16>, tensor<128xbf16>) -> tensor<1x1x128xbf16>
  %kn = nn.rms_norm %k, %b {eps = 1.0e-6 : f32, scale_in = f32} : (tensor<1x1x64xbf16>, tensor<64xbf16>) -> tensor<1x1x64xbf16>
  %qr = nn.reshape %qn {shape = [1, 1, 4, 32]} : (tensor<1x1x128xbf16>) -> tensor<1x1x4x32xbf16>
  %kr = nn.reshape %kn {shape = [1, 1, 2, 32]} : (tensor<1x1x64xbf16>) -> tensor<1x1x2x32xbf16>
  %qt = nn.transpose %qr {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x4x32xbf16>) -> tensor<1x4x1x32xbf16>
  %kt = nn.transpose %kr {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x2x32xbf16>) -> tensor<1x2x1x32xbf16>
  %qo = nn.rope %qt, %cos, %sin {compute = f32, interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x1x32xbf16>, tensor<1x32xf32>, tensor<1x32xf32>) -> tensor<1x4x1x32xbf16>
  %ko = nn.rope %kt, %cos, %sin {compute = f32, interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x1x32xbf16>, tensor<1x32xf32>, tensor<1x32xf32>) -> tensor<1x2x1x32xbf16>
  %keys = nn.concat %pk, %ko {axis = 2 : i64} : (tensor<1x2x7x32xbf16>, tensor<1x2x1x32xbf16>) -> tensor<1x2x8x32xbf16>
  %values = nn.concat %pv, %v {axis = 2 : i64} : (tensor<1x2x7x32xbf16>, tensor<1x2x1x32xbf16>) -> tensor<1x2x8x32xbf16>
  %o = nn.attention %qo, %keys, %values {scale = 0.17677 : f32} : (tensor<1x4x1x32xbf16>, tensor<1x2x8x32xbf16>, tensor<1x2x8x32xbf16>) -> tensor<1x4x1x32xbf16>
  return %o, %keys, %values : tensor<1x4x1x32xbf16>, tensor<1x2x8x32xbf16>, tensor<1x2x8x32xbf16>
}

// -----

// No attention reads the caches: the queries of the same angles and the values of the same shape go along. Another rotation
// and another cache stay out.
// CHECK-LABEL: @no_attention
// CHECK: nn.rope
// CHECK: %[[G:.*]]:3 = fusion.group "rope_kv_write" schedule "row"
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.concat
// CHECK-NEXT: nn.concat
// CHECK-NEXT: fusion.yield
// CHECK: nn.concat
// CHECK: return %[[G]]#0
func.func @no_attention(%q: tensor<1x4x3x32xf16>, %k: tensor<1x3x2x32xf16>, %v: tensor<1x2x3x32xf16>, %u: tensor<1x3x3x32xf16>,
                        %past_k: tensor<1x2x8x32xf16>, %past_v: tensor<1x2x8x32xf16>, %past_u: tensor<1x3x8x32xf16>,
                        %w: tensor<32xf16>, %cos: tensor<3x32xf16>, %sin: tensor<3x32xf16>, %cosr: tensor<3x32xf16>)
    -> (tensor<1x4x3x32xf16>, tensor<1x2x11x32xf16>, tensor<1x2x11x32xf16>, tensor<1x3x11x32xf16>, tensor<1x4x3x32xf16>) {
  %n = nn.rms_norm %q, %w {eps = 1.0e-6 : f32} : (tensor<1x4x3x32xf16>, tensor<32xf16>) -> tensor<1x4x3x32xf16>
  %0 = nn.rope %n, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x3x32xf16>, tensor<3x32xf16>, tensor<3x32xf16>) -> tensor<1x4x3x32xf16>
  %other = nn.rope %q, %cosr, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x3x32xf16>, tensor<3x32xf16>, tensor<3x32xf16>) -> tensor<1x4x3x32xf16>
  %t = nn.transpose %k {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x3x2x32xf16>) -> tensor<1x2x3x32xf16>
  %1 = nn.rope %t, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x3x32xf16>, tensor<3x32xf16>, tensor<3x32xf16>) -> tensor<1x2x3x32xf16>
  %2 = nn.concat %past_k, %1 {axis = 2 : i64} : (tensor<1x2x8x32xf16>, tensor<1x2x3x32xf16>) -> tensor<1x2x11x32xf16>
  %3 = nn.concat %past_v, %v {axis = 2 : i64} : (tensor<1x2x8x32xf16>, tensor<1x2x3x32xf16>) -> tensor<1x2x11x32xf16>
  %4 = nn.concat %past_u, %u {axis = 2 : i64} : (tensor<1x3x8x32xf16>, tensor<1x3x3x32xf16>) -> tensor<1x3x11x32xf16>
  return %0, %2, %3, %4, %other : tensor<1x4x3x32xf16>, tensor<1x2x11x32xf16>, tensor<1x2x11x32xf16>, tensor<1x3x11x32xf16>, tensor<1x4x3x32xf16>
}
