// RUN: fusion-opt %s --fuse-expert-matmul --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-expert-matmul --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS
// RUN: fusion-opt %s --fuse-expert-matmul --split-input-file --remarks-filter-analyse=fuse 2>&1 >/dev/null | grep Analysis | FileCheck %s --check-prefix=CANDIDATE

// Gate and up in one matrix; the weighted sum over the slots. No candidate has gate and up without their product, or
// products without their sum.
// CANDIDATE-NOT: candidate
// CANDIDATE: expert_matmul {{.*}}Ops=5, Reason="candidate
// CANDIDATE-NEXT: expert_matmul {{.*}}Ops=3, Reason="candidate
// CANDIDATE-NEXT: expert_matmul {{.*}}Ops=4, Reason="candidate
// CHECK-LABEL: @block
// CHECK: fusion.group "expert_matmul" schedule "experts"
// CHECK-NEXT: nn.expert_matmul
// CHECK-NEXT: nn.slice
// CHECK-NEXT: nn.slice
// CHECK-NEXT: nn.silu
// CHECK-NEXT: nn.mul
// CHECK-NEXT: fusion.yield
// CHECK: fusion.group "expert_matmul" schedule "experts"
// CHECK-NEXT: nn.expert_matmul
// CHECK-NEXT: nn.mul
// CHECK-NEXT: nn.reduce
// CHECK-NEXT: nn.add
// CHECK-NEXT: fusion.yield
func.func @block(%x: tensor<?x64xbf16> {nn.dims = ["batch", 64]}, %gate_up: tensor<8x96x64xbf16>, %down: tensor<8x64x48xbf16>,
                 %index: tensor<?x2xi64> {nn.dims = ["batch", 2]}, %weights: tensor<?x2xbf16> {nn.dims = ["batch", 2]})
    -> tensor<?x64xbf16> {
  %r = nn.reshape %x {shape = ["batch", 1, 64]} : (tensor<?x64xbf16>) -> tensor<?x1x64xbf16>
  %p = nn.expert_matmul %r, %gate_up, %index {transpose_w = true}
      : (tensor<?x1x64xbf16>, tensor<8x96x64xbf16>, tensor<?x2xi64>) -> tensor<?x2x96xbf16>
  %g = nn.slice %p {starts = [0, 0, 0], sizes = ["batch", 2, 48], steps = array<i64: 1, 1, 1>} : (tensor<?x2x96xbf16>) -> tensor<?x2x48xbf16>
  %u = nn.slice %p {starts = [0, 0, 48], sizes = ["batch", 2, 48], steps = array<i64: 1, 1, 1>} : (tensor<?x2x96xbf16>) -> tensor<?x2x48xbf16>
  %a = nn.silu %g : (tensor<?x2x48xbf16>) -> tensor<?x2x48xbf16>
  %h = nn.mul %a, %u : (tensor<?x2x48xbf16>, tensor<?x2x48xbf16>) -> tensor<?x2x48xbf16>
  %d = nn.expert_matmul %h, %down, %index {transpose_w = true}
      : (tensor<?x2x48xbf16>, tensor<8x64x48xbf16>, tensor<?x2xi64>) -> tensor<?x2x64xbf16>
  %s = nn.reshape %weights {shape = ["batch", 2, 1]} : (tensor<?x2xbf16>) -> tensor<?x2x1xbf16>
  %m = nn.mul %d, %s : (tensor<?x2x64xbf16>, tensor<?x2x1xbf16>) -> tensor<?x2x64xbf16>
  %t = nn.reduce %m {kind = "sum", axes = array<i64: 1>, keepdims = false} : (tensor<?x2x64xbf16>) -> tensor<?x64xbf16>
  %y = nn.add %t, %x : (tensor<?x64xbf16>, tensor<?x64xbf16>) -> tensor<?x64xbf16>
  return %y : tensor<?x64xbf16>
}

// -----

// Gate and up as two matrices, dequantised inside.
// CANDIDATE-NEXT: expert_matmul {{.*}}Ops=6, Reason="candidate
// CHECK-LABEL: @two_matrices
// CHECK: fusion.group "expert_matmul" schedule "experts"
// CHECK-DAG: nn.dequantize
// CHECK-DAG: nn.expert_matmul
// CHECK-DAG: nn.dequantize
// CHECK-DAG: nn.expert_matmul
// CHECK: nn.gelu
// CHECK-NEXT: nn.mul
// CHECK-NEXT: fusion.yield
func.func @two_matrices(%x: tensor<5x1x64xf16>, %gate: tensor<4x32x64xi8>, %up: tensor<4x32x64xi8>, %s: tensor<4x32x2xf16>,
                        %index: tensor<5x3xi32>) -> tensor<5x3x32xf16> {
  %g = nn.dequantize %gate, %s {axis = 2 : i64, block_size = 32 : i64} : (tensor<4x32x64xi8>, tensor<4x32x2xf16>) -> tensor<4x32x64xf16>
  %u = nn.dequantize %up, %s {axis = 2 : i64, block_size = 32 : i64} : (tensor<4x32x64xi8>, tensor<4x32x2xf16>) -> tensor<4x32x64xf16>
  %p = nn.expert_matmul %x, %g, %index {transpose_w = true} : (tensor<5x1x64xf16>, tensor<4x32x64xf16>, tensor<5x3xi32>) -> tensor<5x3x32xf16>
  %q = nn.expert_matmul %x, %u, %index {transpose_w = true} : (tensor<5x1x64xf16>, tensor<4x32x64xf16>, tensor<5x3xi32>) -> tensor<5x3x32xf16>
  %a = nn.gelu %p : (tensor<5x3x32xf16>) -> tensor<5x3x32xf16>
  %h = nn.mul %a, %q : (tensor<5x3x32xf16>, tensor<5x3x32xf16>) -> tensor<5x3x32xf16>
  return %h : tensor<5x3x32xf16>
}

