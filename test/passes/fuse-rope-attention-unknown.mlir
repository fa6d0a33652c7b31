// RUN: fusion-opt %s --fuse --profit=model 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse --profit=model --report=%t.md -o /dev/null && FileCheck %s --check-prefix=MISS --input-file=%t.md

// Of an unknown number of new positions only a measurement chooses one kernel for few of them.
// CHECK: fusion.group "rope_kv_write"
// CHECK-NOT: fusion.group "rope_attention"
// CHECK: return
// MISS: one kernel, for few new positions, is taken only where a measurement chooses between it and kernels of its parts, unless their number is known
func.func @main(%q: tensor<1x4x?x32xbf16> {nn.dims = [1, 4, "n", 32]}, %k: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "n", 32]}, %v: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "n", 32]},
    %pk: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "p", 32], nn.storage = [1, 2, 64, 32]}, %pv: tensor<1x2x?x32xbf16> {nn.dims = [1, 2, "p", 32], nn.storage = [1, 2, 64, 32]},
    %cos: tensor<1x1x?x32xbf16> {nn.dims = [1, 1, "n", 32]}, %sin: tensor<1x1x?x32xbf16> {nn.dims = [1, 1, "n", 32]})
    -> (tensor<1x4x?x32xbf16>, tensor<1x2x?x32xbf16> {nn.alias = 3 : i64}, tensor<1x2x?x32xbf16> {nn.alias = 4 : i64}) {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x?x32xbf16>, tensor<1x1x?x32xbf16>, tensor<1x1x?x32xbf16>) -> tensor<1x4x?x32xbf16>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x?x32xbf16>, tensor<1x1x?x32xbf16>, tensor<1x1x?x32xbf16>) -> tensor<1x2x?x32xbf16>
  %2 = nn.concat %pk, %1 {axis = 2 : i64} : (tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>) -> tensor<1x2x?x32xbf16>
  %3 = nn.concat %pv, %v {axis = -2 : i64} : (tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>) -> tensor<1x2x?x32xbf16>
  %4 = nn.attention %0, %2, %3 {scale = 0.25 : f32} : (tensor<1x4x?x32xbf16>, tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>) -> tensor<1x4x?x32xbf16>
  return %4, %2, %3 : tensor<1x4x?x32xbf16>, tensor<1x2x?x32xbf16>, tensor<1x2x?x32xbf16>
}
