// RUN: fusion-opt %s --fuse-qk-norm-rope --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-qk-norm-rope --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// CHECK-LABEL: @queries_and_keys
// CHECK: %[[G:.*]]:2 = fusion.group "qk_norm_rope" schedule "row"
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: nn.rope
// CHECK-NEXT: fusion.yield
// CHECK: nn.attention %[[G]]#0, %[[G]]#1
func.func @queries_and_keys(%q: tensor<1x4x8x32xbf16>, %k: tensor<1x2x8x32xbf16>, %v: tensor<1x2x8x32xbf16>, %a: tensor<32xbf16>, %b: tensor<32xbf16>,
                         %cos: tensor<1x1x8x32xbf16>, %sin: tensor<1x1x8x32xbf16>) -> tensor<1x4x8x32xbf16> {
  %n = nn.rms_norm %q, %a {eps = 1.0e-6 : f32} : (tensor<1x4x8x32xbf16>, tensor<32xbf16>) -> tensor<1x4x8x32xbf16>
  %0 = nn.rope %n, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x8x32xbf16>, tensor<1x1x8x32xbf16>, tensor<1x1x8x32xbf16>) -> tensor<1x4x8x32xbf16>
  %m = nn.rms_norm %k, %b {eps = 1.0e-6 : f32} : (tensor<1x2x8x32xbf16>, tensor<32xbf16>) -> tensor<1x2x8x32xbf16>
  %1 = nn.rope %m, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x8x32xbf16>, tensor<1x1x8x32xbf16>, tensor<1x1x8x32xbf16>) -> tensor<1x2x8x32xbf16>
  %2 = nn.attention %0, %1, %v {scale = 0.176776692 : f32, causal = true} : (tensor<1x4x8x32xbf16>, tensor<1x2x8x32xbf16>, tensor<1x2x8x32xbf16>) -> tensor<1x4x8x32xbf16>
  return %2 : tensor<1x4x8x32xbf16>
}

// -----

// Gemma: an f32 weight without its 1; the keys go after those of the past.
// CHECK-LABEL: @gemma_cached
// CHECK: fusion.group "qk_norm_rope" schedule "row"
// CHECK-COUNT-2: nn.rms_norm {{.*}}weight_bias = 1.000000e+00
// CHECK: nn.concat
func.func @gemma_cached(%q: tensor<1x4x1x32xbf16>, %k: tensor<1x2x1x32xbf16>, %past: tensor<1x2x8x32xbf16>, %v: tensor<1x2x9x32xbf16>, %a: tensor<32xf32>,
                         %cos: tensor<1x1x1x32xf32>, %sin: tensor<1x1x1x32xf32>) -> tensor<1x4x1x32xbf16> {
  %n = nn.rms_norm %q, %a {eps = 1.0e-6 : f32, weight_bias = 1.0 : f32} : (tensor<1x4x1x32xbf16>, tensor<32xf32>) -> tensor<1x4x1x32xbf16>
  %0 = nn.rope %n, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x1x32xbf16>, tensor<1x1x1x32xf32>, tensor<1x1x1x32xf32>) -> tensor<1x4x1x32xbf16>
  %m = nn.rms_norm %k, %a {eps = 1.0e-6 : f32, weight_bias = 1.0 : f32} : (tensor<1x2x1x32xbf16>, tensor<32xf32>) -> tensor<1x2x1x32xbf16>
  %1 = nn.rope %m, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x1x32xbf16>, tensor<1x1x1x32xf32>, tensor<1x1x1x32xf32>) -> tensor<1x2x1x32xbf16>
  %2 = nn.concat %past, %1 {axis = 2 : i64} : (tensor<1x2x8x32xbf16>, tensor<1x2x1x32xbf16>) -> tensor<1x2x9x32xbf16>
  %3 = nn.attention %0, %2, %v {scale = 0.25 : f32} : (tensor<1x4x1x32xbf16>, tensor<1x2x9x32xbf16>, tensor<1x2x9x32xbf16>) -> tensor<1x4x1x32xbf16>
  return %3 : tensor<1x4x1x32xbf16>
}

// -----

