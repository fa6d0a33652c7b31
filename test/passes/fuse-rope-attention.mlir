// RUN: fusion-opt %s --fuse-rope-attention --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-rope-attention --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// One new position: the attention makes its heads itself.
// CHECK-LABEL: @decode
// CHECK: fusion.group "rope_attention" schedule "rope_attention"
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.concat
// CHECK-NEXT: nn.concat
// CHECK-NEXT: nn.attention
// CHECK-NEXT: fusion.yield
func.func @decode(%q: tensor<1x4x1x32xbf16>, %k: tensor<1x2x1x32xbf16>, %v: tensor<1x2x1x32xbf16>,
    %pk: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "p", 32], nn.storage = [1, 2, 64, 32]}, %pv: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "p", 32], nn.storage = [1, 2, 64, 32]},
    %cos: tensor<1x1x1x32xbf16>, %sin: tensor<1x1x1x32xbf16>)
    -> (tensor<1x4x1x32xbf16>, tensor<1x2x?x32xbf16> {nn.alias = 3 : i64}, tensor<1x2x?x32xbf16> {nn.alias = 4 : i64}) {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x1x32xbf16>, tensor<1x1x1x32xbf16>, tensor<1x1x1x32xbf16>) -> tensor<1x4x1x32xbf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x1x32xbf16>, tensor<1x1x1x32xbf16>, tensor<1x1x1x32xbf16>) -> tensor<1x2x1x32xbf16>
  %2 = nn.concat %pk, %1 {axis = 2 : i64} : (tensor<1x2x?x32xbf16>, tensor<1x2x1x32xbf16>) -> tensor<1x2x?x32xbf16>
  %3 = nn.concat %pv, %v {axis = -2 : i64} : (tensor<1x2x?x32xbf16>, tensor<1x2x1x32xbf16>) -> tensor<1x2x?x32xbf16>
  %4 = nn.attention %0, %2, %3 {scale = 0.25 : f32} : (tensor<1x4x1x32xbf16>, tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>) -> tensor<1x4x1x32xbf16>
  return %4, %2, %3 : tensor<1x4x1x32xbf16>, tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>
}

// -----

// The order that the reader wants.
// CHECK-LABEL: @merged
// CHECK: fusion.group "rope_attention" schedule "rope_attention"
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.concat
// CHECK-NEXT: nn.concat
// CHECK-NEXT: nn.attention
// CHECK-NEXT: nn.transpose
// CHECK-NEXT: nn.reshape
// CHECK-NEXT: fusion.yield
func.func @merged(%q: tensor<1x4x3x32xbf16>, %k: tensor<1x2x3x32xbf16>, %v: tensor<1x2x3x32xbf16>,
    %pk: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "p", 32], nn.storage = [1, 2, 64, 32]}, %pv: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "p", 32], nn.storage = [1, 2, 64, 32]},
    %cos: tensor<1x1x3x32xbf16>, %sin: tensor<1x1x3x32xbf16>)
    -> (tensor<1x3x128xbf16>, tensor<1x2x?x32xbf16> {nn.alias = 3 : i64}, tensor<1x2x?x32xbf16> {nn.alias = 4 : i64}) {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x3x32xbf16>, tensor<1x1x3x32xbf16>, tensor<1x1x3x32xbf16>) -> tensor<1x4x3x32xbf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x3x32xbf16>, tensor<1x1x3x32xbf16>, tensor<1x1x3x32xbf16>) -> tensor<1x2x3x32xbf16>
  %2 = nn.concat %pk, %1 {axis = 2 : i64} : (tensor<1x2x?x32xbf16>, tensor<1x2x3x32xbf16>) -> tensor<1x2x?x32xbf16>
  %3 = nn.concat %pv, %v {axis = -2 : i64} : (tensor<1x2x?x32xbf16>, tensor<1x2x3x32xbf16>) -> tensor<1x2x?x32xbf16>
  %4 = nn.attention %0, %2, %3 {scale = 0.25 : f32} : (tensor<1x4x3x32xbf16>, tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>) -> tensor<1x4x3x32xbf16>
  %5 = nn.transpose %4 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x4x3x32xbf16>) -> tensor<1x3x4x32xbf16>
  %6 = nn.reshape %5 {shape = [1, 3, 128]} : (tensor<1x3x4x32xbf16>) -> tensor<1x3x128xbf16>
  return %6, %2, %3 : tensor<1x3x128xbf16>, tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>
}

