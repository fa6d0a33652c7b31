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
