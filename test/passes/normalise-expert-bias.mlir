// RUN: fusion-opt %s --nn-canonicalize --split-input-file | FileCheck %s

// Gate and up of one matrix, in turns: each has its own columns of the experts' bias.
// CHECK-LABEL: @turns
// CHECK-DAG: %[[P:.*]] = nn.expert_matmul
// CHECK-DAG: %[[G:.*]] = nn.slice %{{.*}} {sizes = [4, 16], starts = [0, 0], steps = array<i64: 1, 2>}
// CHECK-DAG: %[[U:.*]] = nn.slice %{{.*}} {sizes = [4, 16], starts = [0, 1], steps = array<i64: 1, 2>}
// CHECK-DAG: nn.gather %[[G]]
// CHECK-DAG: nn.gather %[[U]]
// CHECK-DAG: nn.slice %[[P]] {sizes = [5, 3, 16], starts = [0, 0, 0], steps = array<i64: 1, 1, 2>}
// CHECK-DAG: nn.slice %[[P]] {sizes = [5, 3, 16], starts = [0, 0, 1], steps = array<i64: 1, 1, 2>}
func.func @turns(%x: tensor<5x1x64xf16>, %w: tensor<4x32x64xf16>, %b: tensor<4x32xf16>, %index: tensor<5x3xi64>) -> tensor<5x3x16xf16> {
  %p = nn.expert_matmul %x, %w, %index {transpose_w = true} : (tensor<5x1x64xf16>, tensor<4x32x64xf16>, tensor<5x3xi64>) -> tensor<5x3x32xf16>
  %r = nn.gather %b, %index {axis = 0 : i64} : (tensor<4x32xf16>, tensor<5x3xi64>) -> tensor<5x3x32xf16>
  %s = nn.add %p, %r : (tensor<5x3x32xf16>, tensor<5x3x32xf16>) -> tensor<5x3x32xf16>
  %g = nn.slice %s {starts = [0, 0, 0], sizes = [5, 3, 16], steps = array<i64: 1, 1, 2>} : (tensor<5x3x32xf16>) -> tensor<5x3x16xf16>
  %u = nn.slice %s {starts = [0, 0, 1], sizes = [5, 3, 16], steps = array<i64: 1, 1, 2>} : (tensor<5x3x32xf16>) -> tensor<5x3x16xf16>
  %a = nn.silu %g : (tensor<5x3x16xf16>) -> tensor<5x3x16xf16>
  %y = nn.mul %a, %u : (tensor<5x3x16xf16>, tensor<5x3x16xf16>) -> tensor<5x3x16xf16>
  return %y : tensor<5x3x16xf16>
}

// -----

// The whole sum is read too.
// CHECK-LABEL: @whole
// CHECK: %[[S:.*]] = nn.add
// CHECK: nn.slice %[[S]]
func.func @whole(%x: tensor<5x1x64xf16>, %w: tensor<4x32x64xf16>, %b: tensor<4x32xf16>, %index: tensor<5x3xi64>) -> (tensor<5x3x16xf16>, tensor<5x3x32xf16>) {
  %p = nn.expert_matmul %x, %w, %index {transpose_w = true} : (tensor<5x1x64xf16>, tensor<4x32x64xf16>, tensor<5x3xi64>) -> tensor<5x3x32xf16>
  %r = nn.gather %b, %index {axis = 0 : i64} : (tensor<4x32xf16>, tensor<5x3xi64>) -> tensor<5x3x32xf16>
  %s = nn.add %p, %r : (tensor<5x3x32xf16>, tensor<5x3x32xf16>) -> tensor<5x3x32xf16>
  %g = nn.slice %s {starts = [0, 0, 0], sizes = [5, 3, 16], steps = array<i64: 1, 1, 2>} : (tensor<5x3x32xf16>) -> tensor<5x3x16xf16>
  return %g, %s : tensor<5x3x16xf16>, tensor<5x3x32xf16>
}