// -----

// Of an unknown number each run chooses.
// CHECK-LABEL: @unknown
// CHECK: fusion.group "rope_attention" schedule "rope_attention"
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.concat
// CHECK-NEXT: nn.concat
// CHECK-NEXT: nn.attention
// CHECK-NEXT: fusion.yield
func.func @unknown(%q: tensor<1x4x?x32xbf16> {nn.dims = [1, 4, "n", 32]}, %k: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "n", 32]}, %v: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "n", 32]},
    %pk: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "p", 32], nn.storage = [1, 2, 64, 32]}, %pv: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "p", 32], nn.storage = [1, 2, 64, 32]},
    %cos: tensor<1x1x?x32xbf16> {nn.dims = [1, 1, "n", 32]}, %sin: tensor<1x1x?x32xbf16> {nn.dims = [1, 1, "n", 32]})
    -> (tensor<1x4x?x32xbf16>, tensor<1x2x?x32xbf16> {nn.alias = 3 : i64}, tensor<1x2x?x32xbf16> {nn.alias = 4 : i64}) {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x?x32xbf16>, tensor<1x1x?x32xbf16>, tensor<1x1x?x32xbf16>) -> tensor<1x4x?x32xbf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x?x32xbf16>, tensor<1x1x?x32xbf16>, tensor<1x1x?x32xbf16>) -> tensor<1x2x?x32xbf16>
  %2 = nn.concat %pk, %1 {axis = 2 : i64} : (tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>) -> tensor<1x2x?x32xbf16>
  %3 = nn.concat %pv, %v {axis = -2 : i64} : (tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>) -> tensor<1x2x?x32xbf16>
  %4 = nn.attention %0, %2, %3 {scale = 0.25 : f32} : (tensor<1x4x?x32xbf16>, tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>) -> tensor<1x4x?x32xbf16>
  return %4, %2, %3 : tensor<1x4x?x32xbf16>, tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>
}

// -----

// What many positions need is more than a launch.
// CHECK-LABEL: @many
// CHECK-NOT: fusion.group
// CHECK: return
// MISS: rope_attention missed at {{.*}}one kernel is for 1 to 8 new positions: here there are 9
func.func @many(%q: tensor<1x4x9x32xbf16>, %k: tensor<1x2x9x32xbf16>, %v: tensor<1x2x9x32xbf16>,
    %pk: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "p", 32], nn.storage = [1, 2, 64, 32]}, %pv: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "p", 32], nn.storage = [1, 2, 64, 32]},
    %cos: tensor<1x1x9x32xbf16>, %sin: tensor<1x1x9x32xbf16>)
    -> (tensor<1x4x9x32xbf16>, tensor<1x2x?x32xbf16> {nn.alias = 3 : i64}, tensor<1x2x?x32xbf16> {nn.alias = 4 : i64}) {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x9x32xbf16>, tensor<1x1x9x32xbf16>, tensor<1x1x9x32xbf16>) -> tensor<1x4x9x32xbf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x9x32xbf16>, tensor<1x1x9x32xbf16>, tensor<1x1x9x32xbf16>) -> tensor<1x2x9x32xbf16>
  %2 = nn.concat %pk, %1 {axis = 2 : i64} : (tensor<1x2x?x32xbf16>, tensor<1x2x9x32xbf16>) -> tensor<1x2x?x32xbf16>
  %3 = nn.concat %pv, %v {axis = -2 : i64} : (tensor<1x2x?x32xbf16>, tensor<1x2x9x32xbf16>) -> tensor<1x2x?x32xbf16>
  %4 = nn.attention %0, %2, %3 {scale = 0.25 : f32} : (tensor<1x4x9x32xbf16>, tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>) -> tensor<1x4x9x32xbf16>
  return %4, %2, %3 : tensor<1x4x9x32xbf16>, tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>
}

