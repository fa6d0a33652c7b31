// RUN: fusion-opt %s --fuse-qkv-matmul --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-qkv-matmul --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// Widths of grouped-query attention; one product has a bias.
// CHECK-LABEL: @qkv
// CHECK: %[[G:.*]]:3 = fusion.group "qkv_matmul" schedule "matmul"
// CHECK-COUNT-3: nn.matmul
// CHECK: return %[[G]]#0, %[[G]]#1, %[[G]]#2
func.func @qkv(%x: tensor<?x4xf16>) -> (tensor<?x4xf16>, tensor<?x2xf16>, tensor<?x2xf16>) {
  %q = nn.weight {name = "q", path = "w.bin", offset = 0 : i64, length = 32 : i64} : () -> tensor<4x4xf16>
  %k = nn.weight {name = "k", path = "w.bin", offset = 32 : i64, length = 16 : i64} : () -> tensor<4x2xf16>
  %v = nn.weight {name = "v", path = "w.bin", offset = 48 : i64, length = 16 : i64} : () -> tensor<4x2xf16>
  %b = nn.weight {name = "b", path = "w.bin", offset = 64 : i64, length = 4 : i64} : () -> tensor<2xf16>
  %0 = nn.matmul %x, %q : (tensor<?x4xf16>, tensor<4x4xf16>) -> tensor<?x4xf16>
  %1 = nn.matmul %x, %k : (tensor<?x4xf16>, tensor<4x2xf16>) -> tensor<?x2xf16>
  %2 = nn.add %1, %b : (tensor<?x2xf16>, tensor<2xf16>) -> tensor<?x2xf16>
  %3 = nn.matmul %x, %v : (tensor<?x4xf16>, tensor<4x2xf16>) -> tensor<?x2xf16>
  return %0, %2, %3 : tensor<?x4xf16>, tensor<?x2xf16>, tensor<?x2xf16>
}

// -----

