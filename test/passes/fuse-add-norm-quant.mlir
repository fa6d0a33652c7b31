// RUN: fusion-opt %s --fuse-add-norm-quant --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-add-norm-quant --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// The sum is the next residual: it leaves the kernel. The norm does not.
// CHECK-LABEL: @sum_kept
// CHECK: %[[G:.*]]:2 = fusion.group "add_norm_quant" schedule "row"
// CHECK-NEXT: %[[S:.*]] = nn.add
// CHECK-NEXT: %[[N:.*]] = nn.rms_norm %[[S]]
// CHECK-NEXT: %[[Q:.*]] = nn.quantize %[[N]]
// CHECK-NEXT: fusion.yield %[[S]], %[[Q]] : tensor<?x128xbf16>, tensor<?x128xf8E4M3FN>
func.func @sum_kept(%x: tensor<?x128xbf16>, %r: tensor<?x128xbf16>, %w: tensor<128xbf16>, %s: tensor<f32>)
    -> (tensor<?x128xbf16>, tensor<?x128xf8E4M3FN>) {
  %0 = nn.add %x, %r : (tensor<?x128xbf16>, tensor<?x128xbf16>) -> tensor<?x128xbf16>
  %n = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
  %q = nn.quantize %n, %s : (tensor<?x128xbf16>, tensor<f32>) -> tensor<?x128xf8E4M3FN>
  return %0, %q : tensor<?x128xbf16>, tensor<?x128xf8E4M3FN>
}

// -----

// Everything is read outside: sum, norm, quantised norm and scales.
// CHECK-LABEL: @all_kept
// CHECK: %[[G:.*]]:4 = fusion.group "add_norm_quant" schedule "row"
func.func @all_kept(%x: tensor<?x128xf16>, %r: tensor<?x128xf16>, %w: tensor<128xf16>)
    -> (tensor<?x128xf16>, tensor<?x128xf16>, tensor<?x128xi8>, tensor<?x1xf32>) {
  %0 = nn.add %x, %r : (tensor<?x128xf16>, tensor<?x128xf16>) -> tensor<?x128xf16>
  %n = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<?x128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
  %q, %s = nn.dynamic_quantize %n : (tensor<?x128xf16>) -> (tensor<?x128xi8>, tensor<?x1xf32>)
  return %0, %n, %q, %s : tensor<?x128xf16>, tensor<?x128xf16>, tensor<?x128xi8>, tensor<?x1xf32>
}

// -----

// Gemma, per group of 128, with the cast back to the model's type.
// CHECK-LABEL: @gemma_per_group
// CHECK: fusion.group "add_norm_quant" schedule "row"
// CHECK: nn.add
// CHECK-NEXT: nn.rms_norm {{.*}}weight_bias = 1.0
// CHECK-NEXT: nn.cast
// CHECK-NEXT: nn.dynamic_quantize
func.func @gemma_per_group(%x: tensor<?x256xbf16>, %r: tensor<?x256xbf16>, %w: tensor<256xf32>)
    -> (tensor<?x256xf8E4M3FN>, tensor<?x2xf32>) {
  %0 = nn.add %x, %r : (tensor<?x256xbf16>, tensor<?x256xbf16>) -> tensor<?x256xbf16>
  %n = nn.rms_norm %0, %w {eps = 1.0e-6 : f32, weight_bias = 1.0 : f32, scale_in = f32}
     : (tensor<?x256xbf16>, tensor<256xf32>) -> tensor<?x256xf32>
  %c = nn.cast %n : (tensor<?x256xf32>) -> tensor<?x256xbf16>
  %q, %s = nn.dynamic_quantize %c {group_size = 128 : i64}
     : (tensor<?x256xbf16>) -> (tensor<?x256xf8E4M3FN>, tensor<?x2xf32>)
  return %q, %s : tensor<?x256xf8E4M3FN>, tensor<?x2xf32>
}

// -----