// -----

// The past is copied.
// CHECK-LABEL: @copied
// CHECK-NOT: fusion.group
// CHECK: return
// MISS: rope_attention missed at {{.*}}a past that is not in place
func.func @copied(%q: tensor<1x4x1x32xbf16>, %k: tensor<1x2x1x32xbf16>, %v: tensor<1x2x1x32xbf16>,
    %pk: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "p", 32]}, %pv: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "p", 32]},
    %cos: tensor<1x1x1x32xbf16>, %sin: tensor<1x1x1x32xbf16>)
    -> (tensor<1x4x1x32xbf16>, tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>) {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x1x32xbf16>, tensor<1x1x1x32xbf16>, tensor<1x1x1x32xbf16>) -> tensor<1x4x1x32xbf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x1x32xbf16>, tensor<1x1x1x32xbf16>, tensor<1x1x1x32xbf16>) -> tensor<1x2x1x32xbf16>
  %2 = nn.concat %pk, %1 {axis = 2 : i64} : (tensor<1x2x?x32xbf16>, tensor<1x2x1x32xbf16>) -> tensor<1x2x?x32xbf16>
  %3 = nn.concat %pv, %v {axis = -2 : i64} : (tensor<1x2x?x32xbf16>, tensor<1x2x1x32xbf16>) -> tensor<1x2x?x32xbf16>
  %4 = nn.attention %0, %2, %3 {scale = 0.25 : f32} : (tensor<1x4x1x32xbf16>, tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>) -> tensor<1x4x1x32xbf16>
  return %4, %2, %3 : tensor<1x4x1x32xbf16>, tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>
}

// -----

// Only the attention's own blocks see the rotated queries.
// CHECK-LABEL: @read_again
// CHECK-NOT: fusion.group
// CHECK: return
// MISS: rope_attention missed at {{.*}}the rotated queries are read by nn.neg too
func.func @read_again(%q: tensor<1x4x1x32xbf16>, %k: tensor<1x2x1x32xbf16>, %v: tensor<1x2x1x32xbf16>,
    %pk: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "p", 32], nn.storage = [1, 2, 64, 32]}, %pv: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "p", 32], nn.storage = [1, 2, 64, 32]},
    %cos: tensor<1x1x1x32xbf16>, %sin: tensor<1x1x1x32xbf16>)
    -> (tensor<1x4x1x32xbf16>, tensor<1x2x?x32xbf16> {nn.alias = 3 : i64}, tensor<1x2x?x32xbf16> {nn.alias = 4 : i64}, tensor<1x4x1x32xbf16>) {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x1x32xbf16>, tensor<1x1x1x32xbf16>, tensor<1x1x1x32xbf16>) -> tensor<1x4x1x32xbf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x1x32xbf16>, tensor<1x1x1x32xbf16>, tensor<1x1x1x32xbf16>) -> tensor<1x2x1x32xbf16>
  %2 = nn.concat %pk, %1 {axis = 2 : i64} : (tensor<1x2x?x32xbf16>, tensor<1x2x1x32xbf16>) -> tensor<1x2x?x32xbf16>
  %3 = nn.concat %pv, %v {axis = -2 : i64} : (tensor<1x2x?x32xbf16>, tensor<1x2x1x32xbf16>) -> tensor<1x2x?x32xbf16>
  %n = nn.neg %0 : (tensor<1x4x1x32xbf16>) -> tensor<1x4x1x32xbf16>
  %4 = nn.attention %0, %2, %3 {scale = 0.25 : f32} : (tensor<1x4x1x32xbf16>, tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>) -> tensor<1x4x1x32xbf16>
  return %4, %2, %3, %n : tensor<1x4x1x32xbf16>, tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>, tensor<1x4x1x32xbf16>
}

