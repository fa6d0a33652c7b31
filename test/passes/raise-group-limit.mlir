// RUN: fusion-opt %s --nn-raise-group-limit --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-raise-group-limit --split-input-file --remarks-filter-missed=raise 2>&1 | FileCheck %s --check-prefix=MISS
// RUN: fusion-opt %S/../import/contrib/test_limited_router_two/model.onnx --fuse 2>/dev/null | FileCheck %s --check-prefix=WHOLE
// RUN: fusion-opt %S/../import/contrib/test_limited_router_one_hot/model.onnx --fuse 2>/dev/null | FileCheck %s --check-prefix=WHOLE
// RUN: fusion-opt %S/../import/contrib/test_limited_router_largest/model.onnx --fuse 2>/dev/null | FileCheck %s --check-prefix=WHOLE
// RUN: fusion-opt %S/../import/contrib/test_limited_router_static/model.onnx --fuse 2>/dev/null | FileCheck %s --check-prefix=WHOLE

// Whole graphs as exporters write them are one kernel.
// WHOLE: fusion.group "router"
// WHOLE: nn.matmul
// WHOLE: nn.limit_groups
// WHOLE: fusion.yield
// WHOLE-NOT: nn.
// WHOLE: return

// DeepSeek-V3 by torch's exporter: the chosen groups are compared with all, and the mask spreads.
// CHECK-LABEL: @scattered
// CHECK: %[[Y:.*]] = nn.limit_groups %arg0 {groups = 8 : i64, kept = 4 : i64, other = 0xFF800000 : f32, summed = 2 : i64}
// CHECK-NEXT: return %[[Y]]
func.func @scattered(%x: tensor<?x32xf32> {nn.dims = ["rows", 32]}) -> tensor<?x32xf32> {
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %one = nn.constant {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %least = nn.constant {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
  %all = nn.constant {value = dense<[[[0, 1, 2, 3, 4, 5, 6, 7]]]> : tensor<1x1x8xi64>} : () -> tensor<1x1x8xi64>
  %g = nn.reshape %x {shape = ["rows", 8, 4]} : (tensor<?x32xf32>) -> tensor<?x8x4xf32>
  %b = nn.top_k %g {axis = 2 : i64, k = [2]} : (tensor<?x8x4xf32>) -> tensor<?x8x2xi64>
  %v = nn.gather_elements %g, %b {axis = 2 : i64} : (tensor<?x8x4xf32>, tensor<?x8x2xi64>) -> tensor<?x8x2xf32>
  %s = nn.reduce %v {axes = array<i64: 2>, keepdims = false, kind = "sum"} : (tensor<?x8x2xf32>) -> tensor<?x8xf32>
  %k = nn.top_k %s {axis = 1 : i64, k = [4]} : (tensor<?x8xf32>) -> tensor<?x4xi64>
  %c = nn.reshape %k {shape = ["rows", 4, 1]} : (tensor<?x4xi64>) -> tensor<?x4x1xi64>
  %e = nn.equal %c, %all : (tensor<?x4x1xi64>, tensor<1x1x8xi64>) -> tensor<?x4x8xi1>
  %f = nn.cast %e : (tensor<?x4x8xi1>) -> tensor<?x4x8xf32>
  %m = nn.reduce %f {axes = array<i64: 1>, keepdims = false, kind = "max"} : (tensor<?x4x8xf32>) -> tensor<?x8xf32>
  %h = nn.greater %m, %zero : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xi1>
  %w = nn.where %h, %one, %zero : (tensor<?x8xi1>, tensor<f32>, tensor<f32>) -> tensor<?x8xf32>
  %p = nn.reshape %w {shape = ["rows", 8, 1]} : (tensor<?x8xf32>) -> tensor<?x8x1xf32>
  %q = nn.expand %p {shape = ["rows", 8, 4]} : (tensor<?x8x1xf32>) -> tensor<?x8x4xf32>
  %r = nn.reshape %q {shape = ["rows", 32]} : (tensor<?x8x4xf32>) -> tensor<?x32xf32>
  %t = nn.cast %r : (tensor<?x32xf32>) -> tensor<?x32xi1>
  %y = nn.where %t, %x, %least : (tensor<?x32xi1>, tensor<?x32xf32>, tensor<f32>) -> tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}

// -----

// One group is kept, chosen by its best element; the mask says which groups are others.
// CHECK-LABEL: @one_kept
// CHECK: nn.limit_groups %arg0 {groups = 4 : i64, kept = 1 : i64, other = 0.000000e+00 : f32, summed = 1 : i64}
// CHECK-NOT: nn.where
func.func @one_kept(%x: tensor<5x12xf32>) -> tensor<5x12xf32> {
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %all = nn.constant {value = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : () -> tensor<1x4xi64>
  %g = nn.reshape %x {shape = [5, 4, 3]} : (tensor<5x12xf32>) -> tensor<5x4x3xf32>
  %s = nn.reduce %g {axes = array<i64: 2>, keepdims = false, kind = "max"} : (tensor<5x4x3xf32>) -> tensor<5x4xf32>
  %k = nn.top_k %s {axis = 1 : i64, k = [1]} : (tensor<5x4xf32>) -> tensor<5x1xi64>
  %e = nn.equal %k, %all : (tensor<5x1xi64>, tensor<1x4xi64>) -> tensor<5x4xi1>
  %n = nn.not %e : (tensor<5x4xi1>) -> tensor<5x4xi1>
  %p = nn.reshape %n {shape = [5, 4, 1]} : (tensor<5x4xi1>) -> tensor<5x4x1xi1>
  %q = nn.expand %p {shape = [5, 4, 3]} : (tensor<5x4x1xi1>) -> tensor<5x4x3xi1>
  %r = nn.reshape %q {shape = [5, 12]} : (tensor<5x4x3xi1>) -> tensor<5x12xi1>
  %y = nn.where %r, %zero, %x : (tensor<5x12xi1>, tensor<f32>, tensor<5x12xf32>) -> tensor<5x12xf32>
  return %y : tensor<5x12xf32>
}

// -----

// The elements lie in their groups, and the mask has one entry for each.
// CHECK-LABEL: @in_groups
// CHECK: %[[FLAT:.*]] = nn.reshape %arg0 {shape = [5, 12]}
// CHECK: %[[Y:.*]] = nn.limit_groups %[[FLAT]] {groups = 4 : i64, kept = 2 : i64, other = -1.000000e+00 : f32, summed = 1 : i64}
// CHECK: nn.reshape %[[Y]] {shape = [5, 4, 3]}
func.func @in_groups(%g: tensor<5x4x3xf32>) -> tensor<5x4x3xf32> {
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %other = nn.constant {value = dense<-1.0> : tensor<f32>} : () -> tensor<f32>
  %all = nn.constant {value = dense<[[[0, 1, 2, 3]]]> : tensor<1x1x4xi64>} : () -> tensor<1x1x4xi64>
  %s = nn.reduce %g {axes = array<i64: -1>, keepdims = false, kind = "max"} : (tensor<5x4x3xf32>) -> tensor<5x4xf32>
  %k = nn.top_k %s {axis = -1 : i64, k = [2]} : (tensor<5x4xf32>) -> tensor<5x2xi64>
  %c = nn.reshape %k {shape = [5, 2, 1]} : (tensor<5x2xi64>) -> tensor<5x2x1xi64>
  %e = nn.equal %c, %all : (tensor<5x2x1xi64>, tensor<1x1x4xi64>) -> tensor<5x2x4xi1>
  %f = nn.cast %e : (tensor<5x2x4xi1>) -> tensor<5x2x4xi64>
  %m = nn.reduce %f {axes = array<i64: 1>, keepdims = false, kind = "sum"} : (tensor<5x2x4xi64>) -> tensor<5x4xi64>
  %p = nn.reshape %m {shape = [5, 4, 1]} : (tensor<5x4xi64>) -> tensor<5x4x1xi64>
  %h = nn.cast %p : (tensor<5x4x1xi64>) -> tensor<5x4x1xi1>
  %y = nn.where %h, %g, %other : (tensor<5x4x1xi1>, tensor<5x4x3xf32>, tensor<f32>) -> tensor<5x4x3xf32>
  return %y : tensor<5x4x3xf32>
}

// -----

// All of the groups are kept: nothing is limited.
// CHECK-LABEL: @all_kept
// CHECK-NOT: nn.where
// CHECK: return %arg0
func.func @all_kept(%x: tensor<5x16xf32>) -> tensor<5x16xf32> {
  %least = nn.constant {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
  %all = nn.constant {value = dense<0> : tensor<1x1xi64>} : () -> tensor<1x1xi64>
  %g = nn.reshape %x {shape = [5, 1, 16]} : (tensor<5x16xf32>) -> tensor<5x1x16xf32>
  %s = nn.reduce %g {axes = array<i64: 2>, keepdims = false, kind = "max"} : (tensor<5x1x16xf32>) -> tensor<5x1xf32>
  %k = nn.top_k %s {axis = 1 : i64, k = [1]} : (tensor<5x1xf32>) -> tensor<5x1xi64>
  %e = nn.equal %k, %all : (tensor<5x1xi64>, tensor<1x1xi64>) -> tensor<5x1xi1>
  %p = nn.reshape %e {shape = [5, 1, 1]} : (tensor<5x1xi1>) -> tensor<5x1x1xi1>
  %q = nn.expand %p {shape = [5, 1, 16]} : (tensor<5x1x1xi1>) -> tensor<5x1x16xi1>
  %r = nn.reshape %q {shape = [5, 16]} : (tensor<5x1x16xi1>) -> tensor<5x16xi1>
  %y = nn.where %r, %x, %least : (tensor<5x16xi1>, tensor<5x16xf32>, tensor<f32>) -> tensor<5x16xf32>
  return %y : tensor<5x16xf32>
}

// -----

// Chosen by the mean; by other elements; elements of bf16; nothing that is the same everywhere for the others.
// CHECK-LABEL: @misses
// CHECK-NOT: nn.limit_groups
// MISS: limit_groups{{.*}}the groups are not chosen by the sum or the maximum of their largest elements
// MISS: limit_groups{{.*}}the groups are chosen by other elements than those that they keep
// MISS: limit_groups{{.*}}elements of bf16: it is of f32
// MISS: limit_groups{{.*}}the others have no number
func.func @misses(%x: tensor<5x12xf32>, %z: tensor<5x12xf32>, %b: tensor<5x12xbf16>)
    -> (tensor<5x12xf32>, tensor<5x12xf32>, tensor<5x12xbf16>, tensor<5x12xf32>) {
  %least = nn.constant {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
  %small = nn.constant {value = dense<-1.0> : tensor<bf16>} : () -> tensor<bf16>
  %all = nn.constant {value = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : () -> tensor<1x4xi64>
  %g = nn.reshape %x {shape = [5, 4, 3]} : (tensor<5x12xf32>) -> tensor<5x4x3xf32>
  %s0 = nn.reduce %g {axes = array<i64: 2>, keepdims = false, kind = "mean"} : (tensor<5x4x3xf32>) -> tensor<5x4xf32>
  %k0 = nn.top_k %s0 {axis = 1 : i64, k = [1]} : (tensor<5x4xf32>) -> tensor<5x1xi64>
  %e0 = nn.equal %k0, %all : (tensor<5x1xi64>, tensor<1x4xi64>) -> tensor<5x4xi1>
  %p0 = nn.reshape %e0 {shape = [5, 4, 1]} : (tensor<5x4xi1>) -> tensor<5x4x1xi1>
  %q0 = nn.expand %p0 {shape = [5, 4, 3]} : (tensor<5x4x1xi1>) -> tensor<5x4x3xi1>
  %r0 = nn.reshape %q0 {shape = [5, 12]} : (tensor<5x4x3xi1>) -> tensor<5x12xi1>
  %y0 = nn.where %r0, %x, %least : (tensor<5x12xi1>, tensor<5x12xf32>, tensor<f32>) -> tensor<5x12xf32>
  %s1 = nn.reduce %g {axes = array<i64: 2>, keepdims = false, kind = "max"} : (tensor<5x4x3xf32>) -> tensor<5x4xf32>
  %k1 = nn.top_k %s1 {axis = 1 : i64, k = [1]} : (tensor<5x4xf32>) -> tensor<5x1xi64>
  %e1 = nn.equal %k1, %all : (tensor<5x1xi64>, tensor<1x4xi64>) -> tensor<5x4xi1>
  %p1 = nn.reshape %e1 {shape = [5, 4, 1]} : (tensor<5x4xi1>) -> tensor<5x4x1xi1>
  %q1 = nn.expand %p1 {shape = [5, 4, 3]} : (tensor<5x4x1xi1>) -> tensor<5x4x3xi1>
  %r1 = nn.reshape %q1 {shape = [5, 12]} : (tensor<5x4x3xi1>) -> tensor<5x12xi1>
  %y1 = nn.where %r1, %z, %least : (tensor<5x12xi1>, tensor<5x12xf32>, tensor<f32>) -> tensor<5x12xf32>
  %y2 = nn.where %r1, %b, %small : (tensor<5x12xi1>, tensor<5x12xbf16>, tensor<bf16>) -> tensor<5x12xbf16>
  %y3 = nn.where %r1, %x, %z : (tensor<5x12xi1>, tensor<5x12xf32>, tensor<5x12xf32>) -> tensor<5x12xf32>
  return %y0, %y1, %y2, %y3 : tensor<5x12xf32>, tensor<5x12xf32>, tensor<5x12xbf16>, tensor<5x12xf32>
}

// -----

// No masks of chosen groups: elements spread the other way round, and places compared with other numbers.
// CHECK-LABEL: @no_groups
// CHECK-NOT: nn.limit_groups
func.func @no_groups(%x: tensor<5x12xf32>) -> (tensor<5x12xf32>, tensor<5x12xf32>) {
  %least = nn.constant {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
  %all = nn.constant {value = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : () -> tensor<1x4xi64>
  %odd = nn.constant {value = dense<[[0, 1, 3, 2]]> : tensor<1x4xi64>} : () -> tensor<1x4xi64>
  %g = nn.reshape %x {shape = [5, 4, 3]} : (tensor<5x12xf32>) -> tensor<5x4x3xf32>
  %s = nn.reduce %g {axes = array<i64: 2>, keepdims = false, kind = "max"} : (tensor<5x4x3xf32>) -> tensor<5x4xf32>
  %k = nn.top_k %s {axis = 1 : i64, k = [1]} : (tensor<5x4xf32>) -> tensor<5x1xi64>
  %e = nn.equal %k, %all : (tensor<5x1xi64>, tensor<1x4xi64>) -> tensor<5x4xi1>
  %p = nn.reshape %e {shape = [5, 1, 4]} : (tensor<5x4xi1>) -> tensor<5x1x4xi1>
  %q = nn.expand %p {shape = [5, 3, 4]} : (tensor<5x1x4xi1>) -> tensor<5x3x4xi1>
  %r = nn.reshape %q {shape = [5, 12]} : (tensor<5x3x4xi1>) -> tensor<5x12xi1>
  %y = nn.where %r, %x, %least : (tensor<5x12xi1>, tensor<5x12xf32>, tensor<f32>) -> tensor<5x12xf32>
  %e1 = nn.equal %k, %odd : (tensor<5x1xi64>, tensor<1x4xi64>) -> tensor<5x4xi1>
  %p1 = nn.reshape %e1 {shape = [5, 4, 1]} : (tensor<5x4xi1>) -> tensor<5x4x1xi1>
  %q1 = nn.expand %p1 {shape = [5, 4, 3]} : (tensor<5x4x1xi1>) -> tensor<5x4x3xi1>
  %r1 = nn.reshape %q1 {shape = [5, 12]} : (tensor<5x4x3xi1>) -> tensor<5x12xi1>
  %y1 = nn.where %r1, %x, %least : (tensor<5x12xi1>, tensor<5x12xf32>, tensor<f32>) -> tensor<5x12xf32>
  return %y, %y1 : tensor<5x12xf32>, tensor<5x12xf32>
}
