// RUN: fusion-opt %s --fuse-all-reduce-norm --split-input-file 2>/dev/null | FileCheck %s --check-prefix=NORM
// RUN: fusion-opt %s --fuse-all-reduce-norm --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=NONE
// RUN: fusion-opt %s --fuse-all-reduce-add-norm --split-input-file 2>/dev/null | FileCheck %s --check-prefix=ADD
// RUN: fusion-opt %s --fuse-all-reduce-add-norm --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISSED
// RUN: fusion-opt %s --fuse-all-reduce-norm-quant --split-input-file 2>/dev/null | FileCheck %s --check-prefix=QUANT
// RUN: fusion-opt %s --fuse-all-reduce-add-norm-quant --split-input-file 2>/dev/null | FileCheck %s --check-prefix=ADDQUANT

// One kernel for the sum over ranks and what stands after it, by the collective schedule.
// NORM-LABEL: @norm(
// NORM: fusion.group "all_reduce_norm" schedule "collective"
// NORM-NEXT: %[[A:.*]] = nn.all_reduce
// NORM-NEXT: nn.rms_norm %[[A]]
// QUANT-LABEL: @norm(
// QUANT: fusion.group "all_reduce_norm_quant" schedule "collective"
// QUANT-NEXT: nn.all_reduce
// QUANT-NEXT: nn.rms_norm
// QUANT-NEXT: nn.quantize
// MISSED: all_reduce_add_norm missed at {{.*}}: operand 0 of nn.rms_norm is produced by nn.all_reduce, pattern wants nn.add
func.func @norm(%x: tensor<?x128xbf16>, %w: tensor<128xbf16>, %s: tensor<f32>) -> tensor<?x128xf8E4M3FN> {
  %a = nn.all_reduce %x : (tensor<?x128xbf16>) -> tensor<?x128xbf16>
  %n = nn.rms_norm %a, %w {eps = 1.0e-6 : f32} : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
  %q = nn.quantize %n, %s : (tensor<?x128xbf16>, tensor<f32>) -> tensor<?x128xf8E4M3FN>
  return %q : tensor<?x128xf8E4M3FN>
}

// -----

// The residual in either order, LayerNorm.
// ADD-LABEL: @add(
// ADD: %[[G:.*]]:2 = fusion.group "all_reduce_add_norm" schedule "collective"
// ADD-NEXT: %[[A:.*]] = nn.all_reduce
// ADD-NEXT: %[[T:.*]] = nn.add %{{.*}}, %[[A]]
// ADD-NEXT: nn.layer_norm %[[T]]
// ADDQUANT-LABEL: @add(
// ADDQUANT: fusion.group "all_reduce_add_norm_quant" schedule "collective"
// ADDQUANT-NEXT: nn.all_reduce
// ADDQUANT-NEXT: nn.add
// ADDQUANT-NEXT: nn.layer_norm
// ADDQUANT-NEXT: nn.quantize
func.func @add(%x: tensor<8x128xf32>, %r: tensor<8x128xf32>, %w: tensor<128xf32>, %b: tensor<128xf32>, %s: tensor<f32>)
    -> (tensor<8x128xf32>, tensor<8x128xi8>) {
  %a = nn.all_reduce %x : (tensor<8x128xf32>) -> tensor<8x128xf32>
  %t = nn.add %r, %a : (tensor<8x128xf32>, tensor<8x128xf32>) -> tensor<8x128xf32>
  %n = nn.layer_norm %t, %w, %b {eps = 1.0e-5 : f32} : (tensor<8x128xf32>, tensor<128xf32>, tensor<128xf32>) -> tensor<8x128xf32>
  %q = nn.quantize %n, %s : (tensor<8x128xf32>, tensor<f32>) -> tensor<8x128xi8>
  return %t, %q : tensor<8x128xf32>, tensor<8x128xi8>
}

// -----

// A reshape after the sum.
// ADD-LABEL: @reshape(
// ADD: fusion.group "all_reduce_add_norm" schedule "collective"
// ADD-NEXT: nn.all_reduce
// ADD-NEXT: nn.reshape
// ADD-NEXT: nn.add
// ADD-NEXT: nn.rms_norm
func.func @reshape(%x: tensor<4x2x128xf32>, %r: tensor<8x128xf32>, %w: tensor<128xf32>) -> tensor<8x128xf32> {
  %a = nn.all_reduce %x : (tensor<4x2x128xf32>) -> tensor<4x2x128xf32>
  %v = nn.reshape %a {shape = [8, 128]} : (tensor<4x2x128xf32>) -> tensor<8x128xf32>
  %t = nn.add %v, %r : (tensor<8x128xf32>, tensor<8x128xf32>) -> tensor<8x128xf32>
  %n = nn.rms_norm %t, %w {eps = 1.0e-6 : f32} : (tensor<8x128xf32>, tensor<128xf32>) -> tensor<8x128xf32>
  return %n : tensor<8x128xf32>
}

// -----

// One rank alone: nothing to miss at each norm, one line for all.
// NONE: all_reduce_norm missed at : the graph has no nn.all_reduce
func.func @single(%x: tensor<?x128xbf16>, %w: tensor<128xbf16>) -> tensor<?x128xbf16> {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
  return %n : tensor<?x128xbf16>
}
