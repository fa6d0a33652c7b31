// RUN: fusion-opt %s --nn-canonicalize --split-input-file | FileCheck %s
// Matmuls over flattened rows, as PyTorch's linear and addmm leave them, get the dims that their readers have.

// The heads of an attention are rows already: only the reshape in front stays, so that the residual meets the
// matmul.
// CHECK-LABEL: @output_projection
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x?x4x8xf32>
// CHECK: %[[R:.*]] = nn.reshape %[[X]] {shape = ["b", "s", 32]}
// CHECK-NEXT: %[[M:.*]] = nn.matmul %[[R]], %{{.*}} -> tensor<?x?x16xf32>
// CHECK-NEXT: %[[A:.*]] = nn.add %[[M]], %{{.*}} : (tensor<?x?x16xf32>, tensor<16xf32>)
// CHECK-NEXT: %[[C:.*]] = nn.cast %[[A]]
// CHECK-NEXT: nn.add %{{.*}}, %[[C]]
// CHECK-NOT: nn.reshape
func.func @output_projection(%x: tensor<?x?x4x8xf32> {nn.dims = ["b", "s", 4, 8]}, %w: tensor<32x16xf32>,
                             %bias: tensor<16xf32>, %r: tensor<?x?x16xf16> {nn.dims = ["b", "s", 16]})
    -> tensor<?x?x16xf16> {
  %0 = nn.reshape %x {shape = ["b*s", 32]} : (tensor<?x?x4x8xf32>) -> tensor<?x32xf32>
  %1 = nn.matmul %0, %w : (tensor<?x32xf32>, tensor<32x16xf32>) -> tensor<?x16xf32>
  %2 = nn.add %1, %bias : (tensor<?x16xf32>, tensor<16xf32>) -> tensor<?x16xf32>
  %3 = nn.cast %2 : (tensor<?x16xf32>) -> tensor<?x16xf16>
  %4 = nn.reshape %3 {shape = ["b", "s", 16]} : (tensor<?x16xf16>) -> tensor<?x?x16xf16>
  %5 = nn.add %r, %4 : (tensor<?x?x16xf16>, tensor<?x?x16xf16>) -> tensor<?x?x16xf16>
  return %5 : tensor<?x?x16xf16>
}

// -----

// Rows that were never reshaped gain nothing.
// CHECK-LABEL: @plain_rows
// CHECK: %[[M:.*]] = nn.matmul %{{.*}} -> tensor<6x16xf32>
// CHECK: nn.reshape %[[M]]
func.func @plain_rows(%x: tensor<6x32xf32>, %w: tensor<32x16xf32>) -> tensor<2x3x16xf32> {
  %0 = nn.matmul %x, %w : (tensor<6x32xf32>, tensor<32x16xf32>) -> tensor<6x16xf32>
  %1 = nn.reshape %0 {shape = [2, 3, 16]} : (tensor<6x16xf32>) -> tensor<2x3x16xf32>
  return %1 : tensor<2x3x16xf32>
}

// -----

// The flat rows have another reader.
// CHECK-LABEL: @read_flat
// CHECK: %[[M:.*]] = nn.matmul %{{.*}} -> tensor<6x16xf32>
// CHECK: nn.reshape %[[M]]
// CHECK: nn.softmax %[[M]]
func.func @read_flat(%x: tensor<2x3x4x8xf32>, %w: tensor<32x16xf32>) -> (tensor<2x3x16xf32>, tensor<6x16xf32>) {
  %0 = nn.reshape %x {shape = [6, 32]} : (tensor<2x3x4x8xf32>) -> tensor<6x32xf32>
  %1 = nn.matmul %0, %w : (tensor<6x32xf32>, tensor<32x16xf32>) -> tensor<6x16xf32>
  %2 = nn.reshape %1 {shape = [2, 3, 16]} : (tensor<6x16xf32>) -> tensor<2x3x16xf32>
  %3 = nn.softmax %1 {axis = 1 : i64} : (tensor<6x16xf32>) -> tensor<6x16xf32>
  return %2, %3 : tensor<2x3x16xf32>, tensor<6x16xf32>
}

// -----

// The last dim is divided too: these are heads.
// CHECK-LABEL: @heads
// CHECK: nn.matmul %{{.*}} -> tensor<6x16xf32>
// CHECK: nn.reshape
func.func @heads(%x: tensor<2x3x4x8xf32>, %w: tensor<32x16xf32>) -> tensor<2x3x4x4xf32> {
  %0 = nn.reshape %x {shape = [6, 32]} : (tensor<2x3x4x8xf32>) -> tensor<6x32xf32>
  %1 = nn.matmul %0, %w : (tensor<6x32xf32>, tensor<32x16xf32>) -> tensor<6x16xf32>
  %2 = nn.reshape %1 {shape = [2, 3, 4, 4]} : (tensor<6x16xf32>) -> tensor<2x3x4x4xf32>
  return %2 : tensor<2x3x4x4xf32>
}

