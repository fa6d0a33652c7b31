// RUN: fusion-opt %s --fuse-scaled-attention --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-scaled-attention --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// Keys and values are decoded as they are read.
// CHECK-LABEL: @both
func.func @both(%q: tensor<1x4x8x32xf16>, %k: tensor<1x2x8x32xi8>, %v: tensor<1x2x8x32xi8>, %s: tensor<f32>, %t: tensor<2xf32>) -> tensor<1x4x8x32xf16> {
  // CHECK-NOT: nn.dequantize
  // CHECK: fusion.group "scaled_attention" schedule "attention"
  // CHECK-NEXT: nn.dequantize
  // CHECK-NEXT: nn.dequantize
  // CHECK-NEXT: nn.attention
  // CHECK-NEXT: fusion.yield
  %0 = nn.dequantize %k, %s : (tensor<1x2x8x32xi8>, tensor<f32>) -> tensor<1x2x8x32xf16>
  %1 = nn.dequantize %v, %t {axis = 1 : i64} : (tensor<1x2x8x32xi8>, tensor<2xf32>) -> tensor<1x2x8x32xf16>
  %2 = nn.attention %q, %0, %1 {scale = 0.25 : f32} : (tensor<1x4x8x32xf16>, tensor<1x2x8x32xf16>, tensor<1x2x8x32xf16>) -> tensor<1x4x8x32xf16>
  return %2 : tensor<1x4x8x32xf16>
}

// -----

// Queries are not decoded by the attention.
// CHECK-LABEL: @queries
// CHECK-NOT: fusion.group
func.func @queries(%q: tensor<1x4x8x32xi8>, %k: tensor<1x2x8x32xf16>, %s: tensor<f32>) -> tensor<1x4x8x32xf16> {
  %0 = nn.dequantize %q, %s : (tensor<1x4x8x32xi8>, tensor<f32>) -> tensor<1x4x8x32xf16>
  %1 = nn.attention %0, %k, %k {scale = 0.25 : f32} : (tensor<1x4x8x32xf16>, tensor<1x2x8x32xf16>, tensor<1x2x8x32xf16>) -> tensor<1x4x8x32xf16>
  return %1 : tensor<1x4x8x32xf16>
}

// -----

// CHECK-LABEL: @zero_point
// CHECK-NOT: fusion.group
// MISS: scaled_attention missed at {{.*}}: no schedule: {{.*}}codes with a zero point in an operand of nn.attention
func.func @zero_point(%q: tensor<1x4x8x32xf16>, %k: tensor<1x2x8x32xi8>, %v: tensor<1x2x8x32xf16>, %s: tensor<f32>, %z: tensor<i8>) -> tensor<1x4x8x32xf16> {
  %0 = nn.dequantize %k, %s, %z : (tensor<1x2x8x32xi8>, tensor<f32>, tensor<i8>) -> tensor<1x2x8x32xf16>
  %1 = nn.attention %q, %0, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf16>, tensor<1x2x8x32xf16>, tensor<1x2x8x32xf16>) -> tensor<1x4x8x32xf16>
  return %1 : tensor<1x4x8x32xf16>
}

// -----

// CHECK-LABEL: @other_type
// CHECK-NOT: fusion.group
// MISS: scaled_attention missed at {{.*}}: no schedule: {{.*}}codes that become f32, where the queries are f16
func.func @other_type(%q: tensor<1x4x8x32xf16>, %k: tensor<1x2x8x32xi8>, %v: tensor<1x2x8x32xf16>, %s: tensor<f32>) -> tensor<1x4x8x32xf16> {
  %0 = nn.dequantize %k, %s : (tensor<1x2x8x32xi8>, tensor<f32>) -> tensor<1x2x8x32xf32>
  %1 = nn.attention %q, %0, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf16>, tensor<1x2x8x32xf32>, tensor<1x2x8x32xf16>) -> tensor<1x4x8x32xf16>
  return %1 : tensor<1x4x8x32xf16>
}

// -----

