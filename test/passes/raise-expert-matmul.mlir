// RUN: fusion-opt %s --nn-raise-expert-matmul --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-raise-expert-matmul --split-input-file --remarks-filter-missed=raise 2>&1 | FileCheck %s --check-prefix=MISS

// Rows repeated for each slot, rows and slots merged, weights gathered, packed gate and up, the sum in f32.
// CHECK-LABEL: func @batched
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x8xbf16> {{.*}}, %[[I:[a-z0-9]*]]: tensor<?x2xi64> {{.*}}, %[[R:[a-z0-9]*]]: tensor<?x2xbf16> {{.*}}, %[[GU:[a-z0-9]*]]: tensor<4x12x8xbf16>, %[[D:[a-z0-9]*]]: tensor<4x8x6xbf16>
// CHECK-NEXT: %[[ROW:.*]] = nn.reshape %[[X]] {shape = ["t", 1, 8]}
// CHECK-NEXT: %[[H:.*]] = nn.expert_matmul %[[ROW]], %[[GU]], %[[I]] {transpose_w = true} : (tensor<?x1x8xbf16>, tensor<4x12x8xbf16>, tensor<?x2xi64>) -> tensor<?x2x12xbf16>
// CHECK-NEXT: %[[G:.*]] = nn.slice %[[H]] {sizes = ["t", 2, 6], starts = [0, 0, 0]
// CHECK-NEXT: %[[S:.*]] = nn.silu %[[G]]
// CHECK-NEXT: %[[U:.*]] = nn.slice %[[H]] {sizes = ["t", 2, 6], starts = [0, 0, 6]
// CHECK-NEXT: %[[A:.*]] = nn.mul %[[S]], %[[U]] : (tensor<?x2x6xbf16>, tensor<?x2x6xbf16>)
// CHECK-NEXT: %[[Y:.*]] = nn.expert_matmul %[[A]], %[[D]], %[[I]] {transpose_w = true} : (tensor<?x2x6xbf16>, tensor<4x8x6xbf16>, tensor<?x2xi64>) -> tensor<?x2x8xbf16>
// CHECK-NEXT: %[[RC:.*]] = nn.reshape %[[R]] {shape = ["t", 2, 1]}
// CHECK-NEXT: %[[W:.*]] = nn.mul %[[Y]], %[[RC]]
// CHECK-NEXT: %[[SUM:.*]] = nn.reduce %[[W]] {axes = array<i64: 1>, keepdims = false, kind = "sum"} : (tensor<?x2x8xbf16>) -> tensor<?x8xbf16>
// CHECK-NEXT: return %[[SUM]]
func.func @batched(%x: tensor<?x8xbf16> {nn.dims = ["t", 8]}, %i: tensor<?x2xi64> {nn.dims = ["t", 2]}, %r: tensor<?x2xbf16> {nn.dims = ["t", 2]},
                   %gu: tensor<4x12x8xbf16>, %d: tensor<4x8x6xbf16>) -> tensor<?x8xbf16> {
  %x1 = nn.reshape %x {shape = ["t", 1, 8]} : (tensor<?x8xbf16>) -> tensor<?x1x8xbf16>
  %x2 = nn.expand %x1 {shape = ["t", 2, 8]} : (tensor<?x1x8xbf16>) -> tensor<?x2x8xbf16>
  %x3 = nn.reshape %x2 {shape = ["2*t", 8, 1]} : (tensor<?x2x8xbf16>) -> tensor<?x8x1xbf16>
  %f = nn.reshape %i {shape = ["2*t"]} : (tensor<?x2xi64>) -> tensor<?xi64>
  %w1 = nn.gather %gu, %f {axis = 0 : i64} : (tensor<4x12x8xbf16>, tensor<?xi64>) -> tensor<?x12x8xbf16>
  %h0 = nn.matmul %w1, %x3 : (tensor<?x12x8xbf16>, tensor<?x8x1xbf16>) -> tensor<?x12x1xbf16>
  %h = nn.reshape %h0 {shape = ["2*t", 12]} : (tensor<?x12x1xbf16>) -> tensor<?x12xbf16>
  %g = nn.slice %h {starts = [0, 0], sizes = ["2*t", 6], steps = array<i64: 1, 1>} : (tensor<?x12xbf16>) -> tensor<?x6xbf16>
  %u = nn.slice %h {starts = [0, 6], sizes = ["2*t", 6], steps = array<i64: 1, 1>} : (tensor<?x12xbf16>) -> tensor<?x6xbf16>
  %s = nn.silu %g : (tensor<?x6xbf16>) -> tensor<?x6xbf16>
  %a = nn.mul %s, %u : (tensor<?x6xbf16>, tensor<?x6xbf16>) -> tensor<?x6xbf16>
  %w2 = nn.gather %d, %f {axis = 0 : i64} : (tensor<4x8x6xbf16>, tensor<?xi64>) -> tensor<?x8x6xbf16>
  %a1 = nn.reshape %a {shape = ["2*t", 6, 1]} : (tensor<?x6xbf16>) -> tensor<?x6x1xbf16>
  %y0 = nn.matmul %w2, %a1 : (tensor<?x8x6xbf16>, tensor<?x6x1xbf16>) -> tensor<?x8x1xbf16>
  %y = nn.reshape %y0 {shape = ["2*t", 8]} : (tensor<?x8x1xbf16>) -> tensor<?x8xbf16>
  %rf = nn.reshape %r {shape = ["2*t", 1]} : (tensor<?x2xbf16>) -> tensor<?x1xbf16>
  %m = nn.mul %y, %rf : (tensor<?x8xbf16>, tensor<?x1xbf16>) -> tensor<?x8xbf16>
  %m1 = nn.reshape %m {shape = ["t", 2, 8]} : (tensor<?x8xbf16>) -> tensor<?x2x8xbf16>
  %m2 = nn.cast %m1 : (tensor<?x2x8xbf16>) -> tensor<?x2x8xf32>
  %q = nn.reduce %m2 {axes = array<i64: 1>, keepdims = false, kind = "sum"} : (tensor<?x2x8xf32>) -> tensor<?x8xf32>
  %q1 = nn.cast %q : (tensor<?x8xf32>) -> tensor<?x8xbf16>
  return %q1 : tensor<?x8xbf16>
}

