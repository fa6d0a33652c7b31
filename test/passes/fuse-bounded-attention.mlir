// RUN: fusion-opt %s --fuse-bounded-attention --split-input-file | FileCheck %s

// Two attentions with one mask: each finds the last key by itself, and nobody makes the mask.
// CHECK-LABEL: @last_key
// CHECK-NOT: nn.less_equal
// CHECK: fusion.group "bounded_attention" schedule "attention"
// CHECK: nn.less_equal
// CHECK: fusion.yield
// CHECK-NOT: nn.less_equal
// CHECK: fusion.group "bounded_attention" schedule "attention"
func.func @last_key(%q: tensor<2x4x1x32xf16>, %k: tensor<2x2x8x32xf16>, %v: tensor<2x2x8x32xf16>, %p: tensor<2x1x1x1xi64>) -> (tensor<2x4x1x32xf16>, tensor<2x4x1x32xf16>) {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %n = nn.iota %zero, %one {size = [8]} : (tensor<i64>, tensor<i64>) -> tensor<8xi64>
  %m = nn.less_equal %n, %p : (tensor<8xi64>, tensor<2x1x1x1xi64>) -> tensor<2x1x1x8xi1>
  %0 = nn.attention %q, %k, %v, %m {scale = 0.25 : f32} : (tensor<2x4x1x32xf16>, tensor<2x2x8x32xf16>, tensor<2x2x8x32xf16>, tensor<2x1x1x8xi1>) -> tensor<2x4x1x32xf16>
  %1 = nn.attention %0, %k, %v, %m {scale = 0.25 : f32} : (tensor<2x4x1x32xf16>, tensor<2x2x8x32xf16>, tensor<2x2x8x32xf16>, tensor<2x1x1x8xi1>) -> tensor<2x4x1x32xf16>
  return %0, %1 : tensor<2x4x1x32xf16>, tensor<2x4x1x32xf16>
}

// -----

// A window whose both ends depend on the query.
// CHECK-LABEL: @window
// CHECK: fusion.group "bounded_attention" schedule "attention"
// CHECK-NEXT: nn.constant
// CHECK-NEXT: nn.constant
// CHECK-NEXT: nn.iota
// CHECK-NEXT: nn.less_equal
// CHECK-NEXT: nn.greater
// CHECK-NEXT: nn.and
// CHECK-NEXT: nn.attention
// CHECK-NEXT: fusion.yield
func.func @window(%q: tensor<2x4x3x32xf16>, %k: tensor<2x2x8x32xf16>, %v: tensor<2x2x8x32xf16>, %p: tensor<2x1x3x1xi64>, %o: tensor<2x1x3x1xi64>) -> tensor<2x4x3x32xf16> {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %n = nn.iota %zero, %one {size = [8]} : (tensor<i64>, tensor<i64>) -> tensor<8xi64>
  %a = nn.less_equal %n, %p : (tensor<8xi64>, tensor<2x1x3x1xi64>) -> tensor<2x1x3x8xi1>
  %b = nn.greater %n, %o : (tensor<8xi64>, tensor<2x1x3x1xi64>) -> tensor<2x1x3x8xi1>
  %m = nn.and %a, %b : (tensor<2x1x3x8xi1>, tensor<2x1x3x8xi1>) -> tensor<2x1x3x8xi1>
  %0 = nn.attention %q, %k, %v, %m {scale = 0.25 : f32} : (tensor<2x4x3x32xf16>, tensor<2x2x8x32xf16>, tensor<2x2x8x32xf16>, tensor<2x1x3x8xi1>) -> tensor<2x4x3x32xf16>
  return %0 : tensor<2x4x3x32xf16>
}

// -----

