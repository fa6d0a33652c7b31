// The documented example of a fusion that a user adds: docs/adding-a-fusion.md.
// RUN: fusion-opt %s --fuse --patterns=%examples/patterns/gated_norm.pdll --require=gated_norm=1 --verify-fusions 2>&1 \
// RUN:   | FileCheck %s
// RUN: fusion-opt %s --fuse --patterns=%examples/patterns/gated_norm.pdll --report=%t.json -o %t.mlir
// RUN: FileCheck --check-prefix=REPORT %s < %t.json

// CHECK: fusion.group "gated_norm" schedule "row"
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: nn.silu
// CHECK-NEXT: nn.mul
// CHECK-NEXT: fusion.yield

// The second norm is multiplied with its input.
// REPORT: "gated_norm": {
// REPORT: operand {{[01]}} of nn.mul is a graph input, pattern wants a{{ norm .nn.layer_norm, nn.rms_norm.|n activation .*nn.silu.*}} [gated_norm.pdll:
func.func @main(%x: tensor<?x256xbf16> {nn.dims = ["s", 256]}, %z: tensor<?x256xbf16> {nn.dims = ["s", 256]},
                %w: tensor<256xbf16>)
    -> (tensor<?x256xbf16>, tensor<?x256xbf16>) {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x256xbf16>, tensor<256xbf16>) -> tensor<?x256xbf16>
  %s = nn.silu %z : (tensor<?x256xbf16>) -> tensor<?x256xbf16>
  %y = nn.mul %s, %n : (tensor<?x256xbf16>, tensor<?x256xbf16>) -> tensor<?x256xbf16>
  %u = nn.mul %x, %z : (tensor<?x256xbf16>, tensor<?x256xbf16>) -> tensor<?x256xbf16>
  return %y, %u : tensor<?x256xbf16>, tensor<?x256xbf16>
}