// CHECK-LABEL: @layer_norm
// CHECK: fusion.group "add_norm_quant" schedule "row"
// CHECK: nn.layer_norm
// CHECK-NEXT: nn.quantize {{.*}}axis = 1
func.func @layer_norm(%x: tensor<?x128xf32>, %r: tensor<?x128xf32>, %w: tensor<128xf32>, %b: tensor<128xf32>,
                      %s: tensor<128xf32>) -> tensor<?x128xi8> {
  %0 = nn.add %r, %x : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %n = nn.layer_norm %0, %w, %b {eps = 1.0e-5 : f32}
     : (tensor<?x128xf32>, tensor<128xf32>, tensor<128xf32>) -> tensor<?x128xf32>
  %q = nn.quantize %n, %s {axis = 1 : i64} : (tensor<?x128xf32>, tensor<128xf32>) -> tensor<?x128xi8>
  return %q : tensor<?x128xi8>
}

// -----

// CHECK-LABEL: @no_add
// CHECK-NOT: fusion.group
// MISS: add_norm_quant missed at {{.*}}: operand 0 of nn.rms_norm is a graph input, pattern wants nn.add
func.func @no_add(%x: tensor<?x128xf32>, %w: tensor<128xf32>, %s: tensor<f32>) -> tensor<?x128xi8> {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x128xf32>, tensor<128xf32>) -> tensor<?x128xf32>
  %q = nn.quantize %n, %s : (tensor<?x128xf32>, tensor<f32>) -> tensor<?x128xi8>
  return %q : tensor<?x128xi8>
}

// -----

// CHECK-LABEL: @dynamic_width
// CHECK-NOT: fusion.group
// MISS: add_norm_quant missed at {{.*}}: guard StaticLastDim
func.func @dynamic_width(%x: tensor<?x?xf32>, %w: tensor<?xf32>, %s: tensor<f32>) -> tensor<?x?xi8> {
  %0 = nn.add %x, %x : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %n = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
  %q = nn.quantize %n, %s : (tensor<?x?xf32>, tensor<f32>) -> tensor<?x?xi8>
  return %q : tensor<?x?xi8>
}

// -----

// Not convex: the scale is computed from the sum outside the group.
// CHECK-LABEL: @not_convex
// CHECK-NOT: fusion.group
// MISS: add_norm_quant missed at {{.*}}: not convex: nn.quantize reads nn.reduce
func.func @not_convex(%x: tensor<64x128xf32>, %r: tensor<64x128xf32>, %w: tensor<128xf32>) -> tensor<64x128xi8> {
  %0 = nn.add %x, %r : (tensor<64x128xf32>, tensor<64x128xf32>) -> tensor<64x128xf32>
  %s = nn.reduce %0 {kind = "max", axes = array<i64: 0, 1>, keepdims = false} : (tensor<64x128xf32>) -> tensor<f32>
  %n = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<64x128xf32>, tensor<128xf32>) -> tensor<64x128xf32>
  %q = nn.quantize %n, %s : (tensor<64x128xf32>, tensor<f32>) -> tensor<64x128xi8>
  return %q : tensor<64x128xi8>
}

// -----

// Two norms of one sum, one of them quantised for each token, the other with one scale: one kernel.
// CHECK-LABEL: @two_norms
// CHECK: fusion.group "add_norm_quant" schedule "row"
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: nn.dynamic_quantize
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: nn.quantize
// CHECK-NEXT: fusion.yield
// CHECK-NOT: fusion.group
func.func @two_norms(%x: tensor<?x128xbf16>, %r: tensor<?x128xbf16>, %w: tensor<128xbf16>, %v: tensor<128xbf16>, %c: tensor<f32>)
    -> (tensor<?x128xbf16>, tensor<?x128xi8>, tensor<?x1xf32>, tensor<?x128xf8E4M3FN>) {
  %s = nn.add %x, %r : (tensor<?x128xbf16>, tensor<?x128xbf16>) -> tensor<?x128xbf16>
  %n = nn.rms_norm %s, %w {eps = 1.0e-6 : f32} : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
  %0, %1 = nn.dynamic_quantize %n : (tensor<?x128xbf16>) -> (tensor<?x128xi8>, tensor<?x1xf32>)
  %m = nn.rms_norm %s, %v {eps = 1.0e-6 : f32} : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
  %2 = nn.quantize %m, %c : (tensor<?x128xbf16>, tensor<f32>) -> tensor<?x128xf8E4M3FN>
  return %s, %0, %1, %2 : tensor<?x128xbf16>, tensor<?x128xi8>, tensor<?x1xf32>, tensor<?x128xf8E4M3FN>
}
