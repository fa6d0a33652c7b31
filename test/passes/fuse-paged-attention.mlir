// RUN: fusion-opt %s --fuse-paged-attention --fuse-bounded-attention --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-paged-attention --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// Two layers with one block table: each looks it up by itself, and nothing is gathered in memory.
// CHECK-LABEL: @layers
// CHECK-NOT: nn.gather
// CHECK: fusion.group "paged_attention" schedule "attention"
// CHECK: nn.gather
// CHECK: nn.gather
// CHECK: nn.gather
// CHECK: nn.less_equal
// CHECK: nn.attention
// CHECK: fusion.yield
// CHECK-NOT: nn.gather
// CHECK: fusion.group "paged_attention" schedule "attention"
func.func @layers(%q: tensor<?x4x1x32xf16> {nn.dims = ["t", 4, 1, 32]}, %kp: tensor<?x16x2x32xf16> {nn.dims = ["p", 16, 2, 32]}, %vp: tensor<?x16x2x32xf16> {nn.dims = ["p", 16, 2, 32]}, %table: tensor<?x?xi32> {nn.dims = ["s", "m"]}, %seq: tensor<?xi64> {nn.dims = ["t"]}, %pos: tensor<?x1x1x1xi64> {nn.dims = ["t", 1, 1, 1]}) -> (tensor<?x4x1x32xf16>, tensor<?x4x1x32xf16>) {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %rows = nn.gather %table, %seq {axis = 0 : i64} : (tensor<?x?xi32>, tensor<?xi64>) -> tensor<?x?xi32>
  %kg = nn.gather %kp, %rows {axis = 0 : i64} : (tensor<?x16x2x32xf16>, tensor<?x?xi32>) -> tensor<?x?x16x2x32xf16>
  %kr = nn.reshape %kg {shape = ["t", "16*m", 2, 32]} : (tensor<?x?x16x2x32xf16>) -> tensor<?x?x2x32xf16>
  %k = nn.transpose %kr {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x2x32xf16>) -> tensor<?x2x?x32xf16>
  %vg = nn.gather %vp, %rows {axis = 0 : i64} : (tensor<?x16x2x32xf16>, tensor<?x?xi32>) -> tensor<?x?x16x2x32xf16>
  %vr = nn.reshape %vg {shape = ["t", "16*m", 2, 32]} : (tensor<?x?x16x2x32xf16>) -> tensor<?x?x2x32xf16>
  %v = nn.transpose %vr {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x2x32xf16>) -> tensor<?x2x?x32xf16>
  %n = nn.iota %zero, %one {size = ["16*m"]} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
  %mask = nn.less_equal %n, %pos : (tensor<?xi64>, tensor<?x1x1x1xi64>) -> tensor<?x1x1x?xi1>
  %0 = nn.attention %q, %k, %v, %mask {scale = 0.25 : f32} : (tensor<?x4x1x32xf16>, tensor<?x2x?x32xf16>, tensor<?x2x?x32xf16>, tensor<?x1x1x?xi1>) -> tensor<?x4x1x32xf16>
  %1 = nn.attention %0, %k, %v, %mask {scale = 0.25 : f32} : (tensor<?x4x1x32xf16>, tensor<?x2x?x32xf16>, tensor<?x2x?x32xf16>, tensor<?x1x1x?xi1>) -> tensor<?x4x1x32xf16>
  return %0, %1 : tensor<?x4x1x32xf16>, tensor<?x4x1x32xf16>
}

// -----

