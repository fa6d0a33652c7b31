// RUN: fusion-opt %s --fuse-pointwise --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-pointwise --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// A chain, with a value that is read elsewhere on the way: it leaves too.
// CHECK-LABEL: @chain
// CHECK: %[[G:.*]]:2 = fusion.group "pointwise" schedule "pointwise"
// CHECK-NEXT: nn.exp
// CHECK-NEXT: %[[A:.*]] = nn.add
// CHECK-NEXT: %[[R:.*]] = nn.relu
// CHECK-NEXT: fusion.yield %[[A]], %[[R]]
// CHECK: nn.softmax %[[G]]#0
func.func @chain(%x: tensor<?x128xf32>, %y: tensor<128xf32>) -> (tensor<?x128xf32>, tensor<?x128xf32>) {
  %0 = nn.exp %x : (tensor<?x128xf32>) -> tensor<?x128xf32>
  %1 = nn.add %0, %y : (tensor<?x128xf32>, tensor<128xf32>) -> tensor<?x128xf32>
  %2 = nn.relu %1 : (tensor<?x128xf32>) -> tensor<?x128xf32>
  %3 = nn.softmax %1 {axis = 1 : i64} : (tensor<?x128xf32>) -> tensor<?x128xf32>
  return %2, %3 : tensor<?x128xf32>, tensor<?x128xf32>
}

// -----

// A rotary table: two results of one shape from what they share.
// CHECK-LABEL: @rotary_table
// CHECK: %[[G:.*]]:2 = fusion.group "pointwise"
// CHECK: nn.iota
// CHECK: nn.transpose
// CHECK: nn.concat
// CHECK-DAG: nn.cos
// CHECK-DAG: nn.sin
// CHECK: return %[[G]]#0, %[[G]]#1
func.func @rotary_table(%f: tensor<16x1xf32>) -> (tensor<64x32xf16>, tensor<64x32xf16>) {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %p = nn.iota %zero, %one {size = [64]} : (tensor<i64>, tensor<i64>) -> tensor<64xi64>
  %q = nn.cast %p : (tensor<64xi64>) -> tensor<64xf32>
  %a = nn.mul %f, %q : (tensor<16x1xf32>, tensor<64xf32>) -> tensor<16x64xf32>
  %t = nn.transpose %a {perm = array<i64: 1, 0>} : (tensor<16x64xf32>) -> tensor<64x16xf32>
  %c = nn.concat %t, %t {axis = 1 : i64} : (tensor<64x16xf32>, tensor<64x16xf32>) -> tensor<64x32xf32>
  %0 = nn.cos %c : (tensor<64x32xf32>) -> tensor<64x32xf32>
  %1 = nn.sin %c : (tensor<64x32xf32>) -> tensor<64x32xf32>
  %2 = nn.cast %0 : (tensor<64x32xf32>) -> tensor<64x32xf16>
  %3 = nn.cast %1 : (tensor<64x32xf32>) -> tensor<64x32xf16>
  return %2, %3 : tensor<64x32xf16>, tensor<64x32xf16>
}

// -----

