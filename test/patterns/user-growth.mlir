// A user's pattern grows as the built-in families do: by the residual add before its norm, and by what reads its result.
// RUN: fusion-opt %s --fuse --patterns=%examples/patterns/gated_norm.pdll --require=gated_norm=2 --verify-fusions | FileCheck %s

// A residual that others read too, and a dynamic quantisation.
// CHECK: fusion.group "gated_norm" schedule "row"
// CHECK-NEXT: %[[T:.*]] = nn.add
// CHECK-NEXT: nn.layer_norm %[[T]]
// CHECK-NEXT: nn.gelu
// CHECK-NEXT: nn.mul
// CHECK-NEXT: nn.dynamic_quantize
// CHECK-NEXT: fusion.yield

// A sum of three ahead; a residual and a cast after.
// CHECK: fusion.group "gated_norm" schedule "row"
// CHECK-COUNT-2: nn.add
// CHECK: nn.rms_norm
// CHECK: nn.mul
// CHECK: nn.add
// CHECK-NEXT: nn.cast
// CHECK-NEXT: fusion.yield
// CHECK-NOT: fusion.group
// CHECK: return
func.func @main(%x: tensor<?x256xbf16> {nn.dims = ["s", 256]}, %r: tensor<?x256xbf16> {nn.dims = ["s", 256]},
                %c: tensor<?x256xbf16> {nn.dims = ["s", 256]}, %z: tensor<?x256xbf16> {nn.dims = ["s", 256]},
                %w: tensor<256xbf16>, %b: tensor<256xbf16>)
    -> (tensor<?x256xbf16>, tensor<?x256xf8E4M3FN>, tensor<?x1xf32>, tensor<?x256xf32>) {
  %t = nn.add %x, %r : (tensor<?x256xbf16>, tensor<?x256xbf16>) -> tensor<?x256xbf16>
  %n = nn.layer_norm %t, %w, %b {eps = 1.0e-5 : f32} : (tensor<?x256xbf16>, tensor<256xbf16>, tensor<256xbf16>) -> tensor<?x256xbf16>
  %g = nn.gelu %z : (tensor<?x256xbf16>) -> tensor<?x256xbf16>
  %y = nn.mul %n, %g : (tensor<?x256xbf16>, tensor<?x256xbf16>) -> tensor<?x256xbf16>
  %q, %s = nn.dynamic_quantize %y : (tensor<?x256xbf16>) -> (tensor<?x256xf8E4M3FN>, tensor<?x1xf32>)
  %0 = nn.add %x, %c : (tensor<?x256xbf16>, tensor<?x256xbf16>) -> tensor<?x256xbf16>
  %1 = nn.add %0, %z : (tensor<?x256xbf16>, tensor<?x256xbf16>) -> tensor<?x256xbf16>
  %m = nn.rms_norm %1, %w {eps = 1.0e-6 : f32} : (tensor<?x256xbf16>, tensor<256xbf16>) -> tensor<?x256xbf16>
  %h = nn.silu %r : (tensor<?x256xbf16>) -> tensor<?x256xbf16>
  %v = nn.mul %m, %h : (tensor<?x256xbf16>, tensor<?x256xbf16>) -> tensor<?x256xbf16>
  %o = nn.add %v, %c : (tensor<?x256xbf16>, tensor<?x256xbf16>) -> tensor<?x256xbf16>
  %f = nn.cast %o : (tensor<?x256xbf16>) -> tensor<?x256xf32>
  return %t, %q, %s, %f : tensor<?x256xbf16>, tensor<?x256xf8E4M3FN>, tensor<?x1xf32>, tensor<?x256xf32>
}