// Heads before the rows of a page, codes, a table of its own for each entry, and no mask.
// CHECK-LABEL: @codes
// CHECK: fusion.group "paged_attention" schedule "attention"
// CHECK-NEXT: nn.gather
// CHECK-NEXT: nn.transpose
// CHECK-NEXT: nn.reshape
// CHECK-NEXT: nn.dequantize
// CHECK-NEXT: nn.gather
// CHECK-NEXT: nn.transpose
// CHECK-NEXT: nn.reshape
// CHECK-NEXT: nn.dequantize
// CHECK-NEXT: nn.attention
// CHECK-NEXT: fusion.yield
func.func @codes(%q: tensor<3x4x2x32xf16>, %kp: tensor<9x2x16x32xi8>, %vp: tensor<9x2x16x32xi8>, %table: tensor<3x4xi32>, %ks: tensor<f32>, %vs: tensor<f32>) -> tensor<3x4x2x32xf16> {
  %kg = nn.gather %kp, %table {axis = 0 : i64} : (tensor<9x2x16x32xi8>, tensor<3x4xi32>) -> tensor<3x4x2x16x32xi8>
  %kt = nn.transpose %kg {perm = array<i64: 0, 2, 1, 3, 4>} : (tensor<3x4x2x16x32xi8>) -> tensor<3x2x4x16x32xi8>
  %kr = nn.reshape %kt {shape = [3, 2, 64, 32]} : (tensor<3x2x4x16x32xi8>) -> tensor<3x2x64x32xi8>
  %k = nn.dequantize %kr, %ks : (tensor<3x2x64x32xi8>, tensor<f32>) -> tensor<3x2x64x32xf16>
  %vg = nn.gather %vp, %table {axis = 0 : i64} : (tensor<9x2x16x32xi8>, tensor<3x4xi32>) -> tensor<3x4x2x16x32xi8>
  %vt = nn.transpose %vg {perm = array<i64: 0, 2, 1, 3, 4>} : (tensor<3x4x2x16x32xi8>) -> tensor<3x2x4x16x32xi8>
  %vr = nn.reshape %vt {shape = [3, 2, 64, 32]} : (tensor<3x2x4x16x32xi8>) -> tensor<3x2x64x32xi8>
  %v = nn.dequantize %vr, %vs : (tensor<3x2x64x32xi8>, tensor<f32>) -> tensor<3x2x64x32xf16>
  %0 = nn.attention %q, %k, %v {scale = 0.25 : f32} : (tensor<3x4x2x32xf16>, tensor<3x2x64x32xf16>, tensor<3x2x64x32xf16>) -> tensor<3x4x2x32xf16>
  return %0 : tensor<3x4x2x32xf16>
}

// -----

// Pages of one row: a table of slots.
// CHECK-LABEL: @slots
// CHECK: fusion.group "paged_attention" schedule "attention"
func.func @slots(%q: tensor<3x4x2x32xf16>, %kp: tensor<90x2x32xf16>, %vp: tensor<90x2x32xf16>, %table: tensor<3x40xi64>) -> tensor<3x4x2x32xf16> {
  %kg = nn.gather %kp, %table {axis = 0 : i64} : (tensor<90x2x32xf16>, tensor<3x40xi64>) -> tensor<3x40x2x32xf16>
  %k = nn.transpose %kg {perm = array<i64: 0, 2, 1, 3>} : (tensor<3x40x2x32xf16>) -> tensor<3x2x40x32xf16>
  %vg = nn.gather %vp, %table {axis = 0 : i64} : (tensor<90x2x32xf16>, tensor<3x40xi64>) -> tensor<3x40x2x32xf16>
  %v = nn.transpose %vg {perm = array<i64: 0, 2, 1, 3>} : (tensor<3x40x2x32xf16>) -> tensor<3x2x40x32xf16>
  %0 = nn.attention %q, %k, %v {scale = 0.25 : f32} : (tensor<3x4x2x32xf16>, tensor<3x2x40x32xf16>, tensor<3x2x40x32xf16>) -> tensor<3x4x2x32xf16>
  return %0 : tensor<3x4x2x32xf16>
}

// -----