// CHECK-LABEL: @scale_by_column
// CHECK-NOT: fusion.group
// MISS: scaled_attention missed at {{.*}}: no schedule: {{.*}}codes whose scale is neither one for all nor one for each head
func.func @scale_by_column(%q: tensor<1x4x8x32xf16>, %k: tensor<1x2x8x32xi8>, %v: tensor<1x2x8x32xf16>, %s: tensor<32xf32>) -> tensor<1x4x8x32xf16> {
  %0 = nn.dequantize %k, %s {axis = 3 : i64} : (tensor<1x2x8x32xi8>, tensor<32xf32>) -> tensor<1x2x8x32xf16>
  %1 = nn.attention %q, %0, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf16>, tensor<1x2x8x32xf16>, tensor<1x2x8x32xf16>) -> tensor<1x4x8x32xf16>
  return %1 : tensor<1x4x8x32xf16>
}

// -----

// A scale for each column of a head.
// CHECK-LABEL: @scales_of_columns
// CHECK: fusion.group "scaled_attention" schedule "attention"
// CHECK-NEXT: nn.cast
// CHECK-NEXT: nn.mul
// CHECK-NEXT: nn.cast
// CHECK-NEXT: nn.attention
// CHECK-NEXT: fusion.yield
func.func @scales_of_columns(%q: tensor<1x4x8x32xf16>, %k: tensor<1x2x8x32xi8>, %v: tensor<1x2x8x32xf16>, %s: tensor<2x1x32xf32>) -> tensor<1x4x8x32xf16> {
  %0 = nn.cast %k : (tensor<1x2x8x32xi8>) -> tensor<1x2x8x32xf32>
  %1 = nn.mul %0, %s : (tensor<1x2x8x32xf32>, tensor<2x1x32xf32>) -> tensor<1x2x8x32xf32>
  %2 = nn.cast %1 : (tensor<1x2x8x32xf32>) -> tensor<1x2x8x32xf16>
  %3 = nn.attention %q, %2, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf16>, tensor<1x2x8x32xf16>, tensor<1x2x8x32xf16>) -> tensor<1x4x8x32xf16>
  return %3 : tensor<1x4x8x32xf16>
}

// -----

// A scale for each row stays outside.
// CHECK-LABEL: @scales_of_rows
// CHECK-NOT: fusion.group
func.func @scales_of_rows(%q: tensor<1x4x8x32xf16>, %k: tensor<1x2x8x32xi8>, %v: tensor<1x2x8x32xf16>, %s: tensor<2x8x1xf32>) -> tensor<1x4x8x32xf16> {
  %0 = nn.cast %k : (tensor<1x2x8x32xi8>) -> tensor<1x2x8x32xf32>
  %1 = nn.mul %0, %s : (tensor<1x2x8x32xf32>, tensor<2x8x1xf32>) -> tensor<1x2x8x32xf32>
  %2 = nn.cast %1 : (tensor<1x2x8x32xf32>) -> tensor<1x2x8x32xf16>
  %3 = nn.attention %q, %2, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf16>, tensor<1x2x8x32xf16>, tensor<1x2x8x32xf16>) -> tensor<1x4x8x32xf16>
  return %3 : tensor<1x4x8x32xf16>
}

// -----