// Keys that are counted in twos, and limits that differ between heads, stay a mask.
// CHECK-LABEL: @other_masks
// CHECK-NOT: fusion.group
func.func @other_masks(%q: tensor<2x4x1x32xf16>, %k: tensor<2x2x8x32xf16>, %v: tensor<2x2x8x32xf16>, %p: tensor<2x1x1x1xi64>, %h: tensor<2x4x1x1xi64>) -> (tensor<2x4x1x32xf16>, tensor<2x4x1x32xf16>) {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %two = nn.constant {value = dense<2> : tensor<i64>} : () -> tensor<i64>
  %n = nn.iota %zero, %two {size = [8]} : (tensor<i64>, tensor<i64>) -> tensor<8xi64>
  %c = nn.iota %zero, %one {size = [8]} : (tensor<i64>, tensor<i64>) -> tensor<8xi64>
  %m = nn.less_equal %n, %p : (tensor<8xi64>, tensor<2x1x1x1xi64>) -> tensor<2x1x1x8xi1>
  %w = nn.less_equal %c, %h : (tensor<8xi64>, tensor<2x4x1x1xi64>) -> tensor<2x4x1x8xi1>
  %0 = nn.attention %q, %k, %v, %m {scale = 0.25 : f32} : (tensor<2x4x1x32xf16>, tensor<2x2x8x32xf16>, tensor<2x2x8x32xf16>, tensor<2x1x1x8xi1>) -> tensor<2x4x1x32xf16>
  %1 = nn.attention %0, %k, %v, %w {scale = 0.25 : f32} : (tensor<2x4x1x32xf16>, tensor<2x2x8x32xf16>, tensor<2x2x8x32xf16>, tensor<2x4x1x8xi1>) -> tensor<2x4x1x32xf16>
  return %0, %1 : tensor<2x4x1x32xf16>, tensor<2x4x1x32xf16>
}

// -----

// Of a static number of keys their numbers are a constant.
// CHECK-LABEL: @constant_numbers
// CHECK: fusion.group "bounded_attention" schedule "attention"
// CHECK-NEXT: nn.constant
// CHECK-NEXT: nn.less
// CHECK-NEXT: nn.attention
func.func @constant_numbers(%q: tensor<2x4x1x32xf16>, %k: tensor<2x2x4x32xf16>, %v: tensor<2x2x4x32xf16>, %p: tensor<2x1x1x1xi64>) -> tensor<2x4x1x32xf16> {
  %n = nn.constant {value = dense<[0, 1, 2, 3]> : tensor<4xi64>} : () -> tensor<4xi64>
  %m = nn.less %n, %p : (tensor<4xi64>, tensor<2x1x1x1xi64>) -> tensor<2x1x1x4xi1>
  %0 = nn.attention %q, %k, %v, %m {scale = 0.25 : f32} : (tensor<2x4x1x32xf16>, tensor<2x2x4x32xf16>, tensor<2x2x4x32xf16>, tensor<2x1x1x4xi1>) -> tensor<2x4x1x32xf16>
  return %0 : tensor<2x4x1x32xf16>
}

// -----

// CHECK-LABEL: @other_constant
// CHECK-NOT: fusion.group
func.func @other_constant(%q: tensor<2x4x1x32xf16>, %k: tensor<2x2x4x32xf16>, %v: tensor<2x2x4x32xf16>, %p: tensor<2x1x1x1xi64>) -> tensor<2x4x1x32xf16> {
  %n = nn.constant {value = dense<[0, 1, 3, 2]> : tensor<4xi64>} : () -> tensor<4xi64>
  %m = nn.less %n, %p : (tensor<4xi64>, tensor<2x1x1x1xi64>) -> tensor<2x1x1x4xi1>
  %0 = nn.attention %q, %k, %v, %m {scale = 0.25 : f32} : (tensor<2x4x1x32xf16>, tensor<2x2x4x32xf16>, tensor<2x2x4x32xf16>, tensor<2x1x1x4xi1>) -> tensor<2x4x1x32xf16>
  return %0 : tensor<2x4x1x32xf16>
}