// -----

// Data says which rows of the caches are new.
// CHECK-LABEL: @placed
// CHECK: fusion.group "rope_attention" schedule "rope_attention"
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.rope
// CHECK-NEXT: nn.cache_write
// CHECK-NEXT: nn.cache_write
// CHECK-NEXT: nn.attention
// CHECK-NEXT: fusion.yield
func.func @placed(%q: tensor<1x4x1x32xbf16>, %k: tensor<1x2x1x32xbf16>, %v: tensor<1x2x1x32xbf16>,
    %pk: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "p", 32], nn.storage = [1, 2, 64, 32]}, %pv: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "p", 32], nn.storage = [1, 2, 64, 32]},
    %cos: tensor<1x1x1x32xbf16>, %sin: tensor<1x1x1x32xbf16>, %rows: tensor<1x1x1x1xi64>)
    -> (tensor<1x4x1x32xbf16>, tensor<1x2x?x32xbf16> {nn.alias = 3 : i64}, tensor<1x2x?x32xbf16> {nn.alias = 4 : i64}) {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x1x32xbf16>, tensor<1x1x1x32xbf16>, tensor<1x1x1x32xbf16>) -> tensor<1x4x1x32xbf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x1x32xbf16>, tensor<1x1x1x32xbf16>, tensor<1x1x1x32xbf16>) -> tensor<1x2x1x32xbf16>
  %2 = nn.cache_write %pk, %1, %rows {axis = 2 : i64, grows = false} : (tensor<1x2x?x32xbf16>, tensor<1x2x1x32xbf16>, tensor<1x1x1x1xi64>) -> tensor<1x2x?x32xbf16>
  %3 = nn.cache_write %pv, %v, %rows {axis = 2 : i64, grows = false} : (tensor<1x2x?x32xbf16>, tensor<1x2x1x32xbf16>, tensor<1x1x1x1xi64>) -> tensor<1x2x?x32xbf16>
  %4 = nn.attention %0, %2, %3 {scale = 0.25 : f32} : (tensor<1x4x1x32xbf16>, tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>) -> tensor<1x4x1x32xbf16>
  return %4, %2, %3 : tensor<1x4x1x32xbf16>, tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>
}

// -----

// Slots of pages.
// CHECK-LABEL: @pages
// CHECK-NOT: fusion.group
// CHECK: return
// MISS: rope_attention missed at {{.*}}new keys and values go to slots of pages, which may be another entry's
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

