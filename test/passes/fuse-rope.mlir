// RUN: fusion-opt %s --fuse-rope --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-rope --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// Queries and keys have different head counts: rows of their own in one kernel.
// CHECK-LABEL: @grouped_heads
// CHECK: %[[G:.*]]:2 = fusion.group "rope" schedule "{{row|pointwise}}"
// CHECK-NEXT: %[[Q:.*]] = nn.rope
// CHECK-NEXT: %[[K:.*]] = nn.rope
// CHECK-NEXT: fusion.yield %[[Q]], %[[K]]
// CHECK: nn.attention %[[G]]#0, %[[G]]#1
func.func @grouped_heads(%q: tensor<1x4x8x32xbf16>, %k: tensor<1x2x8x32xbf16>, %v: tensor<1x2x8x32xbf16>,
                         %cos: tensor<1x1x8x32xbf16>, %sin: tensor<1x1x8x32xbf16>) -> tensor<1x4x8x32xbf16> {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x8x32xbf16>, tensor<1x1x8x32xbf16>, tensor<1x1x8x32xbf16>) -> tensor<1x4x8x32xbf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x8x32xbf16>, tensor<1x1x8x32xbf16>, tensor<1x1x8x32xbf16>) -> tensor<1x2x8x32xbf16>
  %2 = nn.attention %0, %1, %v {scale = 0.176776692 : f32, causal = true} : (tensor<1x4x8x32xbf16>, tensor<1x2x8x32xbf16>, tensor<1x2x8x32xbf16>) -> tensor<1x4x8x32xbf16>
  return %2 : tensor<1x4x8x32xbf16>
}

// -----

// The keys go after those of the past; interleaved pairs of a part of the head, tables in f32.
// CHECK-LABEL: @cached_interleaved_partial
// CHECK: fusion.group "rope" schedule "{{row|pointwise}}"
// CHECK: nn.rope {{.*}}interleaved = true, rotary_dim = 16
// CHECK: nn.rope {{.*}}interleaved = true, rotary_dim = 16
// CHECK: nn.concat
// CHECK: nn.attention
func.func @cached_interleaved_partial(%q: tensor<1x4x1x32xf16>, %k: tensor<1x2x1x32xf16>, %past: tensor<1x2x8x32xf16>, %v: tensor<1x2x9x32xf16>,
                         %cos: tensor<1x1x1x8xf32>, %sin: tensor<1x1x1x8xf32>) -> (tensor<1x4x1x32xf16>, tensor<1x2x9x32xf16>) {
  %0 = nn.rope %q, %cos, %sin {interleaved = true, rotary_dim = 16 : i64} : (tensor<1x4x1x32xf16>, tensor<1x1x1x8xf32>, tensor<1x1x1x8xf32>) -> tensor<1x4x1x32xf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = true, rotary_dim = 16 : i64} : (tensor<1x2x1x32xf16>, tensor<1x1x1x8xf32>, tensor<1x1x1x8xf32>) -> tensor<1x2x1x32xf16>
  %2 = nn.concat %past, %1 {axis = 2 : i64} : (tensor<1x2x8x32xf16>, tensor<1x2x1x32xf16>) -> tensor<1x2x9x32xf16>
  %3 = nn.attention %0, %2, %v {scale = 0.25 : f32} : (tensor<1x4x1x32xf16>, tensor<1x2x9x32xf16>, tensor<1x2x9x32xf16>) -> tensor<1x4x1x32xf16>
  return %3, %2 : tensor<1x4x1x32xf16>, tensor<1x2x9x32xf16>
}

// -----

// No attention: the same angles say that they belong together.
// CHECK-LABEL: @same_angles
// CHECK: fusion.group "rope" schedule "row"
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.rope
// CHECK-NEXT: fusion.yield
func.func @same_angles(%q: tensor<8x4x32xf16>, %k: tensor<8x2x32xf16>, %cos: tensor<8x1x16xf16>, %sin: tensor<8x1x16xf16>)
    -> (tensor<8x4x32xf16>, tensor<8x2x32xf16>) {
  %0 = nn.rope %q, %cos, %sin {interleaved = true, rotary_dim = 32 : i64} : (tensor<8x4x32xf16>, tensor<8x1x16xf16>, tensor<8x1x16xf16>) -> tensor<8x4x32xf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = true, rotary_dim = 32 : i64} : (tensor<8x2x32xf16>, tensor<8x1x16xf16>, tensor<8x1x16xf16>) -> tensor<8x2x32xf16>
  return %0, %1 : tensor<8x4x32xf16>, tensor<8x2x32xf16>
}