// PyTorch's addmm: the bias is added in f32, and the sum is rounded once.
// CHECK-LABEL: @biases_in_f32
// CHECK: fusion.group "qkv_matmul" schedule "matmul" {{.*}} -> (tensor<?x4xf16>, tensor<?x2xf16>)
// CHECK-NEXT: %[[Q:.*]] = nn.matmul
// CHECK-NEXT: %[[A:.*]] = nn.add %[[Q]]
// CHECK-NEXT: nn.cast %[[A]]
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.cast
// CHECK-NEXT: fusion.yield
// A cast to a wider type is none of addmm's.
// CHECK: nn.cast {{.*}} -> tensor<?x4xf32>
func.func @biases_in_f32(%x: tensor<?x4xf16>, %b: tensor<4xf32>, %c: tensor<2xf32>) -> (tensor<?x4xf32>, tensor<?x2xf16>) {
  %q = nn.weight {name = "q", path = "w.bin", offset = 0 : i64, length = 32 : i64} : () -> tensor<4x4xf16>
  %k = nn.weight {name = "k", path = "w.bin", offset = 32 : i64, length = 16 : i64} : () -> tensor<4x2xf16>
  %0 = nn.matmul %x, %q : (tensor<?x4xf16>, tensor<4x4xf16>) -> tensor<?x4xf32>
  %1 = nn.add %0, %b : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  %2 = nn.cast %1 : (tensor<?x4xf32>) -> tensor<?x4xf16>
  %3 = nn.matmul %x, %k : (tensor<?x4xf16>, tensor<4x2xf16>) -> tensor<?x2xf32>
  %4 = nn.add %3, %c : (tensor<?x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  %5 = nn.cast %4 : (tensor<?x2xf32>) -> tensor<?x2xf16>
  %6 = nn.cast %2 : (tensor<?x4xf16>) -> tensor<?x4xf32>
  return %6, %5 : tensor<?x4xf32>, tensor<?x2xf16>
}

// -----

// CHECK-LABEL: @alone
// CHECK-NOT: fusion.group
// CHECK: return
// MISS: qkv_matmul missed at {{.*}}: no other matmul reads the same input
func.func @alone(%x: tensor<?x4xf16>) -> tensor<?x4xf16> {
  %q = nn.weight {name = "q", path = "w.bin", offset = 0 : i64, length = 32 : i64} : () -> tensor<4x4xf16>
  %0 = nn.matmul %x, %q : (tensor<?x4xf16>, tensor<4x4xf16>) -> tensor<?x4xf16>
  return %0 : tensor<?x4xf16>
}

// -----

// Products of rank-1 right sides do not go side by side.
// CHECK-LABEL: @vectors
// CHECK-NOT: fusion.group
// CHECK: return
// MISS: qkv_matmul missed at {{.*}}: no schedule
func.func @vectors(%x: tensor<?x4xf16>) -> (tensor<?xf16>, tensor<?xf16>) {
  %q = nn.weight {name = "q", path = "w.bin", offset = 0 : i64, length = 8 : i64} : () -> tensor<4xf16>
  %k = nn.weight {name = "k", path = "w.bin", offset = 8 : i64, length = 8 : i64} : () -> tensor<4xf16>
  %0 = nn.matmul %x, %q : (tensor<?x4xf16>, tensor<4xf16>) -> tensor<?xf16>
  %1 = nn.matmul %x, %k : (tensor<?x4xf16>, tensor<4xf16>) -> tensor<?xf16>
  return %0, %1 : tensor<?xf16>, tensor<?xf16>
}

// -----

// Integer products take their scales along, quantised weights what decodes them.
// CHECK-LABEL: @integers
// CHECK: fusion.group "qkv_matmul" schedule "matmul"
// CHECK-COUNT-2: nn.matmul
// CHECK-NOT: fusion.group
// CHECK: return
func.func @integers(%x: tensor<?x4xi8>, %s: tensor<f32>, %t: tensor<4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  %q = nn.weight {name = "q", path = "w.bin", offset = 0 : i64, length = 16 : i64} : () -> tensor<4x4xi8>
  %k = nn.weight {name = "k", path = "w.bin", offset = 16 : i64, length = 16 : i64} : () -> tensor<4x4xi8>
  %0 = nn.matmul %x, %q : (tensor<?x4xi8>, tensor<4x4xi8>) -> tensor<?x4xi32>
  %1 = nn.matmul %x, %k : (tensor<?x4xi8>, tensor<4x4xi8>) -> tensor<?x4xi32>
  %2 = nn.cast %0 : (tensor<?x4xi32>) -> tensor<?x4xf32>
  %3 = nn.cast %1 : (tensor<?x4xi32>) -> tensor<?x4xf32>
  %f = nn.mul %s, %t : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %4 = nn.mul %2, %f : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  %5 = nn.mul %3, %t : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  return %4, %5 : tensor<?x4xf32>, tensor<?x4xf32>
}

// -----

// CHECK-LABEL: @quantised_weights
// CHECK: fusion.group "qkv_matmul" schedule "matmul"
// CHECK-NEXT: nn.dequantize
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.dequantize
// CHECK-NEXT: nn.matmul
func.func @quantised_weights(%x: tensor<?x32xf16>, %s: tensor<4x2xf16>) -> (tensor<?x4xf16>, tensor<?x4xf16>) {
  %q = nn.weight {name = "q", path = "w.bin", offset = 0 : i64, length = 64 : i64} : () -> tensor<4x32xui4>
  %k = nn.weight {name = "k", path = "w.bin", offset = 64 : i64, length = 64 : i64} : () -> tensor<4x32xui4>
  %0 = nn.dequantize %q, %s {axis = 1 : i64, block_size = 16 : i64} : (tensor<4x32xui4>, tensor<4x2xf16>) -> tensor<4x32xf16>
  %1 = nn.matmul %x, %0 {transpose_b = true} : (tensor<?x32xf16>, tensor<4x32xf16>) -> tensor<?x4xf16>
  %2 = nn.dequantize %k, %s {axis = 1 : i64, block_size = 16 : i64} : (tensor<4x32xui4>, tensor<4x2xf16>) -> tensor<4x32xf16>
  %3 = nn.matmul %x, %2 {transpose_b = true} : (tensor<?x32xf16>, tensor<4x32xf16>) -> tensor<?x4xf16>
  return %1, %3 : tensor<?x4xf16>, tensor<?x4xf16>
}

// -----

// CodeGen's parallel layer: the first product of the MLP beside the packed projection, its activation with it.
// CHECK-LABEL: @activation_of_one
// CHECK: fusion.group "qkv_matmul" schedule "matmul"
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.gelu
// CHECK-NEXT: fusion.yield
func.func @activation_of_one(%x: tensor<?x4xf16>, %b: tensor<8xf16>) -> (tensor<?x4xf16>, tensor<?x8xf16>) {
  %q = nn.weight {name = "q", path = "w.bin", offset = 0 : i64, length = 32 : i64} : () -> tensor<4x4xf16>
  %u = nn.weight {name = "u", path = "w.bin", offset = 32 : i64, length = 64 : i64} : () -> tensor<4x8xf16>
  %0 = nn.matmul %x, %q : (tensor<?x4xf16>, tensor<4x4xf16>) -> tensor<?x4xf16>
  %1 = nn.matmul %x, %u : (tensor<?x4xf16>, tensor<4x8xf16>) -> tensor<?x8xf16>
  %2 = nn.add %1, %b : (tensor<?x8xf16>, tensor<8xf16>) -> tensor<?x8xf16>
  %3 = nn.gelu %2 : (tensor<?x8xf16>) -> tensor<?x8xf16>
  return %0, %3 : tensor<?x4xf16>, tensor<?x8xf16>
}

// -----

// CHECK-LABEL: @dead_product
// CHECK: fusion.group "qkv_matmul" schedule "matmul"
// CHECK-COUNT-2: nn.matmul
// CHECK-NOT: nn.matmul
// CHECK: return
func.func @dead_product(%x: tensor<?x4xf16>) -> (tensor<?x4xf16>, tensor<?x2xf16>) {
  %q = nn.weight {name = "q", path = "w.bin", offset = 0 : i64, length = 32 : i64} : () -> tensor<4x4xf16>
  %k = nn.weight {name = "k", path = "w.bin", offset = 32 : i64, length = 16 : i64} : () -> tensor<4x2xf16>
  %v = nn.weight {name = "v", path = "w.bin", offset = 48 : i64, length = 16 : i64} : () -> tensor<4x2xf16>
  %0 = nn.matmul %x, %q : (tensor<?x4xf16>, tensor<4x4xf16>) -> tensor<?x4xf16>
  %1 = nn.matmul %x, %k : (tensor<?x4xf16>, tensor<4x2xf16>) -> tensor<?x2xf16>
  %2 = nn.matmul %x, %v : (tensor<?x4xf16>, tensor<4x2xf16>) -> tensor<?x2xf16>
  return %0, %1 : tensor<?x4xf16>, tensor<?x2xf16>
}

// -----

// A product that is read without its bias too: both products leave, the addition stays behind.
// CHECK-LABEL: @biased_used
// CHECK: %[[G:.*]]:2 = fusion.group "qkv_matmul" schedule "matmul"
// CHECK-COUNT-2: nn.matmul
// CHECK: fusion.yield
// CHECK: %[[B:.*]] = nn.add %{{.*}}, %[[G]]#1
// CHECK: return %[[G]]#0, %[[G]]#1, %[[B]]
func.func @biased_used(%x: tensor<?x4xf16>, %b: tensor<2xf16>) -> (tensor<?x4xf16>, tensor<?x2xf16>, tensor<?x2xf16>) {
  %q = nn.weight {name = "q", path = "w.bin", offset = 0 : i64, length = 32 : i64} : () -> tensor<4x4xf16>
  %k = nn.weight {name = "k", path = "w.bin", offset = 32 : i64, length = 16 : i64} : () -> tensor<4x2xf16>
  %0 = nn.matmul %x, %q : (tensor<?x4xf16>, tensor<4x4xf16>) -> tensor<?x4xf16>
  %1 = nn.matmul %x, %k : (tensor<?x4xf16>, tensor<4x2xf16>) -> tensor<?x2xf16>
  %2 = nn.add %b, %1 : (tensor<2xf16>, tensor<?x2xf16>) -> tensor<?x2xf16>
  return %0, %1, %2 : tensor<?x4xf16>, tensor<?x2xf16>, tensor<?x2xf16>
}

// -----

// Biases of any of the products; one that the graph reads before its bias keeps it outside.
// CHECK-LABEL: @biases_of_two
// CHECK: %[[G:.*]]:3 = fusion.group "qkv_matmul" schedule "matmul"
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.add
// CHECK-NEXT: fusion.yield
func.func @biases_of_two(%x: tensor<?x4xf16>, %b: tensor<4xf16>, %c: tensor<2xf16>) -> (tensor<?x4xf16>, tensor<?x2xf16>, tensor<?x2xf16>) {
  %q = nn.weight {name = "q", path = "w.bin", offset = 0 : i64, length = 32 : i64} : () -> tensor<4x4xf16>
  %k = nn.weight {name = "k", path = "w.bin", offset = 32 : i64, length = 16 : i64} : () -> tensor<4x2xf16>
  %v = nn.weight {name = "v", path = "w.bin", offset = 48 : i64, length = 16 : i64} : () -> tensor<4x2xf16>
  %0 = nn.matmul %x, %q : (tensor<?x4xf16>, tensor<4x4xf16>) -> tensor<?x4xf16>
  %1 = nn.add %0, %b : (tensor<?x4xf16>, tensor<4xf16>) -> tensor<?x4xf16>
  %2 = nn.matmul %x, %k : (tensor<?x4xf16>, tensor<4x2xf16>) -> tensor<?x2xf16>
  %3 = nn.matmul %x, %v : (tensor<?x4xf16>, tensor<4x2xf16>) -> tensor<?x2xf16>
  %4 = nn.add %c, %3 : (tensor<2xf16>, tensor<?x2xf16>) -> tensor<?x2xf16>
  return %1, %2, %4 : tensor<?x4xf16>, tensor<?x2xf16>, tensor<?x2xf16>
}

// -----

// CHECK-LABEL: @bias_outside
// CHECK: %[[G:.*]]:2 = fusion.group "qkv_matmul" schedule "matmul"
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.add
// CHECK-NEXT: fusion.yield
// CHECK: nn.add %[[G]]#0
func.func @bias_outside(%x: tensor<?x4xf16>, %b: tensor<4xf16>, %c: tensor<2xf16>) -> (tensor<?x4xf16>, tensor<?x4xf16>, tensor<?x2xf16>) {
  %q = nn.weight {name = "q", path = "w.bin", offset = 0 : i64, length = 32 : i64} : () -> tensor<4x4xf16>
  %k = nn.weight {name = "k", path = "w.bin", offset = 32 : i64, length = 16 : i64} : () -> tensor<4x2xf16>
  %0 = nn.matmul %x, %q : (tensor<?x4xf16>, tensor<4x4xf16>) -> tensor<?x4xf16>
  %1 = nn.add %0, %b : (tensor<?x4xf16>, tensor<4xf16>) -> tensor<?x4xf16>
  %2 = nn.matmul %x, %k : (tensor<?x4xf16>, tensor<4x2xf16>) -> tensor<?x2xf16>
  %3 = nn.add %2, %c : (tensor<?x2xf16>, tensor<2xf16>) -> tensor<?x2xf16>
  return %0, %1, %3 : tensor<?x4xf16>, tensor<?x4xf16>, tensor<?x2xf16>
}

// -----

// Five of one input; the queries' scale comes along.
// CHECK-LABEL: @five
// CHECK: %[[G:.*]]:5 = fusion.group "qkv_matmul" schedule "matmul"
// CHECK-COUNT-5: nn.matmul
// CHECK: nn.mul
// CHECK: fusion.yield
// CHECK: return %[[G]]#0
func.func @five(%x: tensor<?x4xf16>) -> (tensor<?x4xf16>, tensor<?x4xf16>, tensor<?x4xf16>, tensor<?x4xf16>, tensor<?x4xf16>) {
  %w = nn.weight {name = "w", path = "w.bin", offset = 0 : i64, length = 32 : i64} : () -> tensor<4x4xf16>
  %s = nn.constant {value = dense<0.125> : tensor<f16>} : () -> tensor<f16>
  %a = nn.matmul %x, %w : (tensor<?x4xf16>, tensor<4x4xf16>) -> tensor<?x4xf16>
  %b = nn.matmul %x, %w : (tensor<?x4xf16>, tensor<4x4xf16>) -> tensor<?x4xf16>
  %c = nn.matmul %x, %w : (tensor<?x4xf16>, tensor<4x4xf16>) -> tensor<?x4xf16>
  %d = nn.matmul %x, %w : (tensor<?x4xf16>, tensor<4x4xf16>) -> tensor<?x4xf16>
  %e = nn.matmul %x, %w : (tensor<?x4xf16>, tensor<4x4xf16>) -> tensor<?x4xf16>
  %f = nn.mul %e, %s : (tensor<?x4xf16>, tensor<f16>) -> tensor<?x4xf16>
  return %a, %b, %c, %d, %f : tensor<?x4xf16>, tensor<?x4xf16>, tensor<?x4xf16>, tensor<?x4xf16>, tensor<?x4xf16>
}
