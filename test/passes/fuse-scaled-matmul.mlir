// RUN: fusion-opt %s --fuse-scaled-matmul | FileCheck %s

// Both operands quantised: the dequantisations move in.
// CHECK-LABEL: @both
func.func @both(%q: tensor<5x64xi8>, %s: tensor<f32>, %w: tensor<64x32xi8>, %t: tensor<32xf32>) -> tensor<5x32xf32> {
  // CHECK-NOT: nn.dequantize
  // CHECK: fusion.group "scaled_matmul" schedule "matmul" ({{.*}} = %arg0, {{.*}} = %arg1, {{.*}} = %arg2, {{.*}} = %arg3)
  // CHECK-NEXT: nn.dequantize
  // CHECK-NEXT: nn.dequantize
  // CHECK-NEXT: nn.matmul
  // CHECK-NEXT: fusion.yield
  %0 = nn.dequantize %q, %s : (tensor<5x64xi8>, tensor<f32>) -> tensor<5x64xf32>
  %1 = nn.dequantize %w, %t {axis = 1 : i64} : (tensor<64x32xi8>, tensor<32xf32>) -> tensor<64x32xf32>
  %2 = nn.matmul %0, %1 : (tensor<5x64xf32>, tensor<64x32xf32>) -> tensor<5x32xf32>
  return %2 : tensor<5x32xf32>
}

// Weight only, in groups with zero points.
// CHECK-LABEL: @weight_only
func.func @weight_only(%x: tensor<5x64xf16>, %w: tensor<32x64xui8>, %s: tensor<32x2xf16>, %z: tensor<32x2xui8>) -> tensor<5x32xf16> {
  // CHECK: fusion.group "scaled_matmul"
  // CHECK-NEXT: nn.dequantize
  // CHECK-NEXT: nn.matmul
  %0 = nn.dequantize %w, %s, %z {axis = 1 : i64, block_size = 32 : i64} : (tensor<32x64xui8>, tensor<32x2xf16>, tensor<32x2xui8>) -> tensor<32x64xf16>
  %1 = nn.matmul %x, %0 {transpose_b = true} : (tensor<5x64xf16>, tensor<32x64xf16>) -> tensor<5x32xf16>
  return %1 : tensor<5x32xf16>
}

// Scales of blocks of 16 rows and 32 columns: what repeats them along the rows moves in too.
// CHECK-LABEL: @blocks
func.func @blocks(%x: tensor<5x64xf32>, %w: tensor<32x64xi8>, %s: tensor<2x2xf32>) -> tensor<5x32xf32> {
  // CHECK-NOT: nn.expand
  // CHECK: fusion.group "scaled_matmul" schedule "matmul" ({{.*}} = %arg2, {{.*}} = %arg1, {{.*}} = %arg0)
  // CHECK-NEXT: nn.reshape
  // CHECK-NEXT: nn.expand
  // CHECK-NEXT: nn.reshape
  // CHECK-NEXT: nn.dequantize
  // CHECK-NEXT: nn.matmul
  %0 = nn.reshape %s {shape = [2, 1, 2]} : (tensor<2x2xf32>) -> tensor<2x1x2xf32>
  %1 = nn.expand %0 {shape = [2, 16, 2]} : (tensor<2x1x2xf32>) -> tensor<2x16x2xf32>
  %2 = nn.reshape %1 {shape = [32, 2]} : (tensor<2x16x2xf32>) -> tensor<32x2xf32>
  %3 = nn.dequantize %w, %2 {axis = 1 : i64, block_size = 32 : i64} : (tensor<32x64xi8>, tensor<32x2xf32>) -> tensor<32x64xf32>
  %4 = nn.matmul %x, %3 {transpose_b = true} : (tensor<5x64xf32>, tensor<32x64xf32>) -> tensor<5x32xf32>
  return %4 : tensor<5x32xf32>
}

// The rows in turn are no blocks: the repeated scales stay outside.
// CHECK-LABEL: @in_turn
func.func @in_turn(%x: tensor<5x64xf32>, %w: tensor<32x64xi8>, %s: tensor<2x2xf32>) -> tensor<5x32xf32> {
  // CHECK: nn.reshape
  // CHECK-NEXT: nn.expand
  // CHECK-NEXT: nn.reshape
  // CHECK-NEXT: fusion.group "scaled_matmul"
  // CHECK-NEXT: nn.dequantize
  %0 = nn.reshape %s {shape = [1, 2, 2]} : (tensor<2x2xf32>) -> tensor<1x2x2xf32>
  %1 = nn.expand %0 {shape = [16, 2, 2]} : (tensor<1x2x2xf32>) -> tensor<16x2x2xf32>
  %2 = nn.reshape %1 {shape = [32, 2]} : (tensor<16x2x2xf32>) -> tensor<32x2xf32>
  %3 = nn.dequantize %w, %2 {axis = 1 : i64, block_size = 32 : i64} : (tensor<32x64xi8>, tensor<32x2xf32>) -> tensor<32x64xf32>
  %4 = nn.matmul %x, %3 {transpose_b = true} : (tensor<5x64xf32>, tensor<32x64xf32>) -> tensor<5x32xf32>
  return %4 : tensor<5x32xf32>
}

// A dequantisation that somebody else reads is computed in the group too, and stays for them.
// CHECK-LABEL: @shared
func.func @shared(%q: tensor<5x64xi8>, %s: tensor<f32>, %w: tensor<64x32xf32>) -> (tensor<5x32xf32>, tensor<5x64xf32>) {
  // CHECK: %[[KEPT:.*]] = nn.dequantize %arg0
  // CHECK: %[[Y:.*]] = fusion.group "scaled_matmul" schedule "matmul" ({{.*}} = %arg2
  // CHECK: return %[[Y]], %[[KEPT]]
  %0 = nn.dequantize %q, %s : (tensor<5x64xi8>, tensor<f32>) -> tensor<5x64xf32>
  %1 = nn.matmul %0, %w : (tensor<5x64xf32>, tensor<64x32xf32>) -> tensor<5x32xf32>
  return %1, %0 : tensor<5x32xf32>, tensor<5x64xf32>
}

