// RUN: fusion-opt %s --fuse-attention-layout --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-attention-layout --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// CHECK-LABEL: @heads_merged
// CHECK: fusion.group "attention_layout" schedule "attention"
// CHECK-NEXT: nn.attention
// CHECK-NEXT: nn.transpose
// CHECK-NEXT: nn.reshape
// CHECK-NEXT: fusion.yield
func.func @heads_merged(%q: tensor<1x4x8x32xf32>, %k: tensor<1x2x8x32xf32>, %v: tensor<1x2x8x32xf32>) -> tensor<1x8x128xf32> {
  %0 = nn.attention %q, %k, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf32>, tensor<1x2x8x32xf32>, tensor<1x2x8x32xf32>) -> tensor<1x4x8x32xf32>
  %1 = nn.transpose %0 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x4x8x32xf32>) -> tensor<1x8x4x32xf32>
  %2 = nn.reshape %1 {shape = [1, 8, 128]} : (tensor<1x8x4x32xf32>) -> tensor<1x8x128xf32>
  return %2 : tensor<1x8x128xf32>
}

// -----

// One query: the heads lie one after the other already.
// CHECK-LABEL: @one_query
// CHECK-NOT: fusion.group
// MISS: attention_layout missed at {{.*}}: the transposed result is read where it lies
func.func @one_query(%q: tensor<1x4x1x32xf32>, %k: tensor<1x2x8x32xf32>, %v: tensor<1x2x8x32xf32>) -> tensor<1x1x128xf32> {
  %0 = nn.attention %q, %k, %v {scale = 0.25 : f32} : (tensor<1x4x1x32xf32>, tensor<1x2x8x32xf32>, tensor<1x2x8x32xf32>) -> tensor<1x4x1x32xf32>
  %1 = nn.transpose %0 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x4x1x32xf32>) -> tensor<1x1x4x32xf32>
  %2 = nn.reshape %1 {shape = [1, 1, 128]} : (tensor<1x1x4x32xf32>) -> tensor<1x1x128xf32>
  return %2 : tensor<1x1x128xf32>
}

// -----

// CHECK-LABEL: @two_readers
// CHECK-NOT: fusion.group
// MISS: attention_layout missed at {{.*}}: 2 readers of the result, not one nn.transpose
func.func @two_readers(%q: tensor<1x4x8x32xf32>, %k: tensor<1x2x8x32xf32>, %v: tensor<1x2x8x32xf32>) -> (tensor<1x4x8x32xf32>, tensor<1x8x128xf32>) {
  %0 = nn.attention %q, %k, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf32>, tensor<1x2x8x32xf32>, tensor<1x2x8x32xf32>) -> tensor<1x4x8x32xf32>
  %1 = nn.transpose %0 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x4x8x32xf32>) -> tensor<1x8x4x32xf32>
  %2 = nn.reshape %1 {shape = [1, 8, 128]} : (tensor<1x8x4x32xf32>) -> tensor<1x8x128xf32>
  return %0, %2 : tensor<1x4x8x32xf32>, tensor<1x8x128xf32>
}

// -----

// CHECK-LABEL: @another_reader
// CHECK-NOT: fusion.group
// MISS: attention_layout missed at {{.*}}: the result is read by nn.silu, not nn.transpose
func.func @another_reader(%q: tensor<1x4x8x32xf32>, %k: tensor<1x2x8x32xf32>, %v: tensor<1x2x8x32xf32>) -> tensor<1x4x8x32xf32> {
  %0 = nn.attention %q, %k, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf32>, tensor<1x2x8x32xf32>, tensor<1x2x8x32xf32>) -> tensor<1x4x8x32xf32>
  %1 = nn.silu %0 : (tensor<1x4x8x32xf32>) -> tensor<1x4x8x32xf32>
  return %1 : tensor<1x4x8x32xf32>
}

// -----

// The queries in front of the batch: any order that keeps the width of a head last.
// CHECK-LABEL: @other_order
// CHECK: fusion.group "attention_layout" schedule "attention"
// CHECK-NEXT: nn.attention
// CHECK-NEXT: nn.transpose
// CHECK-NEXT: nn.reshape
// CHECK-NEXT: fusion.yield
func.func @other_order(%q: tensor<1x4x8x32xf32>, %k: tensor<1x2x8x32xf32>, %v: tensor<1x2x8x32xf32>) -> tensor<8x128xf32> {
  %0 = nn.attention %q, %k, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf32>, tensor<1x2x8x32xf32>, tensor<1x2x8x32xf32>) -> tensor<1x4x8x32xf32>
  %1 = nn.transpose %0 {perm = array<i64: 2, 0, 1, 3>} : (tensor<1x4x8x32xf32>) -> tensor<8x1x4x32xf32>
  %2 = nn.reshape %1 {shape = [8, 128]} : (tensor<8x1x4x32xf32>) -> tensor<8x128xf32>
  return %2 : tensor<8x128xf32>
}