// Keys and values by tables of their own; pages whose rows are split among keys in another order.
// CHECK-LABEL: @others
// CHECK-NOT: fusion.group
func.func @others(%q: tensor<3x4x2x32xf16>, %kp: tensor<9x4x2x32xf16>, %vp: tensor<9x4x2x32xf16>, %table: tensor<3x4xi32>, %other: tensor<3x4xi32>) -> (tensor<3x4x2x32xf16>, tensor<3x4x2x32xf16>) {
  %kg = nn.gather %kp, %table {axis = 0 : i64} : (tensor<9x4x2x32xf16>, tensor<3x4xi32>) -> tensor<3x4x4x2x32xf16>
  %kr = nn.reshape %kg {shape = [3, 16, 2, 32]} : (tensor<3x4x4x2x32xf16>) -> tensor<3x16x2x32xf16>
  %k = nn.transpose %kr {perm = array<i64: 0, 2, 1, 3>} : (tensor<3x16x2x32xf16>) -> tensor<3x2x16x32xf16>
  %vg = nn.gather %vp, %other {axis = 0 : i64} : (tensor<9x4x2x32xf16>, tensor<3x4xi32>) -> tensor<3x4x4x2x32xf16>
  %vr = nn.reshape %vg {shape = [3, 16, 2, 32]} : (tensor<3x4x4x2x32xf16>) -> tensor<3x16x2x32xf16>
  %v = nn.transpose %vr {perm = array<i64: 0, 2, 1, 3>} : (tensor<3x16x2x32xf16>) -> tensor<3x2x16x32xf16>
  %wt = nn.transpose %kg {perm = array<i64: 0, 2, 1, 3, 4>} : (tensor<3x4x4x2x32xf16>) -> tensor<3x4x4x2x32xf16>
  %wr = nn.reshape %wt {shape = [3, 16, 2, 32]} : (tensor<3x4x4x2x32xf16>) -> tensor<3x16x2x32xf16>
  %w = nn.transpose %wr {perm = array<i64: 0, 2, 1, 3>} : (tensor<3x16x2x32xf16>) -> tensor<3x2x16x32xf16>
  %0 = nn.attention %q, %k, %v {scale = 0.25 : f32} : (tensor<3x4x2x32xf16>, tensor<3x2x16x32xf16>, tensor<3x2x16x32xf16>) -> tensor<3x4x2x32xf16>
  %1 = nn.attention %q, %w, %w {scale = 0.25 : f32} : (tensor<3x4x2x32xf16>, tensor<3x2x16x32xf16>, tensor<3x2x16x32xf16>) -> tensor<3x4x2x32xf16>
  return %0, %1 : tensor<3x4x2x32xf16>, tensor<3x4x2x32xf16>
}

// -----

// The size of a page is not known.
// CHECK-LABEL: @symbolic
// CHECK-NOT: fusion.group
// MISS: paged_attention missed at {{.*}}: the size of a page, z, is not static
func.func @symbolic(%q: tensor<3x4x2x32xf16> {nn.dims = [3, 4, 2, 32]}, %kp: tensor<9x?x2x32xf16> {nn.dims = [9, "z", 2, 32]}, %vp: tensor<9x?x2x32xf16> {nn.dims = [9, "z", 2, 32]}, %table: tensor<3x4xi32> {nn.dims = [3, 4]}) -> tensor<3x4x2x32xf16> {
  %kg = nn.gather %kp, %table {axis = 0 : i64} : (tensor<9x?x2x32xf16>, tensor<3x4xi32>) -> tensor<3x4x?x2x32xf16>
  %kr = nn.reshape %kg {shape = [3, "4*z", 2, 32]} : (tensor<3x4x?x2x32xf16>) -> tensor<3x?x2x32xf16>
  %k = nn.transpose %kr {perm = array<i64: 0, 2, 1, 3>} : (tensor<3x?x2x32xf16>) -> tensor<3x2x?x32xf16>
  %vg = nn.gather %vp, %table {axis = 0 : i64} : (tensor<9x?x2x32xf16>, tensor<3x4xi32>) -> tensor<3x4x?x2x32xf16>
  %vr = nn.reshape %vg {shape = [3, "4*z", 2, 32]} : (tensor<3x4x?x2x32xf16>) -> tensor<3x?x2x32xf16>
  %v = nn.transpose %vr {perm = array<i64: 0, 2, 1, 3>} : (tensor<3x?x2x32xf16>) -> tensor<3x2x?x32xf16>
  %0 = nn.attention %q, %k, %v {scale = 0.25 : f32} : (tensor<3x4x2x32xf16>, tensor<3x2x?x32xf16>, tensor<3x2x?x32xf16>) -> tensor<3x4x2x32xf16>
  return %0 : tensor<3x4x2x32xf16>
}