// One quantised tensor read by two products that cannot go side by side: each decodes it.
// CHECK-LABEL: @two_readers
func.func @two_readers(%q: tensor<5x64xi8>, %s: tensor<f32>, %w: tensor<64x32xf32>, %v: tensor<64x16xf32>) -> (tensor<5x32xf32>, tensor<5x16xf32>) {
  // CHECK-NOT: nn.dequantize
  // CHECK: fusion.group "scaled_matmul"
  // CHECK: nn.dequantize
  // CHECK: fusion.group "scaled_matmul"
  // CHECK: nn.dequantize
  %0 = nn.dequantize %q, %s : (tensor<5x64xi8>, tensor<f32>) -> tensor<5x64xf32>
  %1 = nn.matmul %0, %w : (tensor<5x64xf32>, tensor<64x32xf32>) -> tensor<5x32xf32>
  %2 = nn.matmul %0, %v : (tensor<5x64xf32>, tensor<64x16xf32>) -> tensor<5x16xf32>
  return %1, %2 : tensor<5x32xf32>, tensor<5x16xf32>
}

// MatMulInteger with zero points; the casts after it belong to matmul_epilogue.
// CHECK-LABEL: @integers
func.func @integers(%a: tensor<5x64xui8>, %az: tensor<ui8>, %b: tensor<64x32xi8>) -> tensor<5x32xi32> {
  // CHECK: fusion.group "scaled_matmul"
  // CHECK-NEXT: nn.cast
  // CHECK-NEXT: nn.cast
  // CHECK-NEXT: nn.sub
  // CHECK-NEXT: nn.cast
  // CHECK-NEXT: nn.matmul
  %0 = nn.cast %a : (tensor<5x64xui8>) -> tensor<5x64xi32>
  %1 = nn.cast %az : (tensor<ui8>) -> tensor<i32>
  %2 = nn.sub %0, %1 : (tensor<5x64xi32>, tensor<i32>) -> tensor<5x64xi32>
  %3 = nn.cast %b : (tensor<64x32xi8>) -> tensor<64x32xi32>
  %4 = nn.matmul %2, %3 : (tensor<5x64xi32>, tensor<64x32xi32>) -> tensor<5x32xi32>
  return %4 : tensor<5x32xi32>
}

// The weight on the left.
// CHECK-LABEL: @commuted
// CHECK: fusion.group "scaled_matmul" schedule "matmul" ({{.*}} = %arg1, {{.*}} = %arg2, {{.*}} = %arg0)
// CHECK-NEXT: %[[W:.*]] = nn.dequantize
// CHECK-NEXT: nn.matmul %[[W]]
func.func @commuted(%x: tensor<64x5xf32>, %q: tensor<32x64xi8>, %s: tensor<32xf32>) -> tensor<32x5xf32> {
  %0 = nn.dequantize %q, %s {axis = 0 : i64} : (tensor<32x64xi8>, tensor<32xf32>) -> tensor<32x64xf32>
  %1 = nn.matmul %0, %x : (tensor<32x64xf32>, tensor<64x5xf32>) -> tensor<32x5xf32>
  return %1 : tensor<32x5xf32>
}

// CHECK-LABEL: @dead_product
// CHECK-NOT: fusion.group
// CHECK: nn.dequantize
// CHECK-NEXT: return
func.func @dead_product(%x: tensor<5x64xf32>, %q: tensor<64x32xi8>, %s: tensor<f32>) -> tensor<64x32xf32> {
  %0 = nn.dequantize %q, %s : (tensor<64x32xi8>, tensor<f32>) -> tensor<64x32xf32>
  %1 = nn.matmul %x, %0 : (tensor<5x64xf32>, tensor<64x32xf32>) -> tensor<5x32xf32>
  return %0 : tensor<64x32xf32>
}

// CHECK-LABEL: @dead_dequantize
// CHECK-NOT: fusion.group
// CHECK-NOT: nn.dequantize
// CHECK: nn.matmul
func.func @dead_dequantize(%x: tensor<5x64xf32>, %q: tensor<64x32xi8>, %s: tensor<f32>, %w: tensor<64x32xf32>) -> tensor<5x32xf32> {
  %0 = nn.dequantize %q, %s : (tensor<64x32xi8>, tensor<f32>) -> tensor<64x32xf32>
  %1 = nn.matmul %x, %w : (tensor<5x64xf32>, tensor<64x32xf32>) -> tensor<5x32xf32>
  return %1 : tensor<5x32xf32>
}

// Codes taken from the zero point are no operand as a kernel decodes it.
// CHECK-LABEL: @zero_less_code
// CHECK-NOT: fusion.group
// CHECK: nn.sub
// CHECK-NEXT: nn.matmul
func.func @zero_less_code(%a: tensor<5x64xui8>, %az: tensor<ui8>, %b: tensor<64x32xi32>) -> tensor<5x32xi32> {
  %0 = nn.cast %a : (tensor<5x64xui8>) -> tensor<5x64xi32>
  %1 = nn.cast %az : (tensor<ui8>) -> tensor<i32>
  %2 = nn.sub %1, %0 : (tensor<i32>, tensor<5x64xi32>) -> tensor<5x64xi32>
  %4 = nn.matmul %2, %b : (tensor<5x64xi32>, tensor<64x32xi32>) -> tensor<5x32xi32>
  return %4 : tensor<5x32xi32>
}