// Codes are decoded as they are read.
// CHECK-LABEL: @codes
// CHECK: fusion.group "rope_attention" schedule "rope_attention"
// CHECK-COUNT-2: nn.quantize
// CHECK-COUNT-2: nn.concat
// CHECK-COUNT-2: nn.dequantize
// CHECK-NEXT: nn.attention
// CHECK-NEXT: fusion.yield
func.func @codes(%q: tensor<1x4x3x32xf16>, %k: tensor<1x2x3x32xf16>, %v: tensor<1x3x2x32xf16>, %past_k: tensor<1x2x?x32xi8> {nn.name="past_k", nn.dims=[1,2,"past",32], nn.storage=[1,2,64,32]},
                 %past_v: tensor<1x2x?x32xi8> {nn.name="past_v", nn.dims=[1,2,"past",32], nn.storage=[1,2,64,32]}, %s: tensor<f32>, %cos: tensor<3x32xf16>, %sin: tensor<3x32xf16>)
    -> (tensor<1x4x3x32xf16>, tensor<1x2x?x32xi8> {nn.alias=3:i64}, tensor<1x2x?x32xi8> {nn.alias=4:i64}) {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x3x32xf16>, tensor<3x32xf16>, tensor<3x32xf16>) -> tensor<1x4x3x32xf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x3x32xf16>, tensor<3x32xf16>, tensor<3x32xf16>) -> tensor<1x2x3x32xf16>
  %t = nn.transpose %v {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x3x2x32xf16>) -> tensor<1x2x3x32xf16>
  %2 = nn.quantize %1, %s : (tensor<1x2x3x32xf16>, tensor<f32>) -> tensor<1x2x3x32xi8>
  %3 = nn.quantize %t, %s : (tensor<1x2x3x32xf16>, tensor<f32>) -> tensor<1x2x3x32xi8>
  %4 = nn.concat %past_k, %2 {axis = 2 : i64} : (tensor<1x2x?x32xi8>, tensor<1x2x3x32xi8>) -> tensor<1x2x?x32xi8>
  %5 = nn.concat %past_v, %3 {axis = 2 : i64} : (tensor<1x2x?x32xi8>, tensor<1x2x3x32xi8>) -> tensor<1x2x?x32xi8>
  %6 = nn.dequantize %4, %s : (tensor<1x2x?x32xi8>, tensor<f32>) -> tensor<1x2x?x32xf16>
  %7 = nn.dequantize %5, %s : (tensor<1x2x?x32xi8>, tensor<f32>) -> tensor<1x2x?x32xf16>
  %8 = nn.attention %0, %6, %7 {scale = 0.17677 : f32} : (tensor<1x4x3x32xf16>, tensor<1x2x?x32xf16>, tensor<1x2x?x32xf16>) -> tensor<1x4x3x32xf16>
  return %8, %4, %5 : tensor<1x4x3x32xf16>, tensor<1x2x?x32xi8>, tensor<1x2x?x32xi8>
}

// -----

// A sink in front of the keys.
// CHECK-LABEL: @sink
// CHECK: fusion.group "rope_attention" schedule "rope_attention"
// CHECK-COUNT-2: nn.pad
// CHECK: nn.attention
// CHECK-NEXT: fusion.yield
func.func @sink(%q0: tensor<2x16x1x64xbf16> {nn.name = "q"}, %k0: tensor<2x2x1x64xbf16> {nn.name = "k"}, %v0: tensor<2x2x1x64xbf16> {nn.name = "v"},
   %past_k: tensor<2x2x?x64xbf16> {nn.name = "past_k", nn.dims = [2, 2, "past", 64], nn.storage = [2, 2, 512, 64]},
   %past_v: tensor<2x2x?x64xbf16> {nn.name = "past_v", nn.dims = [2, 2, "past", 64], nn.storage = [2, 2, 512, 64]},
   %cos: tensor<1x1x1x64xbf16> {nn.name = "cos"}, %sin: tensor<1x1x1x64xbf16> {nn.name = "sin"},
   %sinks: tensor<1x16x1x1xf32> {nn.name = "sinks"})
    -> (tensor<2x16x1x64xbf16> {nn.name = "y"}, tensor<2x2x?x64xbf16> {nn.name = "pk", nn.alias = 3 : i64}, tensor<2x2x?x64xbf16> {nn.name = "pv", nn.alias = 4 : i64}) {
  %q = nn.rope %q0, %cos, %sin {interleaved = false, rotary_dim = 64 : i64} : (tensor<2x16x1x64xbf16>, tensor<1x1x1x64xbf16>, tensor<1x1x1x64xbf16>) -> tensor<2x16x1x64xbf16>
  %kr = nn.rope %k0, %cos, %sin {interleaved = false, rotary_dim = 64 : i64} : (tensor<2x2x1x64xbf16>, tensor<1x1x1x64xbf16>, tensor<1x1x1x64xbf16>) -> tensor<2x2x1x64xbf16>
  %keys = nn.concat %past_k, %kr {axis = 2 : i64} : (tensor<2x2x?x64xbf16>, tensor<2x2x1x64xbf16>) -> tensor<2x2x?x64xbf16>
  %values = nn.concat %past_v, %v0 {axis = 2 : i64} : (tensor<2x2x?x64xbf16>, tensor<2x2x1x64xbf16>) -> tensor<2x2x?x64xbf16>
  %zero = nn.constant {value = dense<0.0> : tensor<bf16>} : () -> tensor<bf16>
  %none = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %k = nn.pad %keys, %zero {low = [0, 0, 1, 0], high = [0, 0, 0, 0]} : (tensor<2x2x?x64xbf16>, tensor<bf16>) -> tensor<2x2x?x64xbf16>
  %v = nn.pad %values, %zero {low = [0, 0, 1, 0], high = [0, 0, 0, 0]} : (tensor<2x2x?x64xbf16>, tensor<bf16>) -> tensor<2x2x?x64xbf16>
  %zeros = nn.expand %none {shape = [1, 16, 1, "past + 1"]} : (tensor<f32>) -> tensor<1x16x1x?xf32>
  %scores = nn.concat %sinks, %zeros {axis = 3 : i64} : (tensor<1x16x1x1xf32>, tensor<1x16x1x?xf32>) -> tensor<1x16x1x?xf32>
  %y = nn.attention %q, %k, %v, %scores {scale = 0.125 : f32}
      : (tensor<2x16x1x64xbf16>, tensor<2x2x?x64xbf16>, tensor<2x2x?x64xbf16>, tensor<1x16x1x?xf32>) -> tensor<2x16x1x64xbf16>
  return %y, %keys, %values : tensor<2x16x1x64xbf16>, tensor<2x2x?x64xbf16>, tensor<2x2x?x64xbf16>
}