// LayerNorm with a bias (StableLM, Persimmon), a part of the head rotated.
// CHECK-LABEL: @layer_norm
// CHECK: fusion.group "qk_norm_rope" schedule "row"
// CHECK: nn.layer_norm
// CHECK: nn.rope
// CHECK: nn.layer_norm
// CHECK: nn.rope
func.func @layer_norm(%q: tensor<1x4x8x32xf16>, %k: tensor<1x2x8x32xf16>, %v: tensor<1x2x8x32xf16>, %a: tensor<32xf16>, %b: tensor<32xf16>,
                         %cos: tensor<8x16xf16>, %sin: tensor<8x16xf16>) -> tensor<1x4x8x32xf16> {
  %n = nn.layer_norm %q, %a, %b {eps = 1.0e-5 : f32} : (tensor<1x4x8x32xf16>, tensor<32xf16>, tensor<32xf16>) -> tensor<1x4x8x32xf16>
  %0 = nn.rope %n, %cos, %sin {interleaved = false, rotary_dim = 16 : i64} : (tensor<1x4x8x32xf16>, tensor<8x16xf16>, tensor<8x16xf16>) -> tensor<1x4x8x32xf16>
  %m = nn.layer_norm %k, %a, %b {eps = 1.0e-5 : f32} : (tensor<1x2x8x32xf16>, tensor<32xf16>, tensor<32xf16>) -> tensor<1x2x8x32xf16>
  %1 = nn.rope %m, %cos, %sin {interleaved = false, rotary_dim = 16 : i64} : (tensor<1x2x8x32xf16>, tensor<8x16xf16>, tensor<8x16xf16>) -> tensor<1x2x8x32xf16>
  %2 = nn.attention %0, %1, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf16>, tensor<1x2x8x32xf16>, tensor<1x2x8x32xf16>) -> tensor<1x4x8x32xf16>
  return %2 : tensor<1x4x8x32xf16>
}

// -----

// Without an attention, what is rotated by the same angles is one kernel.
// CHECK-LABEL: @same_angles
// CHECK: %[[G:.*]]:2 = fusion.group "qk_norm_rope" schedule "row"
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.rope
// CHECK: return %[[G]]#0, %[[G]]#1
func.func @same_angles(%q: tensor<8x4x32xbf16>, %k: tensor<8x2x32xbf16>, %a: tensor<32xbf16>, %b: tensor<32xbf16>,
                       %cos: tensor<8x1x32xbf16>, %sin: tensor<8x1x32xbf16>) -> (tensor<8x4x32xbf16>, tensor<8x2x32xbf16>) {
  %n = nn.rms_norm %q, %a {eps = 1.0e-6 : f32} : (tensor<8x4x32xbf16>, tensor<32xbf16>) -> tensor<8x4x32xbf16>
  %m = nn.rms_norm %k, %b {eps = 1.0e-6 : f32} : (tensor<8x2x32xbf16>, tensor<32xbf16>) -> tensor<8x2x32xbf16>
  %0 = nn.rope %n, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<8x4x32xbf16>, tensor<8x1x32xbf16>, tensor<8x1x32xbf16>) -> tensor<8x4x32xbf16>
  %1 = nn.rope %m, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<8x2x32xbf16>, tensor<8x1x32xbf16>, tensor<8x1x32xbf16>) -> tensor<8x2x32xbf16>
  return %0, %1 : tensor<8x4x32xbf16>, tensor<8x2x32xbf16>
}

// -----

// Other angles: a kernel each.
// CHECK-LABEL: @other_angles
// CHECK-COUNT-2: fusion.group "qk_norm_rope"
func.func @other_angles(%q: tensor<8x4x32xbf16>, %k: tensor<8x2x32xbf16>, %a: tensor<32xbf16>, %b: tensor<32xbf16>,
                        %cos: tensor<8x1x32xbf16>, %sin: tensor<8x1x32xbf16>) -> (tensor<8x4x32xbf16>, tensor<8x2x32xbf16>) {
  %n = nn.rms_norm %q, %a {eps = 1.0e-6 : f32} : (tensor<8x4x32xbf16>, tensor<32xbf16>) -> tensor<8x4x32xbf16>
  %m = nn.rms_norm %k, %b {eps = 1.0e-6 : f32} : (tensor<8x2x32xbf16>, tensor<32xbf16>) -> tensor<8x2x32xbf16>
  %0 = nn.rope %n, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<8x4x32xbf16>, tensor<8x1x32xbf16>, tensor<8x1x32xbf16>) -> tensor<8x4x32xbf16>
  %1 = nn.rope %m, %sin, %cos {interleaved = false, rotary_dim = 32 : i64} : (tensor<8x2x32xbf16>, tensor<8x1x32xbf16>, tensor<8x1x32xbf16>) -> tensor<8x2x32xbf16>
  return %0, %1 : tensor<8x4x32xbf16>, tensor<8x2x32xbf16>
}

