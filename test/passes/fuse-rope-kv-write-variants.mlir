// RUN: fusion-opt %s --fuse-rope-kv-write --split-input-file | FileCheck %s

// Somebody else reads the rotated keys: they leave the kernel too.
// CHECK-LABEL: @keys_read_elsewhere
// CHECK: %[[G:.*]]:4 = fusion.group "rope_kv_write" schedule "row"
// CHECK-NEXT: nn.rope
// CHECK-NEXT: %[[K:.*]] = nn.rope
// CHECK-NEXT: nn.concat {{.*}}, %[[K]]
// CHECK-NEXT: nn.concat
// CHECK-NEXT: fusion.yield %{{.*}}, %[[K]],
// CHECK: %[[A:.*]] = nn.attention %[[G]]#0, %[[G]]#2, %[[G]]#3
// CHECK: return %[[A]], %[[G]]#1, %[[G]]#2
func.func @keys_read_elsewhere(%q: tensor<1x4x1x32xf16>, %k: tensor<1x2x1x32xf16>, %v: tensor<1x2x1x32xf16>, %past_k: tensor<1x2x8x32xf16>, %past_v: tensor<1x2x8x32xf16>,
                               %cos: tensor<1x32xf16>, %sin: tensor<1x32xf16>) -> (tensor<1x4x1x32xf16>, tensor<1x2x1x32xf16>, tensor<1x2x9x32xf16>) {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x1x32xf16>, tensor<1x32xf16>, tensor<1x32xf16>) -> tensor<1x4x1x32xf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x1x32xf16>, tensor<1x32xf16>, tensor<1x32xf16>) -> tensor<1x2x1x32xf16>
  %2 = nn.concat %past_k, %1 {axis = 2 : i64} : (tensor<1x2x8x32xf16>, tensor<1x2x1x32xf16>) -> tensor<1x2x9x32xf16>
  %3 = nn.concat %past_v, %v {axis = 2 : i64} : (tensor<1x2x8x32xf16>, tensor<1x2x1x32xf16>) -> tensor<1x2x9x32xf16>
  %4 = nn.attention %0, %2, %3 {scale = 0.25 : f32} : (tensor<1x4x1x32xf16>, tensor<1x2x9x32xf16>, tensor<1x2x9x32xf16>) -> tensor<1x4x1x32xf16>
  return %4, %1, %2 : tensor<1x4x1x32xf16>, tensor<1x2x1x32xf16>, tensor<1x2x9x32xf16>
}

// -----

// The other way round: values before keys, keys before queries.
// CHECK-LABEL: @values_first
// CHECK: %[[G:.*]]:3 = fusion.group "rope_kv_write" schedule "row"
// CHECK-NEXT: nn.concat
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.concat
// CHECK-NEXT: nn.rope
// CHECK-NEXT: fusion.yield
// CHECK: %[[A:.*]] = nn.attention %[[G]]#2, %[[G]]#1, %[[G]]#0
// CHECK: return %[[A]], %[[G]]#0, %[[G]]#1
func.func @values_first(%q: tensor<1x4x1x32xf16>, %k: tensor<1x2x1x32xf16>, %v: tensor<1x2x1x32xf16>, %past_k: tensor<1x2x8x32xf16>, %past_v: tensor<1x2x8x32xf16>,
                        %cos: tensor<1x32xf16>, %sin: tensor<1x32xf16>) -> (tensor<1x4x1x32xf16>, tensor<1x2x9x32xf16>, tensor<1x2x9x32xf16>) {
  %3 = nn.concat %past_v, %v {axis = 2 : i64} : (tensor<1x2x8x32xf16>, tensor<1x2x1x32xf16>) -> tensor<1x2x9x32xf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x1x32xf16>, tensor<1x32xf16>, tensor<1x32xf16>) -> tensor<1x2x1x32xf16>
  %2 = nn.concat %past_k, %1 {axis = 2 : i64} : (tensor<1x2x8x32xf16>, tensor<1x2x1x32xf16>) -> tensor<1x2x9x32xf16>
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x1x32xf16>, tensor<1x32xf16>, tensor<1x32xf16>) -> tensor<1x4x1x32xf16>
  %4 = nn.attention %0, %2, %3 {scale = 0.25 : f32} : (tensor<1x4x1x32xf16>, tensor<1x2x9x32xf16>, tensor<1x2x9x32xf16>) -> tensor<1x4x1x32xf16>
  return %4, %3, %2 : tensor<1x4x1x32xf16>, tensor<1x2x9x32xf16>, tensor<1x2x9x32xf16>
}

// -----

// The past after the new ones: a concat like any other, whose second part nothing rotates.
// CHECK-LABEL: @past_after
// CHECK: %[[K:.*]] = nn.rope
// CHECK: fusion.group "rope_kv_write" schedule "row" ({{.*}} = %[[K]]
// CHECK-NEXT: nn.concat
// CHECK-NEXT: nn.concat
// CHECK-NEXT: nn.rope
// CHECK-NEXT: fusion.yield
func.func @past_after(%q: tensor<1x4x1x32xf16>, %k: tensor<1x2x1x32xf16>, %v: tensor<1x2x1x32xf16>, %past_k: tensor<1x2x8x32xf16>, %past_v: tensor<1x2x8x32xf16>,
                       %cos: tensor<1x32xf16>, %sin: tensor<1x32xf16>) -> (tensor<1x4x1x32xf16>, tensor<1x2x9x32xf16>, tensor<1x2x9x32xf16>) {
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x1x32xf16>, tensor<1x32xf16>, tensor<1x32xf16>) -> tensor<1x2x1x32xf16>
  %2 = nn.concat %1, %past_k {axis = 2 : i64} : (tensor<1x2x1x32xf16>, tensor<1x2x8x32xf16>) -> tensor<1x2x9x32xf16>
  %3 = nn.concat %v, %past_v {axis = 2 : i64} : (tensor<1x2x1x32xf16>, tensor<1x2x8x32xf16>) -> tensor<1x2x9x32xf16>
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x1x32xf16>, tensor<1x32xf16>, tensor<1x32xf16>) -> tensor<1x4x1x32xf16>
  %4 = nn.attention %0, %2, %3 {scale = 0.25 : f32} : (tensor<1x4x1x32xf16>, tensor<1x2x9x32xf16>, tensor<1x2x9x32xf16>) -> tensor<1x4x1x32xf16>
  return %4, %3, %2 : tensor<1x4x1x32xf16>, tensor<1x2x9x32xf16>, tensor<1x2x9x32xf16>
}