// -----

// Nothing is rotated: new keys and values are written, queries are read as they are.
// CHECK-LABEL: @learned_positions
// CHECK: fusion.group "rope_attention" schedule "rope_attention" (%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %[[Q:.*]] = %{{.*}})
// CHECK-NEXT: nn.concat
// CHECK-NEXT: nn.concat
// CHECK-NEXT: nn.attention %[[Q]],
// CHECK-NEXT: nn.transpose
// CHECK-NEXT: nn.reshape
// CHECK-NEXT: fusion.yield
func.func @learned_positions(%qkv: tensor<2x3x384xf16>,
    %pk: tensor<2x4x?x32xf16> {nn.dims = [2, 4, "p", 32], nn.storage = [2, 4, 64, 32]}, %pv: tensor<2x4x?x32xf16> {nn.dims = [2, 4, "p", 32], nn.storage = [2, 4, 64, 32]})
    -> (tensor<2x3x128xf16>, tensor<2x4x?x32xf16> {nn.alias = 1 : i64}, tensor<2x4x?x32xf16> {nn.alias = 2 : i64}) {
  %q0 = nn.slice %qkv {starts = [0, 0, 0], sizes = [2, 3, 128], steps = array<i64: 1, 1, 1>} : (tensor<2x3x384xf16>) -> tensor<2x3x128xf16>
  %k0 = nn.slice %qkv {starts = [0, 0, 128], sizes = [2, 3, 128], steps = array<i64: 1, 1, 1>} : (tensor<2x3x384xf16>) -> tensor<2x3x128xf16>
  %v0 = nn.slice %qkv {starts = [0, 0, 256], sizes = [2, 3, 128], steps = array<i64: 1, 1, 1>} : (tensor<2x3x384xf16>) -> tensor<2x3x128xf16>
  %q1 = nn.reshape %q0 {shape = [2, 3, 4, 32]} : (tensor<2x3x128xf16>) -> tensor<2x3x4x32xf16>
  %k1 = nn.reshape %k0 {shape = [2, 3, 4, 32]} : (tensor<2x3x128xf16>) -> tensor<2x3x4x32xf16>
  %v1 = nn.reshape %v0 {shape = [2, 3, 4, 32]} : (tensor<2x3x128xf16>) -> tensor<2x3x4x32xf16>
  %q = nn.transpose %q1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x3x4x32xf16>) -> tensor<2x4x3x32xf16>
  %k = nn.transpose %k1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x3x4x32xf16>) -> tensor<2x4x3x32xf16>
  %v = nn.transpose %v1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x3x4x32xf16>) -> tensor<2x4x3x32xf16>
  %2 = nn.concat %pk, %k {axis = 2 : i64} : (tensor<2x4x?x32xf16>, tensor<2x4x3x32xf16>) -> tensor<2x4x?x32xf16>
  %3 = nn.concat %pv, %v {axis = -2 : i64} : (tensor<2x4x?x32xf16>, tensor<2x4x3x32xf16>) -> tensor<2x4x?x32xf16>
  %4 = nn.attention %q, %2, %3 {scale = 0.25 : f32, causal = true} : (tensor<2x4x3x32xf16>, tensor<2x4x?x32xf16>, tensor<2x4x?x32xf16>) -> tensor<2x4x3x32xf16>
  %5 = nn.transpose %4 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x4x3x32xf16>) -> tensor<2x3x4x32xf16>
  %6 = nn.reshape %5 {shape = [2, 3, 128]} : (tensor<2x3x4x32xf16>) -> tensor<2x3x128xf16>
  return %6, %2, %3 : tensor<2x3x128xf16>, tensor<2x4x?x32xf16>, tensor<2x4x?x32xf16>
}