// Codes of 4 bits, two to a byte, the lower half first and 8 added.
// CHECK-LABEL: @halves
// CHECK: fusion.group "scaled_attention" schedule "attention"
// CHECK: nn.and
// CHECK: nn.div
// CHECK: nn.concat
// CHECK: nn.sub
// CHECK: nn.attention
// CHECK-NEXT: fusion.yield
func.func @halves(%q: tensor<1x4x8x32xf16>, %k: tensor<1x2x8x16xui8>, %v: tensor<1x2x8x32xf16>, %s: tensor<f32>) -> tensor<1x4x8x32xf16> {
  %f = nn.constant {value = dense<15> : tensor<ui8>} : () -> tensor<ui8>
  %t = nn.constant {value = dense<16> : tensor<ui8>} : () -> tensor<ui8>
  %e = nn.constant {value = dense<8.0> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.and %k, %f : (tensor<1x2x8x16xui8>, tensor<ui8>) -> tensor<1x2x8x16xui8>
  %1 = nn.reshape %0 {shape = [1, 2, 8, 16, 1]} : (tensor<1x2x8x16xui8>) -> tensor<1x2x8x16x1xui8>
  %2 = nn.div %k, %t : (tensor<1x2x8x16xui8>, tensor<ui8>) -> tensor<1x2x8x16xui8>
  %3 = nn.reshape %2 {shape = [1, 2, 8, 16, 1]} : (tensor<1x2x8x16xui8>) -> tensor<1x2x8x16x1xui8>
  %4 = nn.concat %1, %3 {axis = 4 : i64} : (tensor<1x2x8x16x1xui8>, tensor<1x2x8x16x1xui8>) -> tensor<1x2x8x16x2xui8>
  %5 = nn.reshape %4 {shape = [1, 2, 8, 32]} : (tensor<1x2x8x16x2xui8>) -> tensor<1x2x8x32xui8>
  %6 = nn.cast %5 : (tensor<1x2x8x32xui8>) -> tensor<1x2x8x32xf32>
  %7 = nn.sub %6, %e : (tensor<1x2x8x32xf32>, tensor<f32>) -> tensor<1x2x8x32xf32>
  %8 = nn.mul %7, %s : (tensor<1x2x8x32xf32>, tensor<f32>) -> tensor<1x2x8x32xf32>
  %9 = nn.cast %8 : (tensor<1x2x8x32xf32>) -> tensor<1x2x8x32xf16>
  %10 = nn.attention %q, %9, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf16>, tensor<1x2x8x32xf16>, tensor<1x2x8x32xf16>) -> tensor<1x4x8x32xf16>
  return %10 : tensor<1x4x8x32xf16>
}

// -----

// The upper half first.
// CHECK-LABEL: @upper_half_first
// CHECK-NOT: fusion.group
func.func @upper_half_first(%q: tensor<1x4x8x32xf16>, %k: tensor<1x2x8x16xui8>, %v: tensor<1x2x8x32xf16>, %s: tensor<f32>) -> tensor<1x4x8x32xf16> {
  %f = nn.constant {value = dense<15> : tensor<ui8>} : () -> tensor<ui8>
  %t = nn.constant {value = dense<16> : tensor<ui8>} : () -> tensor<ui8>
  %e = nn.constant {value = dense<8.0> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.and %k, %f : (tensor<1x2x8x16xui8>, tensor<ui8>) -> tensor<1x2x8x16xui8>
  %1 = nn.reshape %0 {shape = [1, 2, 8, 16, 1]} : (tensor<1x2x8x16xui8>) -> tensor<1x2x8x16x1xui8>
  %2 = nn.div %k, %t : (tensor<1x2x8x16xui8>, tensor<ui8>) -> tensor<1x2x8x16xui8>
  %3 = nn.reshape %2 {shape = [1, 2, 8, 16, 1]} : (tensor<1x2x8x16xui8>) -> tensor<1x2x8x16x1xui8>
  %4 = nn.concat %3, %1 {axis = 4 : i64} : (tensor<1x2x8x16x1xui8>, tensor<1x2x8x16x1xui8>) -> tensor<1x2x8x16x2xui8>
  %5 = nn.reshape %4 {shape = [1, 2, 8, 32]} : (tensor<1x2x8x16x2xui8>) -> tensor<1x2x8x32xui8>
  %6 = nn.cast %5 : (tensor<1x2x8x32xui8>) -> tensor<1x2x8x32xf32>
  %7 = nn.sub %6, %e : (tensor<1x2x8x32xf32>, tensor<f32>) -> tensor<1x2x8x32xf32>
  %8 = nn.mul %7, %s : (tensor<1x2x8x32xf32>, tensor<f32>) -> tensor<1x2x8x32xf32>
  %9 = nn.cast %8 : (tensor<1x2x8x32xf32>) -> tensor<1x2x8x32xf16>
  %10 = nn.attention %q, %9, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf16>, tensor<1x2x8x32xf16>, tensor<1x2x8x32xf16>) -> tensor<1x4x8x32xf16>
  return %10 : tensor<1x4x8x32xf16>
}

// -----

