// RUN: fusion-opt %s --fuse-norm-quant --split-input-file 2>/dev/null | FileCheck %s

// One scale for the tensor, i8. Nobody else reads the norm: it stays inside.
// CHECK-LABEL: @static_i8
// CHECK: %[[G:.*]] = fusion.group "norm_quant" schedule "row" (%[[X:.*]] = %arg0, %[[W:.*]] = %arg1, %[[S:.*]] = %arg2)
// CHECK-NEXT: %[[N:.*]] = nn.rms_norm %[[X]], %[[W]]
// CHECK-NEXT: %[[Q:.*]] = nn.quantize %[[N]], %[[S]]
// CHECK-NEXT: fusion.yield %[[Q]] : tensor<?x128xi8>
func.func @static_i8(%x: tensor<?x128xbf16>, %w: tensor<128xbf16>, %s: tensor<f32>) -> tensor<?x128xi8> {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
  %q = nn.quantize %n, %s : (tensor<?x128xbf16>, tensor<f32>) -> tensor<?x128xi8>
  return %q : tensor<?x128xi8>
}

// -----

// A zero point goes along.
// CHECK-LABEL: @zero_point
// CHECK: fusion.group "norm_quant" schedule "row"
// CHECK: nn.quantize %{{.*}}, %{{.*}}, %{{.*}} :
func.func @zero_point(%x: tensor<?x128xf32>, %w: tensor<128xf32>, %b: tensor<128xf32>, %s: tensor<f32>, %z: tensor<ui8>)
    -> tensor<?x128xui8> {
  %n = nn.layer_norm %x, %w, %b {eps = 1.0e-5 : f32}
     : (tensor<?x128xf32>, tensor<128xf32>, tensor<128xf32>) -> tensor<?x128xf32>
  %q = nn.quantize %n, %s, %z : (tensor<?x128xf32>, tensor<f32>, tensor<ui8>) -> tensor<?x128xui8>
  return %q : tensor<?x128xui8>
}

// -----

// QDQ: the dequantisation and the other reader of the norm stay outside; the norm leaves for the other reader only.
// CHECK-LABEL: @qdq
// CHECK: %[[G:.*]]:2 = fusion.group "norm_quant"
// CHECK: %[[N:.*]] = nn.rms_norm
// CHECK-NEXT: %[[Q:.*]] = nn.quantize %[[N]]
// CHECK-NEXT: fusion.yield %[[N]], %[[Q]]
// CHECK: nn.dequantize %[[G]]#1
// CHECK: nn.silu %[[G]]#0
func.func @qdq(%x: tensor<?x128xf16>, %w: tensor<128xf16>, %s: tensor<f32>) -> (tensor<?x128xf16>, tensor<?x128xf16>) {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
  %q = nn.quantize %n, %s : (tensor<?x128xf16>, tensor<f32>) -> tensor<?x128xf8E4M3FN>
  %d = nn.dequantize %q, %s : (tensor<?x128xf8E4M3FN>, tensor<f32>) -> tensor<?x128xf16>
  %a = nn.silu %n : (tensor<?x128xf16>) -> tensor<?x128xf16>
  return %d, %a : tensor<?x128xf16>, tensor<?x128xf16>
}

// -----

// Per token: the scales leave the kernel too.
// CHECK-LABEL: @per_token
// CHECK: %[[G:.*]]:2 = fusion.group "norm_quant" schedule "row"
// CHECK: %[[Q:.*]], %[[S:.*]] = nn.dynamic_quantize
// CHECK-NEXT: fusion.yield %[[Q]], %[[S]] : tensor<?x128xf8E4M3FN>, tensor<?x1xf32>
func.func @per_token(%x: tensor<?x128xbf16>, %w: tensor<128xbf16>) -> (tensor<?x128xf8E4M3FN>, tensor<?x1xf32>) {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
  %q, %s = nn.dynamic_quantize %n : (tensor<?x128xbf16>) -> (tensor<?x128xf8E4M3FN>, tensor<?x1xf32>)
  return %q, %s : tensor<?x128xf8E4M3FN>, tensor<?x1xf32>
}

// -----

// Gemma: an f32 weight stored without its 1, the cast back between norm and quantisation, groups of 64.
// CHECK-LABEL: @gemma_per_group
// CHECK: fusion.group "norm_quant" schedule "row"
// CHECK: nn.rms_norm {{.*}}weight_bias = 1.0
// CHECK-NEXT: nn.cast
// CHECK-NEXT: nn.dynamic_quantize {{.*}}group_size = 64
func.func @gemma_per_group(%x: tensor<?x128xbf16>, %w: tensor<128xf32>) -> (tensor<?x128xi8>, tensor<?x2xf32>) {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32, weight_bias = 1.0 : f32, scale_in = f32}
     : (tensor<?x128xbf16>, tensor<128xf32>) -> tensor<?x128xf32>
  %c = nn.cast %n : (tensor<?x128xf32>) -> tensor<?x128xbf16>
  %q, %s = nn.dynamic_quantize %c {group_size = 64 : i64} : (tensor<?x128xbf16>) -> (tensor<?x128xi8>, tensor<?x2xf32>)
  return %q, %s : tensor<?x128xi8>, tensor<?x2xf32>
}

// -----

// One norm, two quantisations: only one of them can take it.
// CHECK-LABEL: @two_readers
// CHECK-COUNT-1: fusion.group "norm_quant"
// CHECK-NOT: fusion.group
func.func @two_readers(%x: tensor<?x128xf32>, %w: tensor<128xf32>, %s: tensor<f32>, %t: tensor<f32>)
    -> (tensor<?x128xi8>, tensor<?x128xi8>) {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x128xf32>, tensor<128xf32>) -> tensor<?x128xf32>
  %q = nn.quantize %n, %s : (tensor<?x128xf32>, tensor<f32>) -> tensor<?x128xi8>
  %r = nn.quantize %n, %t : (tensor<?x128xf32>, tensor<f32>) -> tensor<?x128xi8>
  return %q, %r : tensor<?x128xi8>, tensor<?x128xi8>
}

// -----

// CHECK-LABEL: @dead_quant
// CHECK-NOT: fusion.group
// CHECK: nn.rms_norm
// CHECK-NOT: nn.quantize
// CHECK: return
func.func @dead_quant(%x: tensor<?x128xf16>, %w: tensor<128xf16>, %s: tensor<f32>) -> tensor<?x128xf16> {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
  %q = nn.quantize %n, %s : (tensor<?x128xf16>, tensor<f32>) -> tensor<?x128xi8>
  return %n : tensor<?x128xf16>
}

// -----

// The scales stay inside where nobody reads them.
// CHECK-LABEL: @dead_scale
// CHECK: %[[Q:.*]] = fusion.group "norm_quant" schedule "row"
// CHECK: fusion.yield %{{[a-z0-9]*}} : tensor<?x128xi8>
// CHECK: return %[[Q]]
func.func @dead_scale(%x: tensor<?x128xf16>, %w: tensor<128xf16>) -> tensor<?x128xi8> {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
  %q, %s = nn.dynamic_quantize %n : (tensor<?x128xf16>) -> (tensor<?x128xi8>, tensor<?x1xf32>)
  return %q : tensor<?x128xi8>
}