// Positions are read by two groups of different shapes: each computes its own, and no kernel is left for them.
// CHECK-LABEL: @cloned_positions
// CHECK-NOT: nn.iota
// CHECK: fusion.group "pointwise"
// CHECK: nn.iota
// CHECK: fusion.group "pointwise"
// CHECK: nn.iota
// CHECK: fusion.yield
// CHECK-NOT: nn.iota
func.func @cloned_positions(%x: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64xf32>) {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %low = nn.constant {value = dense<-1.0e+30> : tensor<f32>} : () -> tensor<f32>
  %p = nn.iota %zero, %one {size = [64]} : (tensor<i64>, tensor<i64>) -> tensor<64xi64>
  %r = nn.reshape %p {shape = [64, 1]} : (tensor<64xi64>) -> tensor<64x1xi64>
  %m = nn.less_equal %p, %r : (tensor<64xi64>, tensor<64x1xi64>) -> tensor<64x64xi1>
  %w = nn.where %m, %x, %low : (tensor<64x64xi1>, tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf32>
  %f = nn.cast %p : (tensor<64xi64>) -> tensor<64xf32>
  return %w, %f : tensor<64x64xf32>, tensor<64xf32>
}

// -----

// A view of a graph input stays outside; a view between two members goes in.
// CHECK-LABEL: @views
// CHECK: %[[V:.*]] = nn.transpose %arg0
// CHECK: fusion.group "pointwise" schedule "pointwise" (%{{.*}} = %[[V]])
// CHECK: nn.exp
// CHECK: nn.reshape
// CHECK: nn.neg
func.func @views(%x: tensor<8x16xf32>) -> tensor<128xf32> {
  %0 = nn.transpose %x {perm = array<i64: 1, 0>} : (tensor<8x16xf32>) -> tensor<16x8xf32>
  %1 = nn.exp %0 : (tensor<16x8xf32>) -> tensor<16x8xf32>
  %2 = nn.reshape %1 {shape = [128]} : (tensor<16x8xf32>) -> tensor<128xf32>
  %3 = nn.neg %2 : (tensor<128xf32>) -> tensor<128xf32>
  return %3 : tensor<128xf32>
}

// -----

// Two chains around a product cannot be one kernel.
// CHECK-LABEL: @around_a_product
// CHECK-NOT: fusion.group
// MISS: pointwise missed at {{.*}}: nn.add stays alone: {{.*}}nn.matmul is not computed element by element
// MISS: pointwise missed at {{.*}}: nn.exp stays alone: it reads nothing but inputs
func.func @around_a_product(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = nn.exp %x : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %m = nn.matmul %0, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = nn.add %m, %0 : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %1 : tensor<64x64xf32>
}

// -----

// An exponential that would be computed for every row stays a kernel of its own.
// CHECK-LABEL: @broadcast_exp
// CHECK: nn.exp
// CHECK-NOT: fusion.group
// MISS: pointwise missed at {{.*}}: nn.add stays alone: nn.exp would be computed 64.0 times for every element
func.func @broadcast_exp(%x: tensor<64x128xf32>, %y: tensor<128xf32>) -> tensor<64x128xf32> {
  %0 = nn.exp %y : (tensor<128xf32>) -> tensor<128xf32>
  %1 = nn.add %x, %0 : (tensor<64x128xf32>, tensor<128xf32>) -> tensor<64x128xf32>
  return %1 : tensor<64x128xf32>
}

// -----

// CHECK-LABEL: @middle_used
// CHECK: %[[R:.*]]:2 = fusion.group "pointwise" schedule "pointwise"
// CHECK-NEXT: %[[E:.*]] = nn.exp
// CHECK-NEXT: %[[M:.*]] = nn.mul %{{.*}}, %[[E]]
// CHECK-NEXT: fusion.yield %[[E]], %[[M]]
func.func @middle_used(%x: tensor<?x64xf16> {nn.dims = ["rows", 64]}, %y: tensor<?x64xf16> {nn.dims = ["rows", 64]}) -> (tensor<?x64xf16>, tensor<?x64xf16>) {
  %0 = nn.exp %x : (tensor<?x64xf16>) -> tensor<?x64xf16>
  %1 = nn.mul %y, %0 : (tensor<?x64xf16>, tensor<?x64xf16>) -> tensor<?x64xf16>
  return %0, %1 : tensor<?x64xf16>, tensor<?x64xf16>
}

// -----

// CHECK-LABEL: @dead_tail
// CHECK-NOT: fusion.group
// CHECK-NOT: nn.mul
// CHECK: return
func.func @dead_tail(%x: tensor<?x64xf16>, %y: tensor<?x64xf16>) -> tensor<?x64xf16> {
  %0 = nn.exp %x : (tensor<?x64xf16>) -> tensor<?x64xf16>
  %1 = nn.mul %0, %y : (tensor<?x64xf16>, tensor<?x64xf16>) -> tensor<?x64xf16>
  return %0 : tensor<?x64xf16>
}

// -----

// What a clone in the next group reads has another shape than the group that makes it: it stays alone.
// CHECK-LABEL: @read_by_a_clone
// CHECK: %[[A:.*]] = nn.cast %arg0
// CHECK: fusion.group "pointwise" schedule "pointwise" (%{{.*}} = %[[A]]) : (tensor<?xi32>) -> tensor<?x16xi64>
// CHECK: fusion.group "pointwise" schedule "pointwise" (%{{.*}} = %[[A]], %{{.*}}) : (tensor<?xi32>, tensor<64x8xf16>) -> tensor<?x16x8xf16>
func.func @read_by_a_clone(%x: tensor<?xi64> {nn.dims = ["n"]}, %t: tensor<64x8xf16>) -> (tensor<?x16xi64>, tensor<?x16x8xf16>) {
  %0 = nn.cast %x : (tensor<?xi64>) -> tensor<?xi32>
  %1 = nn.cast %0 : (tensor<?xi32>) -> tensor<?xi64>
  %2 = nn.reshape %1 {shape = ["n", 1]} : (tensor<?xi64>) -> tensor<?x1xi64>
  %z = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %o = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %3 = nn.iota %z, %o {size = [16]} : (tensor<i64>, tensor<i64>) -> tensor<16xi64>
  %4 = nn.add %2, %3 : (tensor<?x1xi64>, tensor<16xi64>) -> tensor<?x16xi64>
  %5 = nn.gather %t, %4 {axis = 0 : i64} : (tensor<64x8xf16>, tensor<?x16xi64>) -> tensor<?x16x8xf16>
  %6 = nn.neg %5 : (tensor<?x16x8xf16>) -> tensor<?x16x8xf16>
  return %4, %6 : tensor<?x16xi64>, tensor<?x16x8xf16>
}

// -----

// A cache that is extended in place: its readers are a group, the write is a kernel of its own.
// CHECK-LABEL: @behind_a_cache
// CHECK: %[[C:.*]] = nn.cache_write
// CHECK: fusion.group "pointwise" schedule "pointwise" ({{.*}} = %[[C]]
// CHECK-NEXT: nn.cast
// CHECK-NEXT: nn.mul
// CHECK-NEXT: nn.cast
// CHECK-NEXT: fusion.yield
func.func @behind_a_cache(%past: tensor<1x2x8x32xi8> {nn.storage = [1, 2, 64, 32]}, %new: tensor<1x2x1x32xi8>, %rows: tensor<1x1x1x1xi64>, %s: tensor<2x1x32xf32>)
    -> (tensor<1x2x9x32xi8> {nn.alias = 0 : i64}, tensor<1x2x9x32xf16>) {
  %0 = nn.cache_write %past, %new, %rows {axis = 2 : i64, grows = true} : (tensor<1x2x8x32xi8>, tensor<1x2x1x32xi8>, tensor<1x1x1x1xi64>) -> tensor<1x2x9x32xi8>
  %1 = nn.cast %0 : (tensor<1x2x9x32xi8>) -> tensor<1x2x9x32xf32>
  %2 = nn.mul %1, %s : (tensor<1x2x9x32xf32>, tensor<2x1x32xf32>) -> tensor<1x2x9x32xf32>
  %3 = nn.cast %2 : (tensor<1x2x9x32xf32>) -> tensor<1x2x9x32xf16>
  return %0, %3 : tensor<1x2x9x32xi8>, tensor<1x2x9x32xf16>
}
