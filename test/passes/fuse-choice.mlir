// RUN: fusion-opt %s --fuse --profit=model 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse --profit=model --fuse-disable=matmul_epilogue 2>/dev/null | FileCheck %s --check-prefix=LESS
// RUN: fusion-opt %s --fuse --profit=model --report=%t.md -o /dev/null && FileCheck %s --check-prefix=MISS --input-file=%t.md

// CHECK-LABEL: @main
// LESS-LABEL: @main
// MISS: |  | 1 | add_norm | `norm` | dropped: overlaps matmul_epilogue at product, which saves more |
func.func @main(%x: tensor<64x128xf16>, %v: tensor<128x128xf16>, %r: tensor<64x128xf16>, %w: tensor<128xf16>, %y: tensor<64x128xf16>)
    -> (tensor<64x128xf16>, tensor<64x128xf16>, tensor<64x128xf16>, tensor<64x128xf16>, tensor<64x32xf16>, tensor<64x256xf16>) {
  // The residual goes with the matmul, so that only the sum is written and read.
  // CHECK: fusion.group "matmul_epilogue"
  // CHECK-NEXT: nn.matmul
  // CHECK-NEXT: nn.add
  // CHECK-NEXT: fusion.yield
  // CHECK: nn.rms_norm
  // LESS: fusion.group "add_norm"
  %m = nn.matmul %x, %v : (tensor<64x128xf16>, tensor<128x128xf16>) -> tensor<64x128xf16> loc("product")
  %s = nn.add %m, %r : (tensor<64x128xf16>, tensor<64x128xf16>) -> tensor<64x128xf16>
  %n = nn.rms_norm %s, %w {eps = 1.0e-6 : f32} : (tensor<64x128xf16>, tensor<128xf16>) -> tensor<64x128xf16> loc("norm")

  // Where nobody else reads the sum, both save as much: the pattern comes first.
  // CHECK: fusion.group "add_norm"
  // LESS: fusion.group "add_norm"
  %o = nn.matmul %n, %v : (tensor<64x128xf16>, tensor<128x128xf16>) -> tensor<64x128xf16>
  %p = nn.add %o, %r : (tensor<64x128xf16>, tensor<64x128xf16>) -> tensor<64x128xf16>
  %t = nn.rms_norm %p, %w {eps = 1.0e-6 : f32} : (tensor<64x128xf16>, tensor<128xf16>) -> tensor<64x128xf16>

  // Matmuls of one input, of which two are a gated pair: that is a kernel, the others are one side by side.
  // CHECK-DAG: fusion.group "qkv_matmul"
  // CHECK-DAG: fusion.group "gated_matmul"
  // CHECK-NOT: fusion.group
  %q = nn.weight {name = "q", path = "w.bin", offset = 0 : i64, length = 32768 : i64} : () -> tensor<128x128xf16>
  %k = nn.weight {name = "k", path = "w.bin", offset = 32768 : i64, length = 8192 : i64} : () -> tensor<128x32xf16>
  %g = nn.weight {name = "g", path = "w.bin", offset = 40960 : i64, length = 65536 : i64} : () -> tensor<128x256xf16>
  %u = nn.weight {name = "u", path = "w.bin", offset = 106496 : i64, length = 65536 : i64} : () -> tensor<128x256xf16>
  %0 = nn.matmul %y, %q : (tensor<64x128xf16>, tensor<128x128xf16>) -> tensor<64x128xf16>
  %1 = nn.matmul %y, %k : (tensor<64x128xf16>, tensor<128x32xf16>) -> tensor<64x32xf16>
  %2 = nn.matmul %y, %g : (tensor<64x128xf16>, tensor<128x256xf16>) -> tensor<64x256xf16>
  %3 = nn.matmul %y, %u : (tensor<64x128xf16>, tensor<128x256xf16>) -> tensor<64x256xf16>
  %4 = nn.silu %2 : (tensor<64x256xf16>) -> tensor<64x256xf16>
  %5 = nn.mul %4, %3 : (tensor<64x256xf16>, tensor<64x256xf16>) -> tensor<64x256xf16>
  return %s, %n, %t, %0, %1, %5 : tensor<64x128xf16>, tensor<64x128xf16>, tensor<64x128xf16>, tensor<64x128xf16>, tensor<64x32xf16>, tensor<64x256xf16>
}