// -----

// Nothing is rotated, and the past is copied.
// CHECK-LABEL: @learned_positions_copied
// CHECK-NOT: fusion.group
// CHECK: return
// MISS: rope_attention missed at {{.*}}a past that is not in place
func.func @learned_positions_copied(%q: tensor<1x4x1x32xbf16>, %k: tensor<1x4x1x32xbf16>, %v: tensor<1x4x1x32xbf16>,
    %pk: tensor<1x4x?x32xbf16> {nn.dims = [1, 4, "p", 32]}, %pv: tensor<1x4x?x32xbf16> {nn.dims = [1, 4, "p", 32]})
    -> (tensor<1x4x1x32xbf16>, tensor<1x4x?x32xbf16>, tensor<1x4x?x32xbf16>) {
  %2 = nn.concat %pk, %k {axis = 2 : i64} : (tensor<1x4x?x32xbf16>, tensor<1x4x1x32xbf16>) -> tensor<1x4x?x32xbf16>
  %3 = nn.concat %pv, %v {axis = 2 : i64} : (tensor<1x4x?x32xbf16>, tensor<1x4x1x32xbf16>) -> tensor<1x4x?x32xbf16>
  %4 = nn.attention %q, %2, %3 {scale = 0.25 : f32} : (tensor<1x4x1x32xbf16>, tensor<1x4x?x32xbf16>, tensor<1x4x?x32xbf16>) -> tensor<1x4x1x32xbf16>
  return %4, %2, %3 : tensor<1x4x1x32xbf16>, tensor<1x4x?x32xbf16>, tensor<1x4x?x32xbf16>
}

// -----

// Keys that nobody writes.
// CHECK-LABEL: @cross
// CHECK-NOT: fusion.group
// CHECK: return
func.func @cross(%q: tensor<1x4x1x32xbf16>, %k: tensor<1x4x?x32xbf16> {nn.dims = [1, 4, "frames", 32]}, %v: tensor<1x4x?x32xbf16> {nn.dims = [1, 4, "frames", 32]}) -> tensor<1x4x1x32xbf16> {
  %0 = nn.attention %q, %k, %v {scale = 0.25 : f32} : (tensor<1x4x1x32xbf16>, tensor<1x4x?x32xbf16>, tensor<1x4x?x32xbf16>) -> tensor<1x4x1x32xbf16>
  return %0 : tensor<1x4x1x32xbf16>
}