// -----

// A rotation without its attention.
// CHECK-LABEL: @alone
// CHECK: fusion.group "qk_norm_rope" schedule "row"
func.func @alone(%q: tensor<1x4x8x32xf32>, %a: tensor<32xf32>, %cos: tensor<1x1x8x32xf32>, %sin: tensor<1x1x8x32xf32>) -> tensor<1x4x8x32xf32> {
  %n = nn.rms_norm %q, %a {eps = 1.0e-6 : f32} : (tensor<1x4x8x32xf32>, tensor<32xf32>) -> tensor<1x4x8x32xf32>
  %0 = nn.rope %n, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x8x32xf32>, tensor<1x1x8x32xf32>, tensor<1x1x8x32xf32>) -> tensor<1x4x8x32xf32>
  return %0 : tensor<1x4x8x32xf32>
}

// -----

// CHECK-LABEL: @no_norm
// CHECK-NOT: fusion.group
// MISS: qk_norm_rope missed at {{.*}}: operand 0 of nn.rope is produced by nn.silu, pattern wants a norm
func.func @no_norm(%q: tensor<1x4x8x32xf32>, %cos: tensor<1x1x8x32xf32>, %sin: tensor<1x1x8x32xf32>) -> tensor<1x4x8x32xf32> {
  %n = nn.silu %q : (tensor<1x4x8x32xf32>) -> tensor<1x4x8x32xf32>
  %0 = nn.rope %n, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x8x32xf32>, tensor<1x1x8x32xf32>, tensor<1x1x8x32xf32>) -> tensor<1x4x8x32xf32>
  return %0 : tensor<1x4x8x32xf32>
}

// -----