// Not the middle of 16 codes.
// CHECK-LABEL: @another_zero
// CHECK-NOT: fusion.group
func.func @another_zero(%q: tensor<1x4x8x32xf16>, %k: tensor<1x2x8x16xui8>, %v: tensor<1x2x8x32xf16>, %s: tensor<f32>) -> tensor<1x4x8x32xf16> {
  %f = nn.constant {value = dense<15> : tensor<ui8>} : () -> tensor<ui8>
  %t = nn.constant {value = dense<16> : tensor<ui8>} : () -> tensor<ui8>
  %e = nn.constant {value = dense<7.0> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.and %k, %f : (tensor<1x2x8x16xui8>, tensor<ui8>) -> tensor<1x2x8x16xui8>
  %1 = nn.reshape %0 {shape = [1, 2, 8, 16, 1]} : (tensor<1x2x8x16xui8>) -> tensor<1x2x8x16x1xui8>
  %2 = nn.div %k, %t : (tensor<1x2x8x16xui8>, tensor<ui8>) -> tensor<1x2x8x16xui8>
  %3 = nn.reshape %2 {shape = [1, 2, 8, 16, 1]} : (tensor<1x2x8x16xui8>) -> tensor<1x2x8x16x1xui8>
  %4 = nn.concat %1, %3 {axis = 4 : i64} : (tensor<1x2x8x16x1xui8>, tensor<1x2x8x16x1xui8>) -> tensor<1x2x8x16x2xui8>
  %5 = nn.reshape %4 {shape = [1, 2, 8, 32]} : (tensor<1x2x8x16x2xui8>) -> tensor<1x2x8x32xui8>
  %6 = nn.cast %5 : (tensor<1x2x8x32xui8>) -> tensor<1x2x8x32xf32>
  %7 = nn.sub %6, %e : (tensor<1x2x8x32xf32>, tensor<f32>) -> tensor<1x2x8x32xf32>
  %8 = nn.mul %7, %s : (tensor<1x2x8x32xf32>, tensor<f32>) -> tensor<1x2x8x32xf32>
  %9 = nn.cast %8 : (tensor<1x2x8x32xf32>) -> tensor<1x2x8x32xf16>
  %10 = nn.attention %q, %9, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf16>, tensor<1x2x8x32xf16>, tensor<1x2x8x32xf16>) -> tensor<1x4x8x32xf16>
  return %10 : tensor<1x4x8x32xf16>
}

// -----

// Other bits.
// CHECK-LABEL: @other_bits
// CHECK-NOT: fusion.group
func.func @other_bits(%q: tensor<1x4x8x32xf16>, %k: tensor<1x2x8x16xui8>, %v: tensor<1x2x8x32xf16>, %s: tensor<f32>) -> tensor<1x4x8x32xf16> {
  %f = nn.constant {value = dense<7> : tensor<ui8>} : () -> tensor<ui8>
  %t = nn.constant {value = dense<16> : tensor<ui8>} : () -> tensor<ui8>
  %e = nn.constant {value = dense<8.0> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.and %k, %f : (tensor<1x2x8x16xui8>, tensor<ui8>) -> tensor<1x2x8x16xui8>
  %1 = nn.reshape %0 {shape = [1, 2, 8, 16, 1]} : (tensor<1x2x8x16xui8>) -> tensor<1x2x8x16x1xui8>
  %2 = nn.div %k, %t : (tensor<1x2x8x16xui8>, tensor<ui8>) -> tensor<1x2x8x16xui8>
  %3 = nn.reshape %2 {shape = [1, 2, 8, 16, 1]} : (tensor<1x2x8x16xui8>) -> tensor<1x2x8x16x1xui8>
  %4 = nn.concat %1, %3 {axis = 4 : i64} : (tensor<1x2x8x16x1xui8>, tensor<1x2x8x16x1xui8>) -> tensor<1x2x8x16x2xui8>
  %5 = nn.reshape %4 {shape = [1, 2, 8, 32]} : (tensor<1x2x8x16x2xui8>) -> tensor<1x2x8x32xui8>
  %6 = nn.cast %5 : (tensor<1x2x8x32xui8>) -> tensor<1x2x8x32xf32>
  %7 = nn.sub %6, %e : (tensor<1x2x8x32xf32>, tensor<f32>) -> tensor<1x2x8x32xf32>
  %8 = nn.mul %7, %s : (tensor<1x2x8x32xf32>, tensor<f32>) -> tensor<1x2x8x32xf32>
  %9 = nn.cast %8 : (tensor<1x2x8x32xf32>) -> tensor<1x2x8x32xf16>
  %10 = nn.attention %q, %9, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf16>, tensor<1x2x8x32xf16>, tensor<1x2x8x32xf16>) -> tensor<1x4x8x32xf16>
  return %10 : tensor<1x4x8x32xf16>
}

