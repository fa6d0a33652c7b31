// RUN: fusion-opt %s --fuse-add-norm --split-input-file 2>/dev/null | FileCheck %s

// The sum has another reader: it leaves the group too.
// CHECK-LABEL: @sum_kept
// CHECK-SAME: (%[[X:.*]]: tensor<?x128xbf16>, %[[R:.*]]: tensor<?x128xbf16>, %[[W:.*]]: tensor<128xbf16>)
// CHECK: %[[G:.*]]:2 = fusion.group "add_norm" schedule "row" (%[[A:.*]] = %[[X]], %[[B:.*]] = %[[R]], %[[V:.*]] = %[[W]])
// CHECK-NEXT: %[[S:.*]] = nn.add %[[A]], %[[B]]
// CHECK-NEXT: %[[N:.*]] = nn.rms_norm %[[S]], %[[V]]
// CHECK-NEXT: fusion.yield %[[S]], %[[N]]
// CHECK: return %[[G]]#1, %[[G]]#0
func.func @sum_kept(%x: tensor<?x128xbf16>, %r: tensor<?x128xbf16>, %w: tensor<128xbf16>)
    -> (tensor<?x128xbf16>, tensor<?x128xbf16>) {
  %s = nn.add %x, %r : (tensor<?x128xbf16>, tensor<?x128xbf16>) -> tensor<?x128xbf16>
  %n = nn.rms_norm %s, %w {eps = 1.0e-6 : f32} : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
  return %n, %s : tensor<?x128xbf16>, tensor<?x128xbf16>
}

// -----