// -----

// Nobody reads the attention: what is left are the writes, and the queries go with it.
// CHECK-LABEL: @dead
// CHECK: %[[G:.*]]:2 = fusion.group "rope_kv_write" schedule "row"
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.concat
// CHECK-NEXT: nn.concat
// CHECK-NEXT: fusion.yield
// CHECK: return %[[G]]#0, %[[G]]#1
func.func @dead(%q: tensor<1x4x1x32xf16>, %k: tensor<1x2x1x32xf16>, %v: tensor<1x2x1x32xf16>, %past_k: tensor<1x2x8x32xf16>, %past_v: tensor<1x2x8x32xf16>,
                %cos: tensor<1x32xf16>, %sin: tensor<1x32xf16>) -> (tensor<1x2x9x32xf16>, tensor<1x2x9x32xf16>) {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x1x32xf16>, tensor<1x32xf16>, tensor<1x32xf16>) -> tensor<1x4x1x32xf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x1x32xf16>, tensor<1x32xf16>, tensor<1x32xf16>) -> tensor<1x2x1x32xf16>
  %2 = nn.concat %past_k, %1 {axis = 2 : i64} : (tensor<1x2x8x32xf16>, tensor<1x2x1x32xf16>) -> tensor<1x2x9x32xf16>
  %3 = nn.concat %past_v, %v {axis = 2 : i64} : (tensor<1x2x8x32xf16>, tensor<1x2x1x32xf16>) -> tensor<1x2x9x32xf16>
  %4 = nn.attention %0, %2, %3 {scale = 0.25 : f32} : (tensor<1x4x1x32xf16>, tensor<1x2x9x32xf16>, tensor<1x2x9x32xf16>) -> tensor<1x4x1x32xf16>
  return %2, %3 : tensor<1x2x9x32xf16>, tensor<1x2x9x32xf16>
}

// -----

// Caches of codes: the quantisation of what is new goes along. A transpose in front of it stays a view.
// CHECK-LABEL: @codes
// CHECK: fusion.group "rope_kv_write" schedule "row"
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.quantize
// CHECK-NEXT: nn.quantize
// CHECK-NEXT: nn.concat
// CHECK-NEXT: nn.concat
// CHECK-NEXT: fusion.yield
// CHECK: nn.dequantize
func.func @codes(%q: tensor<1x4x3x32xf16>, %k: tensor<1x2x3x32xf16>, %v: tensor<1x3x2x32xf16>, %past_k: tensor<1x2x8x32xi8>,
                 %past_v: tensor<1x2x8x32xi8>, %s: tensor<f32>, %cos: tensor<3x32xf16>, %sin: tensor<3x32xf16>)
    -> (tensor<1x4x3x32xf16>, tensor<1x2x11x32xi8>, tensor<1x2x11x32xi8>) {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x3x32xf16>, tensor<3x32xf16>, tensor<3x32xf16>) -> tensor<1x4x3x32xf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x3x32xf16>, tensor<3x32xf16>, tensor<3x32xf16>) -> tensor<1x2x3x32xf16>
  %t = nn.transpose %v {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x3x2x32xf16>) -> tensor<1x2x3x32xf16>
  %2 = nn.quantize %1, %s : (tensor<1x2x3x32xf16>, tensor<f32>) -> tensor<1x2x3x32xi8>
  %3 = nn.quantize %t, %s : (tensor<1x2x3x32xf16>, tensor<f32>) -> tensor<1x2x3x32xi8>
  %4 = nn.concat %past_k, %2 {axis = 2 : i64} : (tensor<1x2x8x32xi8>, tensor<1x2x3x32xi8>) -> tensor<1x2x11x32xi8>
  %5 = nn.concat %past_v, %3 {axis = 2 : i64} : (tensor<1x2x8x32xi8>, tensor<1x2x3x32xi8>) -> tensor<1x2x11x32xi8>
  %6 = nn.dequantize %4, %s : (tensor<1x2x11x32xi8>, tensor<f32>) -> tensor<1x2x11x32xf16>
  %7 = nn.dequantize %5, %s : (tensor<1x2x11x32xi8>, tensor<f32>) -> tensor<1x2x11x32xf16>
  %8 = nn.attention %0, %6, %7 {scale = 0.17677 : f32} : (tensor<1x4x3x32xf16>, tensor<1x2x11x32xf16>, tensor<1x2x11x32xf16>) -> tensor<1x4x3x32xf16>
  return %8, %4, %5 : tensor<1x4x3x32xf16>, tensor<1x2x11x32xi8>, tensor<1x2x11x32xi8>
}