// -----

// What combines gate and up has no kernel: the activation goes with its half, and each half is a result.
// CANDIDATE-NEXT: expert_matmul {{.*}}Ops=2, Reason="candidate
// CANDIDATE-NEXT: expert_matmul {{.*}}Ops=3, Reason="candidate
// CHECK-LABEL: @never_combined
// CHECK: fusion.group "expert_matmul" schedule "experts"
// CHECK-NEXT: nn.expert_matmul
// CHECK-NEXT: nn.expert_matmul
// CHECK-NEXT: nn.silu
// CHECK-NEXT: fusion.yield
func.func @never_combined(%x: tensor<5x1x64xf16>, %w: tensor<4x32x64xf16>, %v: tensor<4x32x64xf16>, %index: tensor<5x3xi32>)
    -> (tensor<5x3x32xf16>, tensor<5x3x32xf16>) {
  %p = nn.expert_matmul %x, %w, %index {transpose_w = true} : (tensor<5x1x64xf16>, tensor<4x32x64xf16>, tensor<5x3xi32>) -> tensor<5x3x32xf16>
  %q = nn.expert_matmul %x, %v, %index {transpose_w = true} : (tensor<5x1x64xf16>, tensor<4x32x64xf16>, tensor<5x3xi32>) -> tensor<5x3x32xf16>
  %a = nn.silu %p : (tensor<5x3x32xf16>) -> tensor<5x3x32xf16>
  return %a, %q : tensor<5x3x32xf16>, tensor<5x3x32xf16>
}

// -----

// CHECK-LABEL: @softmax_after
// CHECK-NOT: fusion.group
// MISS: expert_matmul missed {{.*}}the result is read by nn.softmax, which is no scalar op
func.func @softmax_after(%x: tensor<5x1x64xf16>, %w: tensor<4x32x64xf16>, %index: tensor<5x3xi32>) -> tensor<5x3x32xf16> {
  %p = nn.expert_matmul %x, %w, %index {transpose_w = true} : (tensor<5x1x64xf16>, tensor<4x32x64xf16>, tensor<5x3xi32>) -> tensor<5x3x32xf16>
  %y = nn.softmax %p {axis = 2 : i64} : (tensor<5x3x32xf16>) -> tensor<5x3x32xf16>
  return %y : tensor<5x3x32xf16>
}

// -----

// A sum over the columns is no sum over the slots.
// CHECK-LABEL: @sum_of_columns
// CHECK: fusion.group "expert_matmul"
// CHECK-NEXT: nn.expert_matmul
// CHECK-NEXT: nn.relu
// CHECK-NEXT: fusion.yield
// CHECK: nn.reduce
func.func @sum_of_columns(%x: tensor<5x1x64xf16>, %w: tensor<4x32x64xf16>, %index: tensor<5x3xi32>) -> tensor<5x3xf16> {
  %p = nn.expert_matmul %x, %w, %index {transpose_w = true} : (tensor<5x1x64xf16>, tensor<4x32x64xf16>, tensor<5x3xi32>) -> tensor<5x3x32xf16>
  %a = nn.relu %p : (tensor<5x3x32xf16>) -> tensor<5x3x32xf16>
  %y = nn.reduce %a {kind = "sum", axes = array<i64: 2>, keepdims = false} : (tensor<5x3x32xf16>) -> tensor<5x3xf16>
  return %y : tensor<5x3xf16>
}

// -----

// A bias of each expert is read by the kernel of the product; one that others read too stays.
// CHECK-LABEL: @bias
// CHECK: %[[B:.*]] = nn.gather
// CHECK: fusion.group "expert_matmul"
// CHECK-DAG: nn.expert_matmul
// CHECK-DAG: nn.gather
// CHECK: nn.add
// CHECK-NEXT: fusion.yield
// CHECK: fusion.group "expert_matmul"
// CHECK-NEXT: nn.expert_matmul
// CHECK-NEXT: nn.add
// CHECK-NEXT: fusion.yield
// CHECK: return %{{.*}}, %{{.*}}, %[[B]]
func.func @bias(%x: tensor<5x1x64xf16>, %z: tensor<5x1x64xf16>, %w: tensor<4x32x64xf16>, %b: tensor<4x32xf16>, %index: tensor<5x3xi32>) -> (tensor<5x3x32xf16>, tensor<5x3x32xf16>, tensor<5x3x32xf16>) {
  %o = nn.gather %b, %index {axis = 0 : i64} : (tensor<4x32xf16>, tensor<5x3xi32>) -> tensor<5x3x32xf16>
  %g = nn.gather %b, %index {axis = 0 : i64} : (tensor<4x32xf16>, tensor<5x3xi32>) -> tensor<5x3x32xf16>
  %p = nn.expert_matmul %x, %w, %index {transpose_w = true} : (tensor<5x1x64xf16>, tensor<4x32x64xf16>, tensor<5x3xi32>) -> tensor<5x3x32xf16>
  %y = nn.add %p, %g : (tensor<5x3x32xf16>, tensor<5x3x32xf16>) -> tensor<5x3x32xf16>
  %q = nn.expert_matmul %z, %w, %index {transpose_w = true} : (tensor<5x1x64xf16>, tensor<4x32x64xf16>, tensor<5x3xi32>) -> tensor<5x3x32xf16>
  %v = nn.add %q, %o : (tensor<5x3x32xf16>, tensor<5x3x32xf16>) -> tensor<5x3x32xf16>
  return %y, %v, %o : tensor<5x3x32xf16>, tensor<5x3x32xf16>, tensor<5x3x32xf16>
}
