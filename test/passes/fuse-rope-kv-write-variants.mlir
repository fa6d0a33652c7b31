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

// -----

// New keys and values go to their slots of pages that lie in place.
// CHECK-LABEL: @pages
// CHECK: fusion.group "rope_kv_write" schedule "row"
// CHECK-DAG: nn.rope
// CHECK-DAG: nn.rope
// CHECK-DAG: nn.scatter_nd
// CHECK-DAG: nn.scatter_nd
// CHECK: fusion.yield
// CHECK: nn.attention
func.func @pages(%q: tensor<3x4x32xf16>, %k: tensor<3x2x32xf16>, %v: tensor<3x2x32xf16>, %kp: tensor<9x16x2x32xf16> {nn.dims = [9, 16, 2, 32], nn.storage = [9, 16, 2, 32]}, %vp: tensor<9x16x2x32xf16> {nn.dims = [9, 16, 2, 32], nn.storage = [9, 16, 2, 32]}, %slots: tensor<3x1xi64>, %table: tensor<3x4xi32>, %cos: tensor<3x1x16xf16>, %sin: tensor<3x1x16xf16>) -> (tensor<3x4x1x32xf16>, tensor<9x16x2x32xf16> {nn.alias = 3 : i64}, tensor<9x16x2x32xf16> {nn.alias = 4 : i64}) {
  %qr = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<3x4x32xf16>, tensor<3x1x16xf16>, tensor<3x1x16xf16>) -> tensor<3x4x32xf16>
  %kr = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<3x2x32xf16>, tensor<3x1x16xf16>, tensor<3x1x16xf16>) -> tensor<3x2x32xf16>
  %ks = nn.reshape %kp {shape = [144, 2, 32]} : (tensor<9x16x2x32xf16>) -> tensor<144x2x32xf16>
  %kw = nn.scatter_nd %ks, %slots, %kr : (tensor<144x2x32xf16>, tensor<3x1xi64>, tensor<3x2x32xf16>) -> tensor<144x2x32xf16>
  %ka = nn.reshape %kw {shape = [9, 16, 2, 32]} : (tensor<144x2x32xf16>) -> tensor<9x16x2x32xf16>
  %vs = nn.reshape %vp {shape = [144, 2, 32]} : (tensor<9x16x2x32xf16>) -> tensor<144x2x32xf16>
  %vw = nn.scatter_nd %vs, %slots, %v : (tensor<144x2x32xf16>, tensor<3x1xi64>, tensor<3x2x32xf16>) -> tensor<144x2x32xf16>
  %va = nn.reshape %vw {shape = [9, 16, 2, 32]} : (tensor<144x2x32xf16>) -> tensor<9x16x2x32xf16>
  %kg = nn.gather %ka, %table {axis = 0 : i64} : (tensor<9x16x2x32xf16>, tensor<3x4xi32>) -> tensor<3x4x16x2x32xf16>
  %kj = nn.reshape %kg {shape = [3, 64, 2, 32]} : (tensor<3x4x16x2x32xf16>) -> tensor<3x64x2x32xf16>
  %kt = nn.transpose %kj {perm = array<i64: 0, 2, 1, 3>} : (tensor<3x64x2x32xf16>) -> tensor<3x2x64x32xf16>
  %vg = nn.gather %va, %table {axis = 0 : i64} : (tensor<9x16x2x32xf16>, tensor<3x4xi32>) -> tensor<3x4x16x2x32xf16>
  %vj = nn.reshape %vg {shape = [3, 64, 2, 32]} : (tensor<3x4x16x2x32xf16>) -> tensor<3x64x2x32xf16>
  %vt = nn.transpose %vj {perm = array<i64: 0, 2, 1, 3>} : (tensor<3x64x2x32xf16>) -> tensor<3x2x64x32xf16>
  %qh = nn.reshape %qr {shape = [3, 4, 1, 32]} : (tensor<3x4x32xf16>) -> tensor<3x4x1x32xf16>
  %y = nn.attention %qh, %kt, %vt {scale = 0.25 : f32} : (tensor<3x4x1x32xf16>, tensor<3x2x64x32xf16>, tensor<3x2x64x32xf16>) -> tensor<3x4x1x32xf16>
  return %y, %ka, %va : tensor<3x4x1x32xf16>, tensor<9x16x2x32xf16>, tensor<9x16x2x32xf16>
}

// -----

// Pages that are not written in place are copied by another kernel.
// CHECK-LABEL: @copied_pages
// CHECK-NOT: fusion.group
func.func @copied_pages(%q: tensor<3x4x1x32xf16>, %k: tensor<3x2x32xf16>, %v: tensor<9x16x2x32xf16>, %kp: tensor<144x2x32xf16>, %slots: tensor<3x1xi64>, %table: tensor<3x4xi32>, %cos: tensor<3x1x16xf16>, %sin: tensor<3x1x16xf16>) -> (tensor<3x4x1x32xf16>, tensor<144x2x32xf16>) {
  %kr = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<3x2x32xf16>, tensor<3x1x16xf16>, tensor<3x1x16xf16>) -> tensor<3x2x32xf16>
  %kw = nn.scatter_nd %kp, %slots, %kr : (tensor<144x2x32xf16>, tensor<3x1xi64>, tensor<3x2x32xf16>) -> tensor<144x2x32xf16>
  %ka = nn.reshape %kw {shape = [9, 16, 2, 32]} : (tensor<144x2x32xf16>) -> tensor<9x16x2x32xf16>
  %kg = nn.gather %ka, %table {axis = 0 : i64} : (tensor<9x16x2x32xf16>, tensor<3x4xi32>) -> tensor<3x4x16x2x32xf16>
  %kj = nn.reshape %kg {shape = [3, 64, 2, 32]} : (tensor<3x4x16x2x32xf16>) -> tensor<3x64x2x32xf16>
  %kt = nn.transpose %kj {perm = array<i64: 0, 2, 1, 3>} : (tensor<3x64x2x32xf16>) -> tensor<3x2x64x32xf16>
  %y = nn.attention %q, %kt, %kt {scale = 0.25 : f32} : (tensor<3x4x1x32xf16>, tensor<3x2x64x32xf16>, tensor<3x2x64x32xf16>) -> tensor<3x4x1x32xf16>
  return %y, %kw : tensor<3x4x1x32xf16>, tensor<144x2x32xf16>
}
