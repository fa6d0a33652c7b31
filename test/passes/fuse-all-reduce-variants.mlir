// RUN: fusion-opt %s --fuse-all-reduce-add-norm --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-all-reduce-add-norm --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS
// RUN: fusion-opt %s --fuse-all-reduce-add-norm-quant --split-input-file 2>/dev/null | FileCheck %s --check-prefix=QUANT

// The sum over ranks on the left, Gemma's weight.
// CHECK-LABEL: @commuted
// CHECK: fusion.group "all_reduce_add_norm" schedule "collective"
// CHECK-NEXT: %[[A:.*]] = nn.all_reduce
// CHECK-NEXT: %[[T:.*]] = nn.add %[[A]], %{{.*}}
// CHECK-NEXT: nn.rms_norm %[[T]], %{{.*}} {{.*}}weight_bias = 1.0
func.func @commuted(%x: tensor<?x128xbf16>, %r: tensor<?x128xbf16>, %w: tensor<128xbf16>) -> (tensor<?x128xbf16>, tensor<?x128xbf16>) {
  %a = nn.all_reduce %x : (tensor<?x128xbf16>) -> tensor<?x128xbf16>
  %t = nn.add %a, %r : (tensor<?x128xbf16>, tensor<?x128xbf16>) -> tensor<?x128xbf16>
  %n = nn.rms_norm %t, %w {eps = 1.0e-6 : f32, weight_bias = 1.0 : f32} : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
  return %t, %n : tensor<?x128xbf16>, tensor<?x128xbf16>
}

// -----

// Everything on the way is read by somebody else too: it leaves the kernel.
// CHECK-LABEL: @all_kept
// CHECK: %[[G:.*]]:3 = fusion.group "all_reduce_add_norm" schedule "collective"
// CHECK: return %[[G]]#0, %[[G]]#1, %[[G]]#2
// QUANT-LABEL: @all_kept
// QUANT-NOT: fusion.group
// QUANT: return
func.func @all_kept(%x: tensor<8x128xf16>, %r: tensor<8x128xf16>, %w: tensor<128xf16>) -> (tensor<8x128xf16>, tensor<8x128xf16>, tensor<8x128xf16>) {
  %a = nn.all_reduce %x : (tensor<8x128xf16>) -> tensor<8x128xf16>
  %t = nn.add %r, %a : (tensor<8x128xf16>, tensor<8x128xf16>) -> tensor<8x128xf16>
  %n = nn.rms_norm %t, %w {eps = 1.0e-6 : f32} : (tensor<8x128xf16>, tensor<128xf16>) -> tensor<8x128xf16>
  return %a, %t, %n : tensor<8x128xf16>, tensor<8x128xf16>, tensor<8x128xf16>
}

// -----

// The norm leaves beside its quantised form.
// QUANT-LABEL: @norm_kept
// QUANT: %[[G:.*]]:3 = fusion.group "all_reduce_add_norm_quant" schedule "collective"
// QUANT: nn.dynamic_quantize
// QUANT: return %[[G]]#0, %[[G]]#1, %[[G]]#2
func.func @norm_kept(%x: tensor<8x128xf16>, %r: tensor<8x128xf16>, %w: tensor<128xf16>) -> (tensor<8x128xf16>, tensor<8x128xf8E4M3FN>, tensor<8x1xf32>) {
  %a = nn.all_reduce %x : (tensor<8x128xf16>) -> tensor<8x128xf16>
  %t = nn.add %r, %a : (tensor<8x128xf16>, tensor<8x128xf16>) -> tensor<8x128xf16>
  %n = nn.rms_norm %t, %w {eps = 1.0e-6 : f32} : (tensor<8x128xf16>, tensor<128xf16>) -> tensor<8x128xf16>
  %q, %s = nn.dynamic_quantize %n : (tensor<8x128xf16>) -> (tensor<8x128xf8E4M3FN>, tensor<8x1xf32>)
  return %n, %q, %s : tensor<8x128xf16>, tensor<8x128xf8E4M3FN>, tensor<8x1xf32>
}

// -----

// Nobody reads the norm.
// CHECK-LABEL: @dead
// CHECK-NOT: fusion.group
// CHECK: return
func.func @dead(%x: tensor<?x128xf16>, %r: tensor<?x128xf16>, %w: tensor<128xf16>) -> tensor<?x128xf16> {
  %a = nn.all_reduce %x : (tensor<?x128xf16>) -> tensor<?x128xf16>
  %t = nn.add %r, %a : (tensor<?x128xf16>, tensor<?x128xf16>) -> tensor<?x128xf16>
  %n = nn.rms_norm %t, %w {eps = 1.0e-6 : f32} : (tensor<?x128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
  return %t : tensor<?x128xf16>
}

// -----

// CHECK-LABEL: @dynamic_width
// CHECK-NOT: fusion.group
// CHECK: return
// MISS: all_reduce_add_norm missed at {{.*}}guard StaticLastDim
func.func @dynamic_width(%x: tensor<?x?xf16>, %r: tensor<?x?xf16>, %w: tensor<?xf16>) -> tensor<?x?xf16> {
  %a = nn.all_reduce %x : (tensor<?x?xf16>) -> tensor<?x?xf16>
  %t = nn.add %r, %a : (tensor<?x?xf16>, tensor<?x?xf16>) -> tensor<?x?xf16>
  %n = nn.rms_norm %t, %w {eps = 1.0e-6 : f32} : (tensor<?x?xf16>, tensor<?xf16>) -> tensor<?x?xf16>
  return %n : tensor<?x?xf16>
}

// -----

// Sums over different axes of the mesh: one of them is fused, and no group sums over both.
// CHECK-LABEL: @two_axes
// CHECK: nn.all_reduce {{.*}}group = "ep"
// CHECK-NEXT: fusion.group "all_reduce_add_norm" schedule "collective"
// CHECK-NEXT: nn.all_reduce %{{[^ ]*}} : (
// CHECK-NOT: nn.all_reduce
// CHECK: return
func.func @two_axes(%x: tensor<8x128xf16>, %r: tensor<8x128xf16>, %w: tensor<128xf16>) -> tensor<8x128xf16> {
  %e = nn.all_reduce %r {group = "ep"} : (tensor<8x128xf16>) -> tensor<8x128xf16>
  %a = nn.all_reduce %x {group = "tp"} : (tensor<8x128xf16>) -> tensor<8x128xf16>
  %t = nn.add %a, %e : (tensor<8x128xf16>, tensor<8x128xf16>) -> tensor<8x128xf16>
  %n = nn.rms_norm %t, %w {eps = 1.0e-6 : f32} : (tensor<8x128xf16>, tensor<128xf16>) -> tensor<8x128xf16>
  return %n : tensor<8x128xf16>
}