// -----

// A sink in front of pages of codes, under bounds of the keys.
// CHECK-LABEL: @sink
// CHECK-NOT: nn.gather
// CHECK: fusion.group "paged_attention" schedule "attention"
// CHECK: nn.gather
// CHECK: nn.gather
// CHECK: nn.dequantize
// CHECK: nn.concat
// CHECK: nn.pad
// CHECK: nn.where
// CHECK: nn.pad
// CHECK: nn.attention
// CHECK-NEXT: fusion.yield
// CHECK-NOT: nn.attention
func.func @sink(%q: tensor<?x4x1x32xf16> {nn.dims = ["t", 4, 1, 32]}, %kp: tensor<?x16x2x32xi8> {nn.dims = ["p", 16, 2, 32]}, %vp: tensor<?x16x2x32xi8> {nn.dims = ["p", 16, 2, 32]}, %table: tensor<?x?xi32> {nn.dims = ["s", "m"]}, %seq: tensor<?xi64> {nn.dims = ["t"]}, %pos: tensor<?x1x1x1xi64> {nn.dims = ["t", 1, 1, 1]}, %s: tensor<1x4x1x1xf32>, %scale: tensor<f32>) -> tensor<?x4x1x32xf16> {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %none = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %low = nn.constant {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
  %empty = nn.constant {value = dense<0.0> : tensor<f16>} : () -> tensor<f16>
  %true = nn.constant {value = dense<true> : tensor<i1>} : () -> tensor<i1>
  %rows = nn.gather %table, %seq {axis = 0 : i64} : (tensor<?x?xi32>, tensor<?xi64>) -> tensor<?x?xi32>
  %kg = nn.gather %kp, %rows {axis = 0 : i64} : (tensor<?x16x2x32xi8>, tensor<?x?xi32>) -> tensor<?x?x16x2x32xi8>
  %kr = nn.reshape %kg {shape = ["t", "16*m", 2, 32]} : (tensor<?x?x16x2x32xi8>) -> tensor<?x?x2x32xi8>
  %kt = nn.transpose %kr {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x2x32xi8>) -> tensor<?x2x?x32xi8>
  %k = nn.dequantize %kt, %scale : (tensor<?x2x?x32xi8>, tensor<f32>) -> tensor<?x2x?x32xf16>
  %vg = nn.gather %vp, %rows {axis = 0 : i64} : (tensor<?x16x2x32xi8>, tensor<?x?xi32>) -> tensor<?x?x16x2x32xi8>
  %vr = nn.reshape %vg {shape = ["t", "16*m", 2, 32]} : (tensor<?x?x16x2x32xi8>) -> tensor<?x?x2x32xi8>
  %vt = nn.transpose %vr {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x2x32xi8>) -> tensor<?x2x?x32xi8>
  %v = nn.dequantize %vt, %scale : (tensor<?x2x?x32xi8>, tensor<f32>) -> tensor<?x2x?x32xf16>
  %n = nn.iota %zero, %one {size = ["16*m"]} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
  %kept = nn.less_equal %n, %pos : (tensor<?xi64>, tensor<?x1x1x1xi64>) -> tensor<?x1x1x?xi1>
  %zeros = nn.expand %none {shape = [1, 4, 1, "16*m"]} : (tensor<f32>) -> tensor<1x4x1x?xf32>
  %all = nn.concat %s, %zeros {axis = 3 : i64} : (tensor<1x4x1x1xf32>, tensor<1x4x1x?xf32>) -> tensor<1x4x1x?xf32>
  %wide = nn.pad %kept, %true {low = [0, 0, 0, 1], high = [0, 0, 0, 0]} : (tensor<?x1x1x?xi1>, tensor<i1>) -> tensor<?x1x1x?xi1>
  %mask = nn.where %wide, %all, %low : (tensor<?x1x1x?xi1>, tensor<1x4x1x?xf32>, tensor<f32>) -> tensor<?x4x1x?xf32>
  %ks = nn.pad %k, %empty {low = [0, 0, 1, 0], high = [0, 0, 0, 0]} : (tensor<?x2x?x32xf16>, tensor<f16>) -> tensor<?x2x?x32xf16>
  %vs = nn.pad %v, %empty {low = [0, 0, 1, 0], high = [0, 0, 0, 0]} : (tensor<?x2x?x32xf16>, tensor<f16>) -> tensor<?x2x?x32xf16>
  %0 = nn.attention %q, %ks, %vs, %mask {scale = 0.25 : f32} : (tensor<?x4x1x32xf16>, tensor<?x2x?x32xf16>, tensor<?x2x?x32xf16>, tensor<?x4x1x?xf32>) -> tensor<?x4x1x32xf16>
  return %0 : tensor<?x4x1x32xf16>
}

// -----

// The size of a page is not known: the mask is bounds all the same.
// CHECK-LABEL: @symbolic_bounds
// CHECK: nn.gather
// CHECK: nn.gather
// CHECK: fusion.group "bounded_attention" schedule "attention"
// CHECK: nn.iota
// CHECK-NEXT: nn.less_equal
// CHECK-NEXT: nn.attention
// CHECK-NEXT: fusion.yield
func.func @symbolic_bounds(%q: tensor<3x4x2x32xf16> {nn.dims = [3, 4, 2, 32]}, %kp: tensor<9x?x2x32xf16> {nn.dims = [9, "z", 2, 32]}, %vp: tensor<9x?x2x32xf16> {nn.dims = [9, "z", 2, 32]}, %table: tensor<3x4xi32> {nn.dims = [3, 4]}, %pos: tensor<3x1x1x1xi64>) -> tensor<3x4x2x32xf16> {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %kg = nn.gather %kp, %table {axis = 0 : i64} : (tensor<9x?x2x32xf16>, tensor<3x4xi32>) -> tensor<3x4x?x2x32xf16>
  %kr = nn.reshape %kg {shape = [3, "4*z", 2, 32]} : (tensor<3x4x?x2x32xf16>) -> tensor<3x?x2x32xf16>
  %k = nn.transpose %kr {perm = array<i64: 0, 2, 1, 3>} : (tensor<3x?x2x32xf16>) -> tensor<3x2x?x32xf16>
  %vg = nn.gather %vp, %table {axis = 0 : i64} : (tensor<9x?x2x32xf16>, tensor<3x4xi32>) -> tensor<3x4x?x2x32xf16>
  %vr = nn.reshape %vg {shape = [3, "4*z", 2, 32]} : (tensor<3x4x?x2x32xf16>) -> tensor<3x?x2x32xf16>
  %v = nn.transpose %vr {perm = array<i64: 0, 2, 1, 3>} : (tensor<3x?x2x32xf16>) -> tensor<3x2x?x32xf16>
  %n = nn.iota %zero, %one {size = ["4*z"]} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
  %mask = nn.less_equal %n, %pos : (tensor<?xi64>, tensor<3x1x1x1xi64>) -> tensor<3x1x1x?xi1>
  %0 = nn.attention %q, %k, %v, %mask {scale = 0.25 : f32} : (tensor<3x4x2x32xf16>, tensor<3x2x?x32xf16>, tensor<3x2x?x32xf16>, tensor<3x1x1x?xi1>) -> tensor<3x4x2x32xf16>
  return %0 : tensor<3x4x2x32xf16>
}