// Nobody else reads the sum: it stays inside.
// CHECK-LABEL: @sum_dead
// CHECK: %[[G:.*]] = fusion.group "add_norm" schedule "row"
// CHECK: fusion.yield %{{[^,]*}} : tensor<?x128xf16>
func.func @sum_dead(%x: tensor<?x128xf16>, %r: tensor<?x128xf16>, %w: tensor<128xf16>) -> tensor<?x128xf16> {
  %s = nn.add %x, %r : (tensor<?x128xf16>, tensor<?x128xf16>) -> tensor<?x128xf16>
  %n = nn.rms_norm %s, %w {eps = 1.0e-6 : f32} : (tensor<?x128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
  return %n : tensor<?x128xf16>
}

// -----

// Gemma: an f32 weight stored without its 1. The attributes go along.
// CHECK-LABEL: @gemma
// CHECK: fusion.group "add_norm" schedule "row"
// CHECK: nn.rms_norm %{{.*}} scale_in = f32, weight_bias = 1.000000e+00 : f32
func.func @gemma(%x: tensor<?x128xbf16>, %r: tensor<?x128xbf16>, %w: tensor<128xbf16>) -> tensor<?x128xbf16> {
  %s = nn.add %x, %r : (tensor<?x128xbf16>, tensor<?x128xbf16>) -> tensor<?x128xbf16>
  %n = nn.rms_norm %s, %w {eps = 1.0e-6 : f32, weight_bias = 1.0 : f32, scale_in = f32}
     : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
  return %n : tensor<?x128xbf16>
}

// -----

// CHECK-LABEL: @layer_norm
// CHECK: fusion.group "add_norm" schedule "row"
// CHECK: nn.layer_norm
func.func @layer_norm(%x: tensor<?x128xf32>, %r: tensor<?x128xf32>, %w: tensor<128xf32>, %b: tensor<128xf32>)
    -> tensor<?x128xf32> {
  %s = nn.add %r, %x : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %n = nn.layer_norm %s, %w, %b {eps = 1.0e-5 : f32}
     : (tensor<?x128xf32>, tensor<128xf32>, tensor<128xf32>) -> tensor<?x128xf32>
  return %n : tensor<?x128xf32>
}

// -----

// The norm of something else than a sum stays alone.
// CHECK-LABEL: @no_add
// CHECK-NOT: fusion.group
// CHECK: nn.rms_norm
func.func @no_add(%x: tensor<?x128xf32>, %w: tensor<128xf32>) -> tensor<?x128xf32> {
  %s = nn.silu %x : (tensor<?x128xf32>) -> tensor<?x128xf32>
  %n = nn.rms_norm %s, %w {eps = 1.0e-6 : f32} : (tensor<?x128xf32>, tensor<128xf32>) -> tensor<?x128xf32>
  return %n : tensor<?x128xf32>
}

// -----

// Not convex: the norm's weight is computed from the sum outside the group.
// CHECK-LABEL: @not_convex
// CHECK-NOT: fusion.group
// CHECK: return
func.func @not_convex(%x: tensor<128x128xf32>, %r: tensor<128x128xf32>) -> tensor<128x128xf32> {
  %s = nn.add %x, %r : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %w = nn.reduce %s {kind = "mean", axes = array<i64: 0>, keepdims = false} : (tensor<128x128xf32>) -> tensor<128xf32>
  %n = nn.rms_norm %s, %w {eps = 1.0e-6 : f32} : (tensor<128x128xf32>, tensor<128xf32>) -> tensor<128x128xf32>
  return %n : tensor<128x128xf32>
}

// -----

// A reader of the sum between add and norm moves after the group.
// CHECK-LABEL: @late_reader
// CHECK: %[[G:.*]]:2 = fusion.group "add_norm"
// CHECK: nn.silu %[[G]]#0
func.func @late_reader(%x: tensor<?x128xf32>, %r: tensor<?x128xf32>, %w: tensor<128xf32>)
    -> (tensor<?x128xf32>, tensor<?x128xf32>) {
  %s = nn.add %x, %r : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %a = nn.silu %s : (tensor<?x128xf32>) -> tensor<?x128xf32>
  %n = nn.rms_norm %s, %w {eps = 1.0e-6 : f32} : (tensor<?x128xf32>, tensor<128xf32>) -> tensor<?x128xf32>
  return %n, %a : tensor<?x128xf32>, tensor<?x128xf32>
}

// -----

// GPT-NeoX: two norms of one sum, which is added and measured once. The sum is read again; what follows a norm goes
// along.
// CHECK-LABEL: @two_norms
// CHECK: %[[G:.*]]:3 = fusion.group "add_norm" schedule "row"
// CHECK-NEXT: %[[S:.*]] = nn.add
// CHECK-NEXT: %[[A:.*]] = nn.layer_norm %[[S]]
// CHECK-NEXT: %[[T:.*]] = nn.silu %[[A]]
// CHECK-NEXT: %[[B:.*]] = nn.layer_norm %[[S]]
// CHECK-NEXT: fusion.yield %[[S]], %[[T]], %[[B]]
func.func @two_norms(%x: tensor<?x128xf16>, %r: tensor<?x128xf16>, %w: tensor<128xf16>, %b: tensor<128xf16>, %v: tensor<128xf16>)
    -> (tensor<?x128xf16>, tensor<?x128xf16>, tensor<?x128xf16>) {
  %s = nn.add %x, %r : (tensor<?x128xf16>, tensor<?x128xf16>) -> tensor<?x128xf16>
  %n = nn.layer_norm %s, %w, %b {eps = 1.0e-5 : f32} : (tensor<?x128xf16>, tensor<128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
  %0 = nn.silu %n : (tensor<?x128xf16>) -> tensor<?x128xf16>
  %m = nn.layer_norm %s, %v, %b {eps = 1.0e-5 : f32} : (tensor<?x128xf16>, tensor<128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
  return %s, %0, %m : tensor<?x128xf16>, tensor<?x128xf16>, tensor<?x128xf16>
}

// -----

// The second norm needs the first: one after the other.
// CHECK-LABEL: @norm_after_norm
// CHECK: %[[G:.*]]:2 = fusion.group "add_norm" schedule "row"
// CHECK-COUNT-1: nn.rms_norm
// CHECK: fusion.yield
// CHECK: nn.rms_norm %[[G]]#0
func.func @norm_after_norm(%x: tensor<128x128xf32>, %r: tensor<128x128xf32>, %w: tensor<128xf32>) -> (tensor<128x128xf32>, tensor<128x128xf32>) {
  %s = nn.add %x, %r : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %n = nn.rms_norm %s, %w {eps = 1.0e-6 : f32} : (tensor<128x128xf32>, tensor<128xf32>) -> tensor<128x128xf32>
  %v = nn.reduce %n {kind = "mean", axes = array<i64: 0>, keepdims = false} : (tensor<128x128xf32>) -> tensor<128xf32>
  %m = nn.rms_norm %s, %v {eps = 1.0e-6 : f32} : (tensor<128x128xf32>, tensor<128xf32>) -> tensor<128x128xf32>
  return %n, %m : tensor<128x128xf32>, tensor<128x128xf32>
}

// -----

// Phi-2: attention and MLP side by side, then the residual. A bias that no matmul takes is added on the way.
// CHECK-LABEL: @parallel_residual
// CHECK: %[[G:.*]]:2 = fusion.group "add_norm" schedule "row"
// CHECK-NEXT: nn.add %{{.*}}, %{{.*}} : (tensor<?x128xf16>, tensor<128xf16>)
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.layer_norm
// CHECK-NEXT: fusion.yield
func.func @parallel_residual(%x: tensor<?x128xf16> {nn.dims = ["t", 128]}, %a: tensor<?x128xf16> {nn.dims = ["t", 128]}, %m: tensor<?x128xf16> {nn.dims = ["t", 128]}, %w: tensor<128xf16>, %c: tensor<128xf16>)
    -> (tensor<?x128xf16>, tensor<?x128xf16>) {
  %b = nn.add %m, %c : (tensor<?x128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
  %0 = nn.add %a, %b : (tensor<?x128xf16>, tensor<?x128xf16>) -> tensor<?x128xf16>
  %s = nn.add %x, %0 : (tensor<?x128xf16>, tensor<?x128xf16>) -> tensor<?x128xf16>
  %n = nn.layer_norm %s, %w {eps = 1.0e-5 : f32} : (tensor<?x128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
  return %n, %s : tensor<?x128xf16>, tensor<?x128xf16>
}

// -----

// The inner sum is read elsewhere: it is a residual of its own.
// CHECK-LABEL: @inner_sum_used
// CHECK: nn.add
// CHECK: fusion.group "add_norm" schedule "row"
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.layer_norm
func.func @inner_sum_used(%x: tensor<?x128xf16> {nn.dims = ["t", 128]}, %a: tensor<?x128xf16> {nn.dims = ["t", 128]}, %m: tensor<?x128xf16> {nn.dims = ["t", 128]}, %w: tensor<128xf16>)
    -> (tensor<?x128xf16>, tensor<?x128xf16>) {
  %0 = nn.add %a, %m : (tensor<?x128xf16>, tensor<?x128xf16>) -> tensor<?x128xf16>
  %s = nn.add %x, %0 : (tensor<?x128xf16>, tensor<?x128xf16>) -> tensor<?x128xf16>
  %n = nn.layer_norm %s, %w {eps = 1.0e-5 : f32} : (tensor<?x128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
  return %n, %0 : tensor<?x128xf16>, tensor<?x128xf16>
}

// -----

// Gemma 2 and 3: the branch is normalised, added, and the sum normalised again.
// CHECK-LABEL: @sandwich
// CHECK: %[[G:.*]]:2 = fusion.group "add_norm" schedule "row"
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: fusion.yield
func.func @sandwich(%x: tensor<?x128xbf16> {nn.dims = ["t", 128]}, %a: tensor<?x128xbf16> {nn.dims = ["t", 128]}, %w: tensor<128xbf16>, %v: tensor<128xbf16>)
    -> (tensor<?x128xbf16>, tensor<?x128xbf16>) {
  %0 = nn.rms_norm %a, %w {eps = 1.0e-6 : f32, weight_bias = 1.0 : f32, scale_in = f32} : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
  %s = nn.add %x, %0 : (tensor<?x128xbf16>, tensor<?x128xbf16>) -> tensor<?x128xbf16>
  %n = nn.rms_norm %s, %v {eps = 1.0e-6 : f32, weight_bias = 1.0 : f32, scale_in = f32} : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
  return %n, %s : tensor<?x128xbf16>, tensor<?x128xbf16>
}

// -----

// OLMo 2: the branch is normalised and added; no norm follows.
// CHECK-LABEL: @norm_then_add
// CHECK: fusion.group "add_norm" schedule "row"
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: nn.add
// CHECK-NEXT: fusion.yield
func.func @norm_then_add(%x: tensor<?x128xbf16>, %a: tensor<?x128xbf16>, %w: tensor<128xbf16>) -> tensor<?x128xbf16> {
  %0 = nn.rms_norm %a, %w {eps = 1.0e-6 : f32, scale_in = f32} : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
  %s = nn.add %0, %x : (tensor<?x128xbf16>, tensor<?x128xbf16>) -> tensor<?x128xbf16>
  return %s : tensor<?x128xbf16>
}

// -----

// The normalised branch is read elsewhere, or broadcast by the sum: no residual add.
// CHECK-LABEL: @normal_used
// CHECK-NOT: fusion.group
// CHECK: return
func.func @normal_used(%x: tensor<?x128xbf16>, %y: tensor<4x8x128xbf16>, %a: tensor<?x128xbf16>, %b: tensor<8x128xbf16>, %w: tensor<128xbf16>)
    -> (tensor<?x128xbf16>, tensor<?x128xbf16>, tensor<4x8x128xbf16>) {
  %0 = nn.rms_norm %a, %w {eps = 1.0e-6 : f32} : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
  %s = nn.add %0, %x : (tensor<?x128xbf16>, tensor<?x128xbf16>) -> tensor<?x128xbf16>
  %1 = nn.rms_norm %b, %w {eps = 1.0e-6 : f32} : (tensor<8x128xbf16>, tensor<128xbf16>) -> tensor<8x128xbf16>
  %t = nn.add %1, %y : (tensor<8x128xbf16>, tensor<4x8x128xbf16>) -> tensor<4x8x128xbf16>
  return %0, %s, %t : tensor<?x128xbf16>, tensor<?x128xbf16>, tensor<4x8x128xbf16>
}

// -----

// CHECK-LABEL: @dead_norm
// CHECK-NOT: fusion.group
// CHECK: nn.add
// CHECK-NOT: nn.rms_norm
// CHECK: return
func.func @dead_norm(%x: tensor<?x128xf16>, %r: tensor<?x128xf16>, %w: tensor<128xf16>) -> tensor<?x128xf16> {
  %t = nn.add %x, %r : (tensor<?x128xf16>, tensor<?x128xf16>) -> tensor<?x128xf16>
  %n = nn.rms_norm %t, %w {eps = 1.0e-6 : f32} : (tensor<?x128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
  return %t : tensor<?x128xf16>
}

// -----

// Granite's residuals have a factor: it is computed in f32 here, on the way into the sum.
// CHECK-LABEL: @scaled_residual
// CHECK: %[[G:.*]]:2 = fusion.group "add_norm" schedule "row" (%{{.*}} = %arg1
// CHECK-NEXT: nn.cast
// CHECK: nn.mul
// CHECK-NEXT: nn.cast
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.rms_norm
// CHECK: return %[[G]]#0, %[[G]]#1
func.func @scaled_residual(%x: tensor<4x64xbf16>, %m: tensor<4x64xbf16>, %w: tensor<64xbf16>)
    -> (tensor<4x64xbf16>, tensor<4x64xbf16>) {
  %f = nn.constant {value = dense<0.22> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.cast %m : (tensor<4x64xbf16>) -> tensor<4x64xf32>
  %1 = nn.mul %0, %f : (tensor<4x64xf32>, tensor<f32>) -> tensor<4x64xf32>
  %2 = nn.cast %1 : (tensor<4x64xf32>) -> tensor<4x64xbf16>
  %3 = nn.add %x, %2 : (tensor<4x64xbf16>, tensor<4x64xbf16>) -> tensor<4x64xbf16>
  %4 = nn.rms_norm %3, %w {eps = 1.0e-6 : f32} : (tensor<4x64xbf16>, tensor<64xbf16>) -> tensor<4x64xbf16>
  return %3, %4 : tensor<4x64xbf16>, tensor<4x64xbf16>
}

// -----

// The scaled value has another reader, and a row that is broadcast has another shape: both stay outside.
// CHECK-LABEL: @not_scalars_of_the_sum
// CHECK: nn.mul
// CHECK: nn.relu
// CHECK: fusion.group "add_norm"
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.rms_norm
func.func @not_scalars_of_the_sum(%x: tensor<4x64xbf16>, %m: tensor<4x64xbf16>, %b: tensor<64xbf16>, %w: tensor<64xbf16>)
    -> (tensor<4x64xbf16>, tensor<4x64xbf16>) {
  %0 = nn.mul %m, %m : (tensor<4x64xbf16>, tensor<4x64xbf16>) -> tensor<4x64xbf16>
  %1 = nn.relu %b : (tensor<64xbf16>) -> tensor<64xbf16>
  %2 = nn.add %x, %0 : (tensor<4x64xbf16>, tensor<4x64xbf16>) -> tensor<4x64xbf16>
  %3 = nn.add %2, %1 : (tensor<4x64xbf16>, tensor<64xbf16>) -> tensor<4x64xbf16>
  %4 = nn.rms_norm %3, %w {eps = 1.0e-6 : f32} : (tensor<4x64xbf16>, tensor<64xbf16>) -> tensor<4x64xbf16>
  return %0, %4 : tensor<4x64xbf16>, tensor<4x64xbf16>
}

// -----

// What follows the norm goes along, but for a quantisation, which add_norm_quant has.
// CHECK-LABEL: @scalars_after
// CHECK: %[[G:.*]]:2 = fusion.group "add_norm" schedule "row"
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: %[[Y:.*]] = nn.silu
// CHECK-NEXT: fusion.yield %{{.*}}, %[[Y]]
// CHECK: nn.quantize %[[G]]#1
func.func @scalars_after(%x: tensor<4x64xbf16>, %r: tensor<4x64xbf16>, %w: tensor<64xbf16>, %k: tensor<f32>)
    -> (tensor<4x64xbf16>, tensor<4x64xi8>) {
  %0 = nn.add %x, %r : (tensor<4x64xbf16>, tensor<4x64xbf16>) -> tensor<4x64xbf16>
  %1 = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<4x64xbf16>, tensor<64xbf16>) -> tensor<4x64xbf16>
  %2 = nn.silu %1 : (tensor<4x64xbf16>) -> tensor<4x64xbf16>
  %3 = nn.quantize %2, %k : (tensor<4x64xbf16>, tensor<f32>) -> tensor<4x64xi8>
  return %0, %3 : tensor<4x64xbf16>, tensor<4x64xi8>
}
