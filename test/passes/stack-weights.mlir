// RUN: fusion-opt %s --nn-stack-weights --split-input-file | FileCheck %s

// CHECK-LABEL: func @experts
// CHECK-NEXT: %[[W:.*]] = nn.weight {length = 32 : i64, name = "a and 1 more", offset = 64 : i64, part_offsets = array<i64: 64, 0>, part_paths = ["x.bin", "y.bin"], path = "x.bin"} : () -> tensor<2x2x4xf16>
// CHECK-NEXT: return %[[W]]
func.func @experts() -> tensor<2x2x4xf16> {
  %a = nn.weight {name = "a", path = "x.bin", offset = 64 : i64, length = 16 : i64} : () -> tensor<2x4xf16>
  %b = nn.weight {name = "b", path = "y.bin", offset = 0 : i64, length = 16 : i64} : () -> tensor<2x4xf16>
  %a1 = nn.reshape %a {shape = [1, 2, 4]} : (tensor<2x4xf16>) -> tensor<1x2x4xf16>
  %b1 = nn.reshape %b {shape = [1, 2, 4]} : (tensor<2x4xf16>) -> tensor<1x2x4xf16>
  %c = nn.concat %a1, %b1 {axis = 0 : i64} : (tensor<1x2x4xf16>, tensor<1x2x4xf16>) -> tensor<2x2x4xf16>
  return %c : tensor<2x2x4xf16>
}

// -----

// Columns side by side are no bytes side by side.
// CHECK-LABEL: func @columns
// CHECK: nn.concat
func.func @columns() -> tensor<2x8xf16> {
  %a = nn.weight {name = "a", path = "x.bin", offset = 64 : i64, length = 16 : i64} : () -> tensor<2x4xf16>
  %b = nn.weight {name = "b", path = "y.bin", offset = 0 : i64, length = 16 : i64} : () -> tensor<2x4xf16>
  %c = nn.concat %a, %b {axis = 1 : i64} : (tensor<2x4xf16>, tensor<2x4xf16>) -> tensor<2x8xf16>
  return %c : tensor<2x8xf16>
}

// -----

// Parts of 4 bits that would begin inside a byte.
// CHECK-LABEL: func @half_bytes
// CHECK: nn.concat
func.func @half_bytes() -> tensor<6xui4> {
  %a = nn.weight {name = "a", path = "x.bin", offset = 64 : i64, length = 2 : i64} : () -> tensor<3xui4>
  %b = nn.weight {name = "b", path = "y.bin", offset = 0 : i64, length = 2 : i64} : () -> tensor<3xui4>
  %c = nn.concat %a, %b {axis = 0 : i64} : (tensor<3xui4>, tensor<3xui4>) -> tensor<6xui4>
  return %c : tensor<6xui4>
}

// -----

// A part of a weight, and one that is computed.
// CHECK-LABEL: func @others
// CHECK-COUNT-2: nn.concat
func.func @others(%x: tensor<2x4xf16>) -> (tensor<4x4xf16>, tensor<4x4xf16>) {
  %a = nn.weight {name = "a", path = "x.bin", offset = 0 : i64, length = 32 : i64, whole = array<i64: 4, 4>, starts = ["2*tp_rank", 0]} : () -> tensor<2x4xf16>
  %b = nn.weight {name = "b", path = "y.bin", offset = 0 : i64, length = 16 : i64} : () -> tensor<2x4xf16>
  %c = nn.concat %a, %b {axis = 0 : i64} : (tensor<2x4xf16>, tensor<2x4xf16>) -> tensor<4x4xf16>
  %d = nn.concat %b, %x {axis = 0 : i64} : (tensor<2x4xf16>, tensor<2x4xf16>) -> tensor<4x4xf16>
  return %c, %d : tensor<4x4xf16>, tensor<4x4xf16>
}