// -----

// Rows gathered by the token's number, weights that are not transposed, a bias of each expert.
// CHECK-LABEL: func @by_token
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x8xf32> {{.*}}, %[[I:[a-z0-9]*]]: tensor<?x2xi64> {{.*}}, %[[W:[a-z0-9]*]]: tensor<4x8x6xf32>, %[[B:[a-z0-9]*]]: tensor<4x6xf32>
// CHECK: %[[ROW:.*]] = nn.reshape %[[X]] {shape = ["t", 1, 8]}
// CHECK-NEXT: %[[Y:.*]] = nn.expert_matmul %[[ROW]], %[[W]], %[[I]] : (tensor<?x1x8xf32>, tensor<4x8x6xf32>, tensor<?x2xi64>) -> tensor<?x2x6xf32>
// CHECK-NEXT: %[[BI:.*]] = nn.gather %[[B]], %[[I]] {axis = 0 : i64} : (tensor<4x6xf32>, tensor<?x2xi64>) -> tensor<?x2x6xf32>
// CHECK-NEXT: %[[A:.*]] = nn.add %[[Y]], %[[BI]]
// CHECK-NEXT: return %[[A]]
func.func @by_token(%x: tensor<?x8xf32> {nn.dims = ["t", 8]}, %i: tensor<?x2xi64> {nn.dims = ["t", 2]}, %w: tensor<4x8x6xf32>, %b: tensor<4x6xf32>) -> tensor<?x2x6xf32> {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %n0 = nn.iota %zero, %one {size = ["t"]} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
  %n1 = nn.reshape %n0 {shape = ["t", 1]} : (tensor<?xi64>) -> tensor<?x1xi64>
  %n2 = nn.expand %n1 {shape = ["t", 2]} : (tensor<?x1xi64>) -> tensor<?x2xi64>
  %n = nn.reshape %n2 {shape = ["2*t"]} : (tensor<?x2xi64>) -> tensor<?xi64>
  %f = nn.reshape %i {shape = ["2*t"]} : (tensor<?x2xi64>) -> tensor<?xi64>
  %x1 = nn.gather %x, %n {axis = 0 : i64} : (tensor<?x8xf32>, tensor<?xi64>) -> tensor<?x8xf32>
  %x2 = nn.reshape %x1 {shape = ["2*t", 1, 8]} : (tensor<?x8xf32>) -> tensor<?x1x8xf32>
  %w1 = nn.gather %w, %f {axis = 0 : i64} : (tensor<4x8x6xf32>, tensor<?xi64>) -> tensor<?x8x6xf32>
  %y0 = nn.matmul %x2, %w1 : (tensor<?x1x8xf32>, tensor<?x8x6xf32>) -> tensor<?x1x6xf32>
  %y = nn.reshape %y0 {shape = ["2*t", 6]} : (tensor<?x1x6xf32>) -> tensor<?x6xf32>
  %b1 = nn.gather %b, %f {axis = 0 : i64} : (tensor<4x6xf32>, tensor<?xi64>) -> tensor<?x6xf32>
  %a = nn.add %y, %b1 : (tensor<?x6xf32>, tensor<?x6xf32>) -> tensor<?x6xf32>
  %a1 = nn.reshape %a {shape = ["t", 2, 6]} : (tensor<?x6xf32>) -> tensor<?x2x6xf32>
  return %a1 : tensor<?x2x6xf32>
}

