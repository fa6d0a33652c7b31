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

// -----

// DynamicQuantizeLinear and MatMulInteger: the scales after both products, and the casts to the model's type.
// CHECK-LABEL: @integer_products
// CHECK: fusion.group "gated_matmul" schedule "matmul"
// CHECK-COUNT-2: nn.matmul
// CHECK: fusion.yield
// CHECK-NOT: fusion.group
// CHECK: return
func.func @integer_products(%x: tensor<?x64xi8>, %s: tensor<f32>, %g: tensor<64x96xi8>, %gs: tensor<96xf32>, %u: tensor<64x96xi8>, %us: tensor<96xf32>) -> tensor<?x96xf16> {
  %a = nn.cast %x : (tensor<?x64xi8>) -> tensor<?x64xi32>
  %wg = nn.cast %g : (tensor<64x96xi8>) -> tensor<64x96xi32>
  %wu = nn.cast %u : (tensor<64x96xi8>) -> tensor<64x96xi32>
  %0 = nn.matmul %a, %wg : (tensor<?x64xi32>, tensor<64x96xi32>) -> tensor<?x96xi32>
  %1 = nn.cast %0 : (tensor<?x96xi32>) -> tensor<?x96xf32>
  %2 = nn.mul %s, %gs : (tensor<f32>, tensor<96xf32>) -> tensor<96xf32>
  %3 = nn.mul %1, %2 : (tensor<?x96xf32>, tensor<96xf32>) -> tensor<?x96xf32>
  %4 = nn.cast %3 : (tensor<?x96xf32>) -> tensor<?x96xf16>
  %5 = nn.silu %4 : (tensor<?x96xf16>) -> tensor<?x96xf16>
  %6 = nn.matmul %a, %wu : (tensor<?x64xi32>, tensor<64x96xi32>) -> tensor<?x96xi32>
  %7 = nn.cast %6 : (tensor<?x96xi32>) -> tensor<?x96xf32>
  %8 = nn.mul %s, %us : (tensor<f32>, tensor<96xf32>) -> tensor<96xf32>
  %9 = nn.mul %7, %8 : (tensor<?x96xf32>, tensor<96xf32>) -> tensor<?x96xf32>
  %10 = nn.cast %9 : (tensor<?x96xf32>) -> tensor<?x96xf16>
  %11 = nn.mul %10, %5 : (tensor<?x96xf16>, tensor<?x96xf16>) -> tensor<?x96xf16>
  return %11 : tensor<?x96xf16>
}

// -----

// The gate's product is read as it is, too.
// CHECK-LABEL: @gate_used
// CHECK: %[[G:.*]]:2 = fusion.group "gated_matmul" schedule "matmul"
// CHECK: return %[[G]]#0, %[[G]]#1
func.func @gate_used(%x: tensor<?x64xf16>, %g: tensor<64x96xf16>, %u: tensor<64x96xf16>) -> (tensor<?x96xf16>, tensor<?x96xf16>) {
  %0 = nn.matmul %x, %g : (tensor<?x64xf16>, tensor<64x96xf16>) -> tensor<?x96xf16>
  %1 = nn.silu %0 : (tensor<?x96xf16>) -> tensor<?x96xf16>
  %2 = nn.matmul %x, %u : (tensor<?x64xf16>, tensor<64x96xf16>) -> tensor<?x96xf16>
  %3 = nn.mul %1, %2 : (tensor<?x96xf16>, tensor<?x96xf16>) -> tensor<?x96xf16>
  return %0, %3 : tensor<?x96xf16>, tensor<?x96xf16>
}

// -----

// CHECK-LABEL: @dead
// CHECK-NOT: fusion.group
// CHECK: nn.silu
// CHECK-NOT: nn.mul
// CHECK: return
func.func @dead(%x: tensor<?x64xf16>, %g: tensor<64x96xf16>, %u: tensor<64x96xf16>) -> tensor<?x96xf16> {
  %0 = nn.matmul %x, %g : (tensor<?x64xf16>, tensor<64x96xf16>) -> tensor<?x96xf16>
  %1 = nn.silu %0 : (tensor<?x96xf16>) -> tensor<?x96xf16>
  %2 = nn.matmul %x, %u : (tensor<?x64xf16>, tensor<64x96xf16>) -> tensor<?x96xf16>
  %3 = nn.mul %1, %2 : (tensor<?x96xf16>, tensor<?x96xf16>) -> tensor<?x96xf16>
  return %1 : tensor<?x96xf16>
}