// CHECK-LABEL: @dynamic_head
// CHECK-NOT: fusion.group
// MISS: qk_norm_rope missed at {{.*}}: guard StaticLastDim: the last dim of {{.*}} is known only at run time
func.func @dynamic_head(%q: tensor<1x4x8x?xf32> {nn.dims = [1, 4, 8, "d"]}, %a: tensor<?xf32> {nn.dims = ["d"]}, %cos: tensor<8x16xf32>, %sin: tensor<8x16xf32>)
    -> tensor<1x4x8x?xf32> {
  %n = nn.rms_norm %q, %a {eps = 1.0e-6 : f32} : (tensor<1x4x8x?xf32>, tensor<?xf32>) -> tensor<1x4x8x?xf32>
  %0 = nn.rope %n, %cos, %sin {interleaved = false, rotary_dim = 16 : i64} : (tensor<1x4x8x?xf32>, tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<1x4x8x?xf32>
  return %0 : tensor<1x4x8x?xf32>
}

// -----

// OLMo 2: one norm over all heads together, before the split and the transpose; the tables are f32 and so is the rotation.
// CHECK-LABEL: @whole_norm
// CHECK: %[[G:.*]]:2 = fusion.group "qk_norm_rope" schedule "row"
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: nn.reshape
// CHECK-NEXT: nn.reshape
// CHECK-NEXT: nn.transpose
// CHECK-NEXT: nn.transpose
// CHECK-NEXT: nn.rope {{.*}}compute = f32
// CHECK-NEXT: nn.rope {{.*}}compute = f32
// CHECK-NEXT: fusion.yield
// CHECK: nn.attention %[[G]]#0, %[[G]]#1
func.func @whole_norm(%q: tensor<1x8x128xbf16>, %k: tensor<1x8x64xbf16>, %v: tensor<1x2x8x32xbf16>, %a: tensor<128xbf16>, %b: tensor<64xbf16>,
                      %cos: tensor<1x1x8x32xf32>, %sin: tensor<1x1x8x32xf32>) -> tensor<1x4x8x32xbf16> {
  %qn = nn.rms_norm %q, %a {eps = 1.0e-6 : f32, scale_in = f32} : (tensor<1x8x128xbf16>, tensor<128xbf16>) -> tensor<1x8x128xbf16>
  %kn = nn.rms_norm %k, %b {eps = 1.0e-6 : f32, scale_in = f32} : (tensor<1x8x64xbf16>, tensor<64xbf16>) -> tensor<1x8x64xbf16>
  %qr = nn.reshape %qn {shape = [1, 8, 4, 32]} : (tensor<1x8x128xbf16>) -> tensor<1x8x4x32xbf16>
  %kr = nn.reshape %kn {shape = [1, 8, 2, 32]} : (tensor<1x8x64xbf16>) -> tensor<1x8x2x32xbf16>
  %qt = nn.transpose %qr {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x8x4x32xbf16>) -> tensor<1x4x8x32xbf16>
  %kt = nn.transpose %kr {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x8x2x32xbf16>) -> tensor<1x2x8x32xbf16>
  %qo = nn.rope %qt, %cos, %sin {compute = f32, interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x8x32xbf16>, tensor<1x1x8x32xf32>, tensor<1x1x8x32xf32>) -> tensor<1x4x8x32xbf16>
  %ko = nn.rope %kt, %cos, %sin {compute = f32, interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x8x32xbf16>, tensor<1x1x8x32xf32>, tensor<1x1x8x32xf32>) -> tensor<1x2x8x32xbf16>
  %o = nn.attention %qo, %ko, %v {scale = 0.17677 : f32, causal = true} : (tensor<1x4x8x32xbf16>, tensor<1x2x8x32xbf16>, tensor<1x2x8x32xbf16>) -> tensor<1x4x8x32xbf16>
  return %o : tensor<1x4x8x32xbf16>
}

// -----

// The norm is f32 and cast to the model's type before it rotates.
// CHECK-LABEL: @cast_between
// CHECK: fusion.group "qk_norm_rope" schedule "row"
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: nn.cast
// CHECK-NEXT: nn.rope
// CHECK-NEXT: fusion.yield
func.func @cast_between(%q: tensor<1x4x8x32xf32>, %a: tensor<32xf32>, %cos: tensor<8x32xf16>, %sin: tensor<8x32xf16>) -> tensor<1x4x8x32xf16> {
  %n = nn.rms_norm %q, %a {eps = 1.0e-6 : f32} : (tensor<1x4x8x32xf32>, tensor<32xf32>) -> tensor<1x4x8x32xf32>
  %c = nn.cast %n : (tensor<1x4x8x32xf32>) -> tensor<1x4x8x32xf16>
  %0 = nn.rope %c, %cos, %sin {interleaved = true, rotary_dim = 32 : i64} : (tensor<1x4x8x32xf16>, tensor<8x32xf16>, tensor<8x32xf16>) -> tensor<1x4x8x32xf16>
  return %0 : tensor<1x4x8x32xf16>
}

// -----

// Somebody else reads the split heads: they are not the rotation's alone.
// CHECK-LABEL: @heads_used
// CHECK-NOT: fusion.group
// CHECK: return
// MISS: qk_norm_rope missed at {{.*}}: operand 0 of nn.rope is produced by nn.reshape, pattern wants a norm
func.func @heads_used(%q: tensor<8x128xf32>, %a: tensor<128xf32>, %cos: tensor<8x1x32xf32>, %sin: tensor<8x1x32xf32>) -> (tensor<8x4x32xf32>, tensor<8x4x32xf32>) {
  %n = nn.rms_norm %q, %a {eps = 1.0e-6 : f32} : (tensor<8x128xf32>, tensor<128xf32>) -> tensor<8x128xf32>
  %h = nn.reshape %n {shape = [8, 4, 32]} : (tensor<8x128xf32>) -> tensor<8x4x32xf32>
  %0 = nn.rope %h, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<8x4x32xf32>, tensor<8x1x32xf32>, tensor<8x1x32xf32>) -> tensor<8x4x32xf32>
  return %h, %0 : tensor<8x4x32xf32>, tensor<8x4x32xf32>
}

// -----