// -----

// Rows and slots that were never merged; all slots of a row read the same.
// CHECK-LABEL: func @apart
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x1x1x8xf32> {{.*}}, %[[I:[a-z0-9]*]]: tensor<?x2xi64> {{.*}}, %[[W:[a-z0-9]*]]: tensor<4x6x8xf32>
// CHECK-NEXT: %[[ROW:.*]] = nn.reshape %[[X]] {shape = ["t", 1, 8]}
// CHECK-NEXT: %[[Y:.*]] = nn.expert_matmul %[[ROW]], %[[W]], %[[I]] {transpose_w = true}
// CHECK-NEXT: nn.reshape %[[Y]] {shape = ["t", 2, 1, 6]}
func.func @apart(%x: tensor<?x1x1x8xf32> {nn.dims = ["t", 1, 1, 8]}, %i: tensor<?x2xi64> {nn.dims = ["t", 2]}, %w: tensor<4x6x8xf32>) -> tensor<?x2x1x6xf32> {
  %w1 = nn.gather %w, %i {axis = 0 : i64} : (tensor<4x6x8xf32>, tensor<?x2xi64>) -> tensor<?x2x6x8xf32>
  %y = nn.matmul %x, %w1 {transpose_b = true} : (tensor<?x1x1x8xf32>, tensor<?x2x6x8xf32>) -> tensor<?x2x1x6xf32>
  return %y : tensor<?x2x1x6xf32>
}

// -----

// An index that nothing was merged into: one slot.
// CHECK-LABEL: func @top_one
// CHECK: nn.expert_matmul %{{.*}}, %{{.*}}, %{{.*}} : (tensor<?x1x8xf32>, tensor<4x8x6xf32>, tensor<?x1xi64>) -> tensor<?x1x6xf32>
func.func @top_one(%x: tensor<?x1x8xf32> {nn.dims = ["t", 1, 8]}, %i: tensor<?xi64> {nn.dims = ["t"]}, %w: tensor<4x8x6xf32>) -> tensor<?x1x6xf32> {
  %w1 = nn.gather %w, %i {axis = 0 : i64} : (tensor<4x8x6xf32>, tensor<?xi64>) -> tensor<?x8x6xf32>
  %y = nn.matmul %x, %w1 : (tensor<?x1x8xf32>, tensor<?x8x6xf32>) -> tensor<?x1x6xf32>
  return %y : tensor<?x1x6xf32>
}