// -----

// Halves of a head behind each other, not side by side.
// CHECK-LABEL: @halves_apart
// CHECK-NOT: fusion.group
func.func @halves_apart(%q: tensor<1x4x8x32xf16>, %k: tensor<1x2x8x16xui8>, %v: tensor<1x2x8x32xf16>, %s: tensor<f32>) -> tensor<1x4x8x32xf16> {
  %f = nn.constant {value = dense<15> : tensor<ui8>} : () -> tensor<ui8>
  %t = nn.constant {value = dense<16> : tensor<ui8>} : () -> tensor<ui8>
  %e = nn.constant {value = dense<8.0> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.and %k, %f : (tensor<1x2x8x16xui8>, tensor<ui8>) -> tensor<1x2x8x16xui8>
  %1 = nn.reshape %0 {shape = [1, 2, 8, 1, 16]} : (tensor<1x2x8x16xui8>) -> tensor<1x2x8x1x16xui8>
  %2 = nn.div %k, %t : (tensor<1x2x8x16xui8>, tensor<ui8>) -> tensor<1x2x8x16xui8>
  %3 = nn.reshape %2 {shape = [1, 2, 8, 1, 16]} : (tensor<1x2x8x16xui8>) -> tensor<1x2x8x1x16xui8>
  %4 = nn.concat %1, %3 {axis = 3 : i64} : (tensor<1x2x8x1x16xui8>, tensor<1x2x8x1x16xui8>) -> tensor<1x2x8x2x16xui8>
  %5 = nn.reshape %4 {shape = [1, 2, 8, 32]} : (tensor<1x2x8x2x16xui8>) -> tensor<1x2x8x32xui8>
  %6 = nn.cast %5 : (tensor<1x2x8x32xui8>) -> tensor<1x2x8x32xf32>
  %7 = nn.sub %6, %e : (tensor<1x2x8x32xf32>, tensor<f32>) -> tensor<1x2x8x32xf32>
  %8 = nn.mul %7, %s : (tensor<1x2x8x32xf32>, tensor<f32>) -> tensor<1x2x8x32xf32>
  %9 = nn.cast %8 : (tensor<1x2x8x32xf32>) -> tensor<1x2x8x32xf16>
  %10 = nn.attention %q, %9, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf16>, tensor<1x2x8x32xf16>, tensor<1x2x8x32xf16>) -> tensor<1x4x8x32xf16>
  return %10 : tensor<1x4x8x32xf16>
}

// -----