// -----

// CHECK-LABEL: @no_rotation
// CHECK-NOT: fusion.group
// MISS: rope missed at {{.*}}: operand 0 of nn.attention is a graph input, pattern wants nn.rope
func.func @no_rotation(%q: tensor<1x4x8x32xf32>, %k: tensor<1x4x8x32xf32>, %v: tensor<1x4x8x32xf32>) -> tensor<1x4x8x32xf32> {
  %0 = nn.attention %q, %k, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf32>, tensor<1x4x8x32xf32>, tensor<1x4x8x32xf32>) -> tensor<1x4x8x32xf32>
  return %0 : tensor<1x4x8x32xf32>
}

// -----

// The keys depend on the rotated queries: no kernel holds both without what stands between.
// CHECK-LABEL: @keys_from_queries
// CHECK-NOT: fusion.group
// MISS: rope missed at {{.*}}: not convex: nn.rope reads nn.silu
func.func @keys_from_queries(%q: tensor<1x4x8x32xf32>, %v: tensor<1x4x8x32xf32>,
                             %cos: tensor<1x1x8x32xf32>, %sin: tensor<1x1x8x32xf32>) -> tensor<1x4x8x32xf32> {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x8x32xf32>, tensor<1x1x8x32xf32>, tensor<1x1x8x32xf32>) -> tensor<1x4x8x32xf32>
  %k = nn.silu %0 : (tensor<1x4x8x32xf32>) -> tensor<1x4x8x32xf32>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x8x32xf32>, tensor<1x1x8x32xf32>, tensor<1x1x8x32xf32>) -> tensor<1x4x8x32xf32>
  %2 = nn.attention %0, %1, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf32>, tensor<1x4x8x32xf32>, tensor<1x4x8x32xf32>) -> tensor<1x4x8x32xf32>
  return %2 : tensor<1x4x8x32xf32>
}

// -----

// The keys are rotated first, and are a result too.
// CHECK-LABEL: @keys_first
// CHECK: %[[G:.*]]:2 = fusion.group "rope"
// CHECK: %[[A:.*]] = nn.attention %[[G]]#1, %[[G]]#0
// CHECK: return %[[A]], %[[G]]#0
func.func @keys_first(%q: tensor<1x4x8x32xf16>, %k: tensor<1x2x8x32xf16>, %v: tensor<1x2x8x32xf16>, %cos: tensor<8x32xf16>, %sin: tensor<8x32xf16>) -> (tensor<1x4x8x32xf16>, tensor<1x2x8x32xf16>) {
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x8x32xf16>, tensor<8x32xf16>, tensor<8x32xf16>) -> tensor<1x2x8x32xf16>
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x8x32xf16>, tensor<8x32xf16>, tensor<8x32xf16>) -> tensor<1x4x8x32xf16>
  %2 = nn.attention %0, %1, %v {scale = 0.17 : f32} : (tensor<1x4x8x32xf16>, tensor<1x2x8x32xf16>, tensor<1x2x8x32xf16>) -> tensor<1x4x8x32xf16>
  return %2, %1 : tensor<1x4x8x32xf16>, tensor<1x2x8x32xf16>
}

// -----

// Nobody reads the attention, nor the queries then.
// CHECK-LABEL: @dead_attention
// CHECK-NOT: fusion.group
// CHECK: nn.rope
// CHECK-NOT: nn.rope
// CHECK: return
func.func @dead_attention(%q: tensor<1x4x8x32xf16>, %k: tensor<1x2x8x32xf16>, %v: tensor<1x2x8x32xf16>, %cos: tensor<8x32xf16>, %sin: tensor<8x32xf16>) -> tensor<1x2x8x32xf16> {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x8x32xf16>, tensor<8x32xf16>, tensor<8x32xf16>) -> tensor<1x4x8x32xf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x8x32xf16>, tensor<8x32xf16>, tensor<8x32xf16>) -> tensor<1x2x8x32xf16>
  %2 = nn.attention %0, %1, %v {scale = 0.17 : f32} : (tensor<1x4x8x32xf16>, tensor<1x2x8x32xf16>, tensor<1x2x8x32xf16>) -> tensor<1x4x8x32xf16>
  return %1 : tensor<1x2x8x32xf16>
}