// -----

// An operand with a row of its own for each flat index cannot follow.
// CHECK-LABEL: @row_operand
// CHECK: %[[A:.*]] = nn.add %{{.*}} -> tensor<6x16xf32>
// CHECK: nn.reshape %[[A]]
func.func @row_operand(%x: tensor<2x3x4x8xf32>, %w: tensor<32x16xf32>, %y: tensor<6x16xf32>) -> tensor<2x3x16xf32> {
  %0 = nn.reshape %x {shape = [6, 32]} : (tensor<2x3x4x8xf32>) -> tensor<6x32xf32>
  %1 = nn.matmul %0, %w : (tensor<6x32xf32>, tensor<32x16xf32>) -> tensor<6x16xf32>
  %2 = nn.add %1, %y : (tensor<6x16xf32>, tensor<6x16xf32>) -> tensor<6x16xf32>
  %3 = nn.reshape %2 {shape = [2, 3, 16]} : (tensor<6x16xf32>) -> tensor<2x3x16xf32>
  return %3 : tensor<2x3x16xf32>
}

// -----

// Phi-3 puts what is not rotated behind what is, though that is nothing.
// CHECK-LABEL: @empty_part
// CHECK-NEXT: %[[R:.*]] = nn.relu
// CHECK-NEXT: return %[[R]]
func.func @empty_part(%x: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = nn.slice %x {starts = [0, 8], sizes = [2, 0], steps = array<i64: 1, 1>} : (tensor<2x8xf32>) -> tensor<2x0xf32>
  %1 = nn.relu %x : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %2 = nn.concat %1, %0 {axis = -1 : i64} : (tensor<2x8xf32>, tensor<2x0xf32>) -> tensor<2x8xf32>
  return %2 : tensor<2x8xf32>
}

// -----

// Two parts are left of three; what may be empty stays; nothing but empty parts stay as they are.
// CHECK-LABEL: @parts
// CHECK: nn.concat %arg0, %arg2 {axis = 0 : i64} : (tensor<2xf32>, tensor<?xf32>)
// CHECK: nn.concat %arg1, %arg1
func.func @parts(%x: tensor<2xf32>, %e: tensor<0xf32>, %y: tensor<?xf32> {nn.dims = ["n"]}) -> (tensor<?xf32>, tensor<0xf32>) {
  %0 = nn.concat %x, %e, %y {axis = 0 : i64} : (tensor<2xf32>, tensor<0xf32>, tensor<?xf32>) -> tensor<?xf32>
  %1 = nn.concat %e, %e {axis = 0 : i64} : (tensor<0xf32>, tensor<0xf32>) -> tensor<0xf32>
  return %0, %1 : tensor<?xf32>, tensor<0xf32>
}

// -----

// The rows are flat for the limit alone, which works within each.
// CHECK-LABEL: @limited_groups
// CHECK: %[[L:.*]] = nn.limit_groups %arg0 {{.*}} : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
// CHECK-NEXT: nn.top_k %[[L]]
func.func @limited_groups(%x: tensor<2x3x8xf32>) -> tensor<2x3x2xi64> {
  %0 = nn.reshape %x {shape = [6, 8]} : (tensor<2x3x8xf32>) -> tensor<6x8xf32>
  %1 = nn.limit_groups %0 {groups = 4 : i64, kept = 2 : i64, summed = 1 : i64, other = 0.0 : f32} : (tensor<6x8xf32>) -> tensor<6x8xf32>
  %2 = nn.reshape %1 {shape = [2, 3, 8]} : (tensor<6x8xf32>) -> tensor<2x3x8xf32>
  %3 = nn.top_k %2 {axis = 2 : i64, k = [2]} : (tensor<2x3x8xf32>) -> tensor<2x3x2xi64>
  return %3 : tensor<2x3x2xi64>
}

// -----

// The choice is of flat rows.
// CHECK-LABEL: @limited_groups_of_flat_rows
// CHECK: nn.limit_groups {{.*}} -> tensor<6x8xf32>
func.func @limited_groups_of_flat_rows(%x: tensor<2x3x8xf32>) -> tensor<6x2xi64> {
  %0 = nn.reshape %x {shape = [6, 8]} : (tensor<2x3x8xf32>) -> tensor<6x8xf32>
  %1 = nn.limit_groups %0 {groups = 4 : i64, kept = 2 : i64, summed = 1 : i64, other = 0.0 : f32} : (tensor<6x8xf32>) -> tensor<6x8xf32>
  %2 = nn.top_k %1 {axis = 1 : i64, k = [2]} : (tensor<6x8xf32>) -> tensor<6x2xi64>
  return %2 : tensor<6x2xi64>
}
