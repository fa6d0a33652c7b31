// RUN: fusion-opt %s | fusion-opt | FileCheck %s

// Symbolic dims in attributes round-trip; static ones print as integers.
// CHECK-LABEL: @symbols
// CHECK-SAME: nn.dims = ["batch", "s15 + 1", 128]
// CHECK: nn.reshape %{{.*}} {shape = ["batch", "s15 + 1", 4, 32]} : (tensor<?x?x128xf16>) -> tensor<?x?x4x32xf16>
// CHECK: nn.transpose %{{.*}} {perm = array<i64: 0, 2, 1, 3>}
// CHECK: nn.slice %{{.*}} {sizes = ["batch", 4, "s15", 32], starts = [0, 0, 1, 0], steps = array<i64: 1, 1, 1, 1>}
func.func @symbols(%x: tensor<?x?x128xf16> {nn.name = "x", nn.dims = ["batch", "s15 + 1", 128]}) -> tensor<?x4x?x32xf16> {
  %0 = nn.reshape %x {shape = ["batch", "s15 + 1", 4, 32]} : (tensor<?x?x128xf16>) -> tensor<?x?x4x32xf16>
  %1 = nn.transpose %0 {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x4x32xf16>) -> tensor<?x4x?x32xf16>
  %2 = nn.slice %1 {starts = [0, 0, 1, 0], sizes = ["batch", 4, "s15", 32], steps = array<i64: 1, 1, 1, 1>}
     : (tensor<?x4x?x32xf16>) -> tensor<?x4x?x32xf16>
  return %2 : tensor<?x4x?x32xf16>
}

// CHECK-LABEL: @weight
// CHECK: nn.weight {length = 256 : i64, name = "w", offset = 64 : i64, path = "model.onnx"} : () -> tensor<128xbf16>
func.func @weight() -> tensor<128xbf16> {
  %w = nn.weight {name = "w", path = "model.onnx", offset = 64 : i64, length = 256 : i64} : () -> tensor<128xbf16>
  return %w : tensor<128xbf16>
}

// CHECK-LABEL: @matmul
// CHECK: -> tensor<?x5x3xf32>
// CHECK: -> tensor<?x5xf32>
func.func @matmul(%a: tensor<?x5x7xf32>, %b: tensor<3x7xf32>, %v: tensor<7xf32>) -> (tensor<?x5x3xf32>, tensor<?x5xf32>) {
  %0 = nn.matmul %a, %b {transpose_b = true} : (tensor<?x5x7xf32>, tensor<3x7xf32>) -> tensor<?x5x3xf32>
  %1 = nn.matmul %a, %v : (tensor<?x5x7xf32>, tensor<7xf32>) -> tensor<?x5xf32>
  return %0, %1 : tensor<?x5x3xf32>, tensor<?x5xf32>
}