// -----

// Slots that read different rows keep them.
// CHECK-LABEL: func @own_rows
// CHECK: nn.expert_matmul %{{.*}}, %{{.*}}, %{{.*}} : (tensor<?x2x8xf32>, tensor<4x8x6xf32>, tensor<?x2xi64>) -> tensor<?x2x6xf32>
func.func @own_rows(%x: tensor<?x1x8xf32> {nn.dims = ["2*t", 1, 8]}, %i: tensor<?x2xi64> {nn.dims = ["t", 2]}, %w: tensor<4x8x6xf32>) -> tensor<?x1x6xf32> {
  %f = nn.reshape %i {shape = ["2*t"]} : (tensor<?x2xi64>) -> tensor<?xi64>
  %w1 = nn.gather %w, %f {axis = 0 : i64} : (tensor<4x8x6xf32>, tensor<?xi64>) -> tensor<?x8x6xf32>
  %y = nn.matmul %x, %w1 : (tensor<?x1x8xf32>, tensor<?x8x6xf32>) -> tensor<?x1x6xf32>
  return %y : tensor<?x1x6xf32>
}

// -----

// Several rows for each picked matrix.
// CHECK-LABEL: func @many_rows
// CHECK: nn.matmul
// MISS: expert_matmul{{.*}}each picked matrix multiplies 5 rows, not one
func.func @many_rows(%x: tensor<?x5x8xf32> {nn.dims = ["t", 5, 8]}, %i: tensor<?xi64> {nn.dims = ["t"]}, %w: tensor<4x8x6xf32>) -> tensor<?x5x6xf32> {
  %w1 = nn.gather %w, %i {axis = 0 : i64} : (tensor<4x8x6xf32>, tensor<?xi64>) -> tensor<?x8x6xf32>
  %y = nn.matmul %x, %w1 : (tensor<?x5x8xf32>, tensor<?x8x6xf32>) -> tensor<?x5x6xf32>
  return %y : tensor<?x5x6xf32>
}

// -----

// The rows are shared by all of the index.
// CHECK-LABEL: func @other_rank
// CHECK: nn.matmul
// MISS: expert_matmul{{.*}}operands of rank 2 and 3
func.func @other_rank(%x: tensor<1x8xf32>, %i: tensor<?xi64> {nn.dims = ["t"]}, %w: tensor<4x8x6xf32>) -> tensor<?x1x6xf32> {
  %w1 = nn.gather %w, %i {axis = 0 : i64} : (tensor<4x8x6xf32>, tensor<?xi64>) -> tensor<?x8x6xf32>
  %y = nn.matmul %x, %w1 : (tensor<1x8xf32>, tensor<?x8x6xf32>) -> tensor<?x1x6xf32>
  return %y : tensor<?x1x6xf32>
}

// -----

// A cast of what is picked from a value that is computed stays where it is.
// CHECK-LABEL: func @computed_cast
// CHECK-NOT: nn.expert_matmul
// CHECK: return
func.func @computed_cast(%x: tensor<?x1x8xf32> {nn.dims = ["t", 1, 8]}, %i: tensor<?xi64> {nn.dims = ["t"]}, %w: tensor<4x8x6xf16>) -> tensor<?x1x6xf32> {
  %w1 = nn.gather %w, %i {axis = 0 : i64} : (tensor<4x8x6xf16>, tensor<?xi64>) -> tensor<?x8x6xf16>
  %w2 = nn.cast %w1 : (tensor<?x8x6xf16>) -> tensor<?x8x6xf32>
  %y = nn.matmul %x, %w2 : (tensor<?x1x8xf32>, tensor<?x8x6xf32>) -> tensor<?x1x6xf32>
  return %y : tensor<?x1x6xf32>
}
