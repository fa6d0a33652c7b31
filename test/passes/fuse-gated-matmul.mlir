// RUN: fusion-opt %s --fuse-gated-matmul --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-gated-matmul --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// CHECK-LABEL: @silu
// CHECK: fusion.group "gated_matmul" schedule "matmul"
// CHECK: nn.matmul
// CHECK: nn.silu
// CHECK: nn.matmul
// CHECK: nn.mul
// CHECK: fusion.yield
func.func @silu(%x: tensor<?x64xf16>, %g: tensor<64x96xf16>, %u: tensor<64x96xf16>) -> tensor<?x96xf16> {
  %0 = nn.matmul %x, %g : (tensor<?x64xf16>, tensor<64x96xf16>) -> tensor<?x96xf16>
  %1 = nn.silu %0 : (tensor<?x96xf16>) -> tensor<?x96xf16>
  %2 = nn.matmul %x, %u : (tensor<?x64xf16>, tensor<64x96xf16>) -> tensor<?x96xf16>
  %3 = nn.mul %1, %2 : (tensor<?x96xf16>, tensor<?x96xf16>) -> tensor<?x96xf16>
  return %3 : tensor<?x96xf16>
}

// -----

// Commuted, GELU, f32.
// CHECK-LABEL: @gelu_commuted
// CHECK: fusion.group "gated_matmul" schedule "matmul"
func.func @gelu_commuted(%x: tensor<?x64xf32>, %g: tensor<64x96xf32>, %u: tensor<64x96xf32>) -> tensor<?x96xf32> {
  %2 = nn.matmul %x, %u : (tensor<?x64xf32>, tensor<64x96xf32>) -> tensor<?x96xf32>
  %0 = nn.matmul %x, %g : (tensor<?x64xf32>, tensor<64x96xf32>) -> tensor<?x96xf32>
  %1 = nn.gelu %0 {approximate = "tanh"} : (tensor<?x96xf32>) -> tensor<?x96xf32>
  %3 = nn.mul %2, %1 : (tensor<?x96xf32>, tensor<?x96xf32>) -> tensor<?x96xf32>
  return %3 : tensor<?x96xf32>
}

// -----

// Two inputs: not one product beside another.
// CHECK-LABEL: @two_inputs
// CHECK-NOT: fusion.group
// CHECK: return
// MISS: gated_matmul missed at {{.*}}
func.func @two_inputs(%x: tensor<?x64xf16>, %z: tensor<?x64xf16>, %g: tensor<64x96xf16>, %u: tensor<64x96xf16>)
    -> tensor<?x96xf16> {
  %0 = nn.matmul %x, %g : (tensor<?x64xf16>, tensor<64x96xf16>) -> tensor<?x96xf16>
  %1 = nn.silu %0 : (tensor<?x96xf16>) -> tensor<?x96xf16>
  %2 = nn.matmul %z, %u : (tensor<?x64xf16>, tensor<64x96xf16>) -> tensor<?x96xf16>
  %3 = nn.mul %1, %2 : (tensor<?x96xf16>, tensor<?x96xf16>) -> tensor<?x96xf16>
  return %3 : tensor<?x96xf16>
}