// Rows of another head.
// CHECK-LABEL: @other_rows
// CHECK-NOT: fusion.group
func.func @other_rows(%q: tensor<1x4x8x32xf16>, %k: tensor<1x8x2x16xui8>, %v: tensor<1x2x8x32xf16>, %s: tensor<f32>) -> tensor<1x4x8x32xf16> {
  %f = nn.constant {value = dense<15> : tensor<ui8>} : () -> tensor<ui8>
  %t = nn.constant {value = dense<16> : tensor<ui8>} : () -> tensor<ui8>
  %e = nn.constant {value = dense<8.0> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.and %k, %f : (tensor<1x8x2x16xui8>, tensor<ui8>) -> tensor<1x8x2x16xui8>
  %1 = nn.reshape %0 {shape = [1, 2, 8, 16, 1]} : (tensor<1x8x2x16xui8>) -> tensor<1x2x8x16x1xui8>
  %2 = nn.div %k, %t : (tensor<1x8x2x16xui8>, tensor<ui8>) -> tensor<1x8x2x16xui8>
  %3 = nn.reshape %2 {shape = [1, 2, 8, 16, 1]} : (tensor<1x8x2x16xui8>) -> tensor<1x2x8x16x1xui8>
  %4 = nn.concat %1, %3 {axis = 4 : i64} : (tensor<1x2x8x16x1xui8>, tensor<1x2x8x16x1xui8>) -> tensor<1x2x8x16x2xui8>
  %5 = nn.reshape %4 {shape = [1, 2, 8, 32]} : (tensor<1x2x8x16x2xui8>) -> tensor<1x2x8x32xui8>
  %6 = nn.cast %5 : (tensor<1x2x8x32xui8>) -> tensor<1x2x8x32xf32>
  %7 = nn.sub %6, %e : (tensor<1x2x8x32xf32>, tensor<f32>) -> tensor<1x2x8x32xf32>
  %8 = nn.mul %7, %s : (tensor<1x2x8x32xf32>, tensor<f32>) -> tensor<1x2x8x32xf32>
  %9 = nn.cast %8 : (tensor<1x2x8x32xf32>) -> tensor<1x2x8x32xf16>
  %10 = nn.attention %q, %9, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf16>, tensor<1x2x8x32xf16>, tensor<1x2x8x32xf16>) -> tensor<1x4x8x32xf16>
  return %10 : tensor<1x4x8x32xf16>
}

// -----

// The same, which only symbols tell.
// CHECK-LABEL: @other_rows_of_symbols
// CHECK-NOT: fusion.group
// MISS: scaled_attention missed at {{.*}}: no schedule: {{.*}}codes of 4 bits under another shape than their bytes
func.func @other_rows_of_symbols(%q: tensor<?x4x8x32xf16> {nn.dims = ["b", 4, 8, 32]}, %k: tensor<?x2x?x16xui8> {nn.dims = ["k", 2, "b", 16]}, %v: tensor<?x2x?x32xf16> {nn.dims = ["b", 2, "k", 32]}, %s: tensor<f32>) -> tensor<?x4x8x32xf16> {
  %f = nn.constant {value = dense<15> : tensor<ui8>} : () -> tensor<ui8>
  %t = nn.constant {value = dense<16> : tensor<ui8>} : () -> tensor<ui8>
  %e = nn.constant {value = dense<8.0> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.and %k, %f : (tensor<?x2x?x16xui8>, tensor<ui8>) -> tensor<?x2x?x16xui8>
  %1 = nn.reshape %0 {shape = ["b", 2, "k", 16, 1]} : (tensor<?x2x?x16xui8>) -> tensor<?x2x?x16x1xui8>
  %2 = nn.div %k, %t : (tensor<?x2x?x16xui8>, tensor<ui8>) -> tensor<?x2x?x16xui8>
  %3 = nn.reshape %2 {shape = ["b", 2, "k", 16, 1]} : (tensor<?x2x?x16xui8>) -> tensor<?x2x?x16x1xui8>
  %4 = nn.concat %1, %3 {axis = 4 : i64} : (tensor<?x2x?x16x1xui8>, tensor<?x2x?x16x1xui8>) -> tensor<?x2x?x16x2xui8>
  %5 = nn.reshape %4 {shape = ["b", 2, "k", 32]} : (tensor<?x2x?x16x2xui8>) -> tensor<?x2x?x32xui8>
  %6 = nn.cast %5 : (tensor<?x2x?x32xui8>) -> tensor<?x2x?x32xf32>
  %7 = nn.sub %6, %e : (tensor<?x2x?x32xf32>, tensor<f32>) -> tensor<?x2x?x32xf32>
  %8 = nn.mul %7, %s : (tensor<?x2x?x32xf32>, tensor<f32>) -> tensor<?x2x?x32xf32>
  %9 = nn.cast %8 : (tensor<?x2x?x32xf32>) -> tensor<?x2x?x32xf16>
  %10 = nn.attention %q, %9, %v {scale = 0.25 : f32} : (tensor<?x4x8x32xf16>, tensor<?x2x?x32xf16>, tensor<?x2x?x32xf16>) -> tensor<?x4x8x32xf16>
  return %10 : tensor<?x4x8x32xf16>
}
