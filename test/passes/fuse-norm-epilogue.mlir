// RUN: fusion-opt %s --fuse-norm-epilogue --split-input-file 2>/dev/null | FileCheck %s

// The gated norm of Qwen3.5's linear attention, which is computed in f32: the gate's branch goes along.
// CHECK-LABEL: @gated
// CHECK: %[[G:.*]] = fusion.group "norm_epilogue" schedule "row"
// CHECK-DAG: nn.rms_norm
// CHECK-DAG: nn.cast {{.*}} -> tensor<?x4x32xf32>
// CHECK: nn.silu
// CHECK: nn.mul
// CHECK: %[[Y:.*]] = nn.cast {{.*}} -> tensor<?x4x32xbf16>
// CHECK: fusion.yield %[[Y]]
// CHECK: return %[[G]]
func.func @gated(%x: tensor<?x4x32xbf16> {nn.dims = ["n", 4, 32]}, %z: tensor<?x128xbf16> {nn.dims = ["n", 128]},
                 %w: tensor<32xf32>) -> tensor<?x4x32xbf16> {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x4x32xbf16>, tensor<32xf32>) -> tensor<?x4x32xf32>
  %h = nn.reshape %z {shape = ["n", 4, 32]} : (tensor<?x128xbf16>) -> tensor<?x4x32xbf16>
  %c = nn.cast %h : (tensor<?x4x32xbf16>) -> tensor<?x4x32xf32>
  %g = nn.silu %c : (tensor<?x4x32xf32>) -> tensor<?x4x32xf32>
  %m = nn.mul %n, %g : (tensor<?x4x32xf32>, tensor<?x4x32xf32>) -> tensor<?x4x32xf32>
  %y = nn.cast %m : (tensor<?x4x32xf32>) -> tensor<?x4x32xbf16>
  return %y : tensor<?x4x32xbf16>
}

// -----

// The norm has another reader: it stays what it is.
// CHECK-LABEL: @read_twice
// CHECK-NOT: fusion.group
// CHECK: return
func.func @read_twice(%x: tensor<8x64xf16>, %w: tensor<64xf16>) -> (tensor<8x64xf16>, tensor<8x64xf16>) {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<8x64xf16>, tensor<64xf16>) -> tensor<8x64xf16>
  %y = nn.relu %n : (tensor<8x64xf16>) -> tensor<8x64xf16>
  return %n, %y : tensor<8x64xf16>, tensor<8x64xf16>
}

// -----

// A residual alone is add_norm's, a quantisation alone norm_quant's.
// CHECK-LABEL: @of_other_families
// CHECK-NOT: fusion.group
// CHECK: return
func.func @of_other_families(%x: tensor<8x64xf16>, %r: tensor<8x64xf16>, %w: tensor<64xf16>, %s: tensor<f32>)
    -> (tensor<8x64xf16>, tensor<8x64xi8>) {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<8x64xf16>, tensor<64xf16>) -> tensor<8x64xf16>
  %y = nn.add %n, %r : (tensor<8x64xf16>, tensor<8x64xf16>) -> tensor<8x64xf16>
  %m = nn.rms_norm %r, %w {eps = 1.0e-6 : f32} : (tensor<8x64xf16>, tensor<64xf16>) -> tensor<8x64xf16>
  %q = nn.quantize %m, %s : (tensor<8x64xf16>, tensor<f32>) -> tensor<8x64xi8>
  return %y, %q : tensor<8x64xf16>, tensor<8x64xi8>
}

// -----

// What is broadcast has more elements than the norm.
// CHECK-LABEL: @broadcast
// CHECK-NOT: fusion.group
// CHECK: return
func.func @broadcast(%x: tensor<1x64xf16>, %z: tensor<8x64xf16>, %w: tensor<64xf16>) -> tensor<8x64xf16> {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<1x64xf16>, tensor<64xf16>) -> tensor<1x64xf16>
  %y = nn.mul %n, %z : (tensor<1x64xf16>, tensor<8x64xf16>) -> tensor<8x64xf16>
  return %y : tensor<8x64xf16>
}