// -----

// CHECK-LABEL: @transposed_read_twice
// CHECK-NOT: fusion.group
// MISS: attention_layout missed at {{.*}}: 2 readers of the transposed result, not one nn.reshape
func.func @transposed_read_twice(%q: tensor<1x4x8x32xf32>, %k: tensor<1x2x8x32xf32>, %v: tensor<1x2x8x32xf32>) -> (tensor<1x8x128xf32>, tensor<1x8x4x32xf32>) {
  %0 = nn.attention %q, %k, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf32>, tensor<1x2x8x32xf32>, tensor<1x2x8x32xf32>) -> tensor<1x4x8x32xf32>
  %1 = nn.transpose %0 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x4x8x32xf32>) -> tensor<1x8x4x32xf32>
  %2 = nn.reshape %1 {shape = [1, 8, 128]} : (tensor<1x8x4x32xf32>) -> tensor<1x8x128xf32>
  return %2, %1 : tensor<1x8x128xf32>, tensor<1x8x4x32xf32>
}

// -----

// CHECK-LABEL: @dead_reshape
// CHECK-NOT: fusion.group
// CHECK-NOT: nn.transpose
// CHECK: return
// MISS: attention_layout missed at {{.*}}: the result is read by func.return, not nn.transpose
func.func @dead_reshape(%q: tensor<1x4x8x32xf32>, %k: tensor<1x2x8x32xf32>, %v: tensor<1x2x8x32xf32>) -> tensor<1x4x8x32xf32> {
  %0 = nn.attention %q, %k, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf32>, tensor<1x2x8x32xf32>, tensor<1x2x8x32xf32>) -> tensor<1x4x8x32xf32>
  %1 = nn.transpose %0 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x4x8x32xf32>) -> tensor<1x8x4x32xf32>
  %2 = nn.reshape %1 {shape = [1, 8, 128]} : (tensor<1x8x4x32xf32>) -> tensor<1x8x128xf32>
  return %0 : tensor<1x4x8x32xf32>
}

// -----

// CHECK-LABEL: @dead
// CHECK-NOT: nn.attention
// CHECK: return
func.func @dead(%q: tensor<1x4x8x32xf32>, %k: tensor<1x2x8x32xf32>, %v: tensor<1x2x8x32xf32>) -> tensor<1x4x8x32xf32> {
  %0 = nn.attention %q, %k, %v {scale = 0.25 : f32} : (tensor<1x4x8x32xf32>, tensor<1x2x8x32xf32>, tensor<1x2x8x32xf32>) -> tensor<1x4x8x32xf32>
  %1 = nn.transpose %0 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x4x8x32xf32>) -> tensor<1x8x4x32xf32>
  %2 = nn.reshape %1 {shape = [1, 8, 128]} : (tensor<1x8x4x32xf32>) -> tensor<1x8x128xf32>
  return %q : tensor<1x4x8x32xf32>
}

// -----

// The new state leaves beside it.
// CHECK-LABEL: @linear_attention
// CHECK: fusion.group "attention_layout" schedule "linear_attention"
// CHECK-NEXT: nn.linear_attention
// CHECK-NEXT: nn.transpose
// CHECK-NEXT: nn.reshape
// CHECK-NEXT: fusion.yield
func.func @linear_attention(%q: tensor<1x4x8x32xf32>, %v: tensor<1x4x8x16xf32>, %s: tensor<1x4x32x16xf32>) -> (tensor<1x8x64xf32>, tensor<1x4x32x16xf32>) {
  %0, %1 = nn.linear_attention %q, %q, %v, %s {scale = 0.25 : f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>} : (tensor<1x4x8x32xf32>, tensor<1x4x8x32xf32>, tensor<1x4x8x16xf32>, tensor<1x4x32x16xf32>) -> (tensor<1x4x8x16xf32>, tensor<1x4x32x16xf32>)
  %2 = nn.transpose %0 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x4x8x16xf32>) -> tensor<1x8x4x16xf32>
  %3 = nn.reshape %2 {shape = [1, 8, 64]} : (tensor<1x8x4x16xf32>) -> tensor<1x8x64xf32>
  return %3, %1 : tensor<1x8x64xf32>, tensor<1x4x32x16xf32>
}