// -----

// A bias on one side only, in either order.
// CHECK-LABEL: @bias_of_the_gate
// CHECK: fusion.group "gated_matmul" schedule "matmul"
// CHECK-COUNT-2: nn.matmul
// CHECK: nn.add
// CHECK: nn.silu
// CHECK: nn.mul
// CHECK-NEXT: fusion.yield
func.func @bias_of_the_gate(%x: tensor<?x64xf16>, %g: tensor<64x96xf16>, %u: tensor<64x96xf16>, %b: tensor<96xf16>) -> tensor<?x96xf16> {
  %0 = nn.matmul %x, %g : (tensor<?x64xf16>, tensor<64x96xf16>) -> tensor<?x96xf16>
  %1 = nn.matmul %x, %u : (tensor<?x64xf16>, tensor<64x96xf16>) -> tensor<?x96xf16>
  %2 = nn.add %0, %b : (tensor<?x96xf16>, tensor<96xf16>) -> tensor<?x96xf16>
  %3 = nn.silu %2 : (tensor<?x96xf16>) -> tensor<?x96xf16>
  %4 = nn.mul %3, %1 : (tensor<?x96xf16>, tensor<?x96xf16>) -> tensor<?x96xf16>
  return %4 : tensor<?x96xf16>
}

// -----

// CHECK-LABEL: @bias_of_the_other
// CHECK: fusion.group "gated_matmul" schedule "matmul"
// CHECK-COUNT-2: nn.matmul
// CHECK: nn.add
// CHECK: nn.mul
// CHECK-NEXT: fusion.yield
func.func @bias_of_the_other(%x: tensor<?x64xf16>, %g: tensor<64x96xf16>, %u: tensor<64x96xf16>, %b: tensor<96xf16>) -> tensor<?x96xf16> {
  %0 = nn.matmul %x, %g : (tensor<?x64xf16>, tensor<64x96xf16>) -> tensor<?x96xf16>
  %1 = nn.matmul %x, %u : (tensor<?x64xf16>, tensor<64x96xf16>) -> tensor<?x96xf16>
  %2 = nn.add %b, %1 : (tensor<96xf16>, tensor<?x96xf16>) -> tensor<?x96xf16>
  %3 = nn.gelu %0 {approximate = "none"} : (tensor<?x96xf16>) -> tensor<?x96xf16>
  %4 = nn.mul %2, %3 : (tensor<?x96xf16>, tensor<?x96xf16>) -> tensor<?x96xf16>
  return %4 : tensor<?x96xf16>
}

// -----

// A bias that makes the gate wider than its product is none.
// CHECK-LABEL: @bias_that_broadcasts
// CHECK-NOT: fusion.group
// CHECK: return
// MISS: gated_matmul missed at {{.*}}SameShape
func.func @bias_that_broadcasts(%x: tensor<1x64xf16>, %g: tensor<64x96xf16>, %u: tensor<64x96xf16>, %b: tensor<8x96xf16>) -> tensor<8x96xf16> {
  %0 = nn.matmul %x, %g : (tensor<1x64xf16>, tensor<64x96xf16>) -> tensor<1x96xf16>
  %1 = nn.matmul %x, %u : (tensor<1x64xf16>, tensor<64x96xf16>) -> tensor<1x96xf16>
  %2 = nn.add %0, %b : (tensor<1x96xf16>, tensor<8x96xf16>) -> tensor<8x96xf16>
  %3 = nn.silu %2 : (tensor<8x96xf16>) -> tensor<8x96xf16>
  %4 = nn.mul %3, %1 : (tensor<8x96xf16>, tensor<1x96xf16>) -> tensor<8x96xf16>
  return %4 : tensor<8x96xf16>
}