// Rows that are no heads: the reshape mixes tokens.
// CHECK-LABEL: @mixed_rows
// CHECK-NOT: fusion.group
// CHECK: return
// MISS: qk_norm_rope missed at {{.*}}: no schedule: {{.*}}row: output 0 of shape {{.*}} has other rows than
func.func @mixed_rows(%q: tensor<8x48xf32>, %a: tensor<48xf32>, %cos: tensor<32xf32>, %sin: tensor<32xf32>) -> tensor<12x32xf32> {
  %n = nn.rms_norm %q, %a {eps = 1.0e-6 : f32} : (tensor<8x48xf32>, tensor<48xf32>) -> tensor<8x48xf32>
  %h = nn.reshape %n {shape = [12, 32]} : (tensor<8x48xf32>) -> tensor<12x32xf32>
  %0 = nn.rope %h, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<12x32xf32>, tensor<32xf32>, tensor<32xf32>) -> tensor<12x32xf32>
  return %0 : tensor<12x32xf32>
}

// -----

// Hunyuan: the norm follows the rotation.
// CHECK-LABEL: @norm_after
// CHECK: %[[G:.*]]:2 = fusion.group "qk_norm_rope" schedule "row"
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: fusion.yield
// CHECK: nn.attention %[[G]]#0, %[[G]]#1
func.func @norm_after(%q: tensor<1x4x8x32xf16>, %k: tensor<1x2x8x32xf16>, %v: tensor<1x2x8x32xf16>, %a: tensor<32xf16>, %b: tensor<32xf16>,
                       %cos: tensor<1x1x8x32xf16>, %sin: tensor<1x1x8x32xf16>) -> tensor<1x4x8x32xf16> {
  %qo = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x8x32xf16>, tensor<1x1x8x32xf16>, tensor<1x1x8x32xf16>) -> tensor<1x4x8x32xf16>
  %ko = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x8x32xf16>, tensor<1x1x8x32xf16>, tensor<1x1x8x32xf16>) -> tensor<1x2x8x32xf16>
  %qn = nn.rms_norm %qo, %a {eps = 1.0e-6 : f32} : (tensor<1x4x8x32xf16>, tensor<32xf16>) -> tensor<1x4x8x32xf16>
  %kn = nn.rms_norm %ko, %b {eps = 1.0e-6 : f32} : (tensor<1x2x8x32xf16>, tensor<32xf16>) -> tensor<1x2x8x32xf16>
  %o = nn.attention %qn, %kn, %v {scale = 0.17677 : f32, causal = true} : (tensor<1x4x8x32xf16>, tensor<1x2x8x32xf16>, tensor<1x2x8x32xf16>) -> tensor<1x4x8x32xf16>
  return %o : tensor<1x4x8x32xf16>
}

// -----

// Alone, and a LayerNorm.
// CHECK-LABEL: @layer_norm_after
// CHECK: fusion.group "qk_norm_rope" schedule "row"
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.layer_norm
// CHECK-NEXT: fusion.yield
func.func @layer_norm_after(%q: tensor<1x4x8x32xf32>, %a: tensor<32xf32>, %b: tensor<32xf32>, %cos: tensor<8x32xf32>, %sin: tensor<8x32xf32>) -> tensor<1x4x8x32xf32> {
  %0 = nn.rope %q, %cos, %sin {interleaved = true, rotary_dim = 32 : i64} : (tensor<1x4x8x32xf32>, tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<1x4x8x32xf32>
  %n = nn.layer_norm %0, %a, %b {eps = 1.0e-6 : f32} : (tensor<1x4x8x32xf32>, tensor<32xf32>, tensor<32xf32>) -> tensor<1x4x8x32xf32>
  return %n : tensor<1x4x8x32xf32>
}

// -----

// The rotated heads are read as they are, too: the norm reads them from memory.
// CHECK-LABEL: @rotated_used
// CHECK-NOT: fusion.group
// CHECK: return
func.func @rotated_used(%q: tensor<1x4x8x32xf32>, %a: tensor<32xf32>, %cos: tensor<8x32xf32>, %sin: tensor<8x32xf32>) -> (tensor<1x4x8x32xf32>, tensor<1x4x8x32xf32>) {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x8x32xf32>, tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<1x4x8x32xf32>
  %n = nn.rms_norm %0, %a {eps = 1.0e-6 : f32} : (tensor<1x4x8x32xf32>, tensor<32xf32>) -> tensor<1x4x8x32xf32>
  return %0, %n : tensor<1x4x8x32xf32>, tensor<1x4x8x32xf32>
}
