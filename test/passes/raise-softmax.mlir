// RUN: fusion-opt %s --nn-raise-softmax --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-raise-softmax --split-input-file --remarks-filter-missed=raise 2>&1 | FileCheck %s --check-prefix=MISS
// RUN: fusion-opt %s --nn-raise --split-input-file | FileCheck %s --check-prefix=ATTENTION

// CHECK-LABEL: func @last
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x4x8xf32>
// CHECK-NEXT: %[[Y:.*]] = nn.softmax %[[X]] {axis = 2 : i64}
// CHECK-NEXT: return %[[Y]]
func.func @last(%x: tensor<?x4x8xf32>) -> tensor<?x4x8xf32> {
  %m = nn.reduce %x {kind = "max", axes = array<i64: 2>, keepdims = true} : (tensor<?x4x8xf32>) -> tensor<?x4x1xf32>
  %d = nn.sub %x, %m : (tensor<?x4x8xf32>, tensor<?x4x1xf32>) -> tensor<?x4x8xf32>
  %e = nn.exp %d : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %s = nn.reduce %e {kind = "sum", axes = array<i64: -1>, keepdims = true} : (tensor<?x4x8xf32>) -> tensor<?x4x1xf32>
  %y = nn.div %e, %s : (tensor<?x4x8xf32>, tensor<?x4x1xf32>) -> tensor<?x4x8xf32>
  return %y : tensor<?x4x8xf32>
}

// -----

// Of another axis, which reductions drop; the reciprocal of the sum; exponents that are read elsewhere too.
// CHECK-LABEL: func @middle
// CHECK-DAG: nn.softmax %{{.*}} {axis = 1 : i64}
// CHECK-DAG: nn.exp
// CHECK-NOT: nn.reciprocal
func.func @middle(%x: tensor<2x4x8xf32>) -> (tensor<2x4x8xf32>, tensor<2x4x8xf32>) {
  %m = nn.reduce %x {kind = "max", axes = array<i64: 1>, keepdims = false} : (tensor<2x4x8xf32>) -> tensor<2x8xf32>
  %m1 = nn.reshape %m {shape = [2, 1, 8]} : (tensor<2x8xf32>) -> tensor<2x1x8xf32>
  %d = nn.sub %x, %m1 : (tensor<2x4x8xf32>, tensor<2x1x8xf32>) -> tensor<2x4x8xf32>
  %e = nn.exp %d : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %s = nn.reduce %e {kind = "sum", axes = array<i64: 1>, keepdims = false} : (tensor<2x4x8xf32>) -> tensor<2x8xf32>
  %s1 = nn.reshape %s {shape = [2, 1, 8]} : (tensor<2x8xf32>) -> tensor<2x1x8xf32>
  %r = nn.reciprocal %s1 : (tensor<2x1x8xf32>) -> tensor<2x1x8xf32>
  %y = nn.mul %r, %e : (tensor<2x1x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %y, %e : tensor<2x4x8xf32>, tensor<2x4x8xf32>
}

// -----

// CHECK-LABEL: func @logarithm
// CHECK-NEXT: nn.softmax %{{.*}} {axis = 1 : i64, log = true}
// CHECK-NEXT: return
func.func @logarithm(%x: tensor<3x16xf32>) -> tensor<3x16xf32> {
  %m = nn.reduce %x {kind = "max", axes = array<i64: 1>, keepdims = true} : (tensor<3x16xf32>) -> tensor<3x1xf32>
  %d = nn.sub %x, %m : (tensor<3x16xf32>, tensor<3x1xf32>) -> tensor<3x16xf32>
  %e = nn.exp %d : (tensor<3x16xf32>) -> tensor<3x16xf32>
  %s = nn.reduce %e {kind = "sum", axes = array<i64: 1>, keepdims = true} : (tensor<3x16xf32>) -> tensor<3x1xf32>
  %l = nn.log %s : (tensor<3x1xf32>) -> tensor<3x1xf32>
  %y = nn.sub %d, %l : (tensor<3x16xf32>, tensor<3x1xf32>) -> tensor<3x16xf32>
  return %y : tensor<3x16xf32>
}

// -----

// Without the maximum, or with one of another axis, exp may overflow where the softmax does not.
// CHECK-LABEL: func @not_lessened
// CHECK-NOT: nn.softmax
// CHECK: return
// MISS: {{.*}}raise-softmax.mlir{{.*}}Missed{{.*}}the argument of nn.exp is not x - max(x) along the axis of the sum
func.func @not_lessened(%x: tensor<3x16xf32>) -> tensor<3x16xf32> {
  %m = nn.reduce %x {kind = "max", axes = array<i64: 0>, keepdims = true} : (tensor<3x16xf32>) -> tensor<1x16xf32>
  %d = nn.sub %x, %m : (tensor<3x16xf32>, tensor<1x16xf32>) -> tensor<3x16xf32>
  %e = nn.exp %d : (tensor<3x16xf32>) -> tensor<3x16xf32>
  %s = nn.reduce %e {kind = "sum", axes = array<i64: 1>, keepdims = true} : (tensor<3x16xf32>) -> tensor<3x1xf32>
  %y = nn.div %e, %s : (tensor<3x16xf32>, tensor<3x1xf32>) -> tensor<3x16xf32>
  return %y : tensor<3x16xf32>
}

// -----

// Each op rounds to f16.
// CHECK-LABEL: func @narrow
// CHECK-NOT: nn.softmax
// CHECK: return
// MISS: {{.*}}raise-softmax.mlir{{.*}}Missed{{.*}}written out in f16, where each op rounds: nn.softmax rounds once
func.func @narrow(%x: tensor<3x16xf16>) -> tensor<3x16xf16> {
  %m = nn.reduce %x {kind = "max", axes = array<i64: 1>, keepdims = true} : (tensor<3x16xf16>) -> tensor<3x1xf16>
  %d = nn.sub %x, %m : (tensor<3x16xf16>, tensor<3x1xf16>) -> tensor<3x16xf16>
  %e = nn.exp %d : (tensor<3x16xf16>) -> tensor<3x16xf16>
  %s = nn.reduce %e {kind = "sum", axes = array<i64: 1>, keepdims = true} : (tensor<3x16xf16>) -> tensor<3x1xf16>
  %y = nn.div %e, %s : (tensor<3x16xf16>, tensor<3x1xf16>) -> tensor<3x16xf16>
  return %y : tensor<3x16xf16>
}

// -----

// The sum of other exponents, along two axes, of what is divided itself.
// CHECK-LABEL: func @others
// CHECK-NOT: nn.softmax
// CHECK: return
func.func @others(%x: tensor<3x16xf32>, %z: tensor<3x16xf32>) -> (tensor<3x16xf32>, tensor<3x16xf32>, tensor<3x16xf32>) {
  %e = nn.exp %x : (tensor<3x16xf32>) -> tensor<3x16xf32>
  %f = nn.exp %z : (tensor<3x16xf32>) -> tensor<3x16xf32>
  %s = nn.reduce %f {kind = "sum", axes = array<i64: 1>, keepdims = true} : (tensor<3x16xf32>) -> tensor<3x1xf32>
  %a = nn.div %e, %s : (tensor<3x16xf32>, tensor<3x1xf32>) -> tensor<3x16xf32>
  %t = nn.reduce %e {kind = "sum", axes = array<i64: 0, 1>, keepdims = true} : (tensor<3x16xf32>) -> tensor<1x1xf32>
  %b = nn.div %e, %t : (tensor<3x16xf32>, tensor<1x1xf32>) -> tensor<3x16xf32>
  %u = nn.reduce %x {kind = "sum", axes = array<i64: 1>, keepdims = true} : (tensor<3x16xf32>) -> tensor<3x1xf32>
  %c = nn.div %x, %u : (tensor<3x16xf32>, tensor<3x1xf32>) -> tensor<3x16xf32>
  return %a, %b, %c : tensor<3x16xf32>, tensor<3x16xf32>, tensor<3x16xf32>
}

// -----

// ATTENTION-LABEL: func @attention
// ATTENTION: nn.attention
// ATTENTION-NOT: nn.exp
func.func @attention(%q: tensor<1x2x5x16xf32>, %k: tensor<1x2x7x16xf32>, %v: tensor<1x2x7x16xf32>) -> tensor<1x2x5x16xf32> {
  %x = nn.matmul %q, %k {transpose_b = true} : (tensor<1x2x5x16xf32>, tensor<1x2x7x16xf32>) -> tensor<1x2x5x7xf32>
  %m = nn.reduce %x {kind = "max", axes = array<i64: 3>, keepdims = true} : (tensor<1x2x5x7xf32>) -> tensor<1x2x5x1xf32>
  %d = nn.sub %x, %m : (tensor<1x2x5x7xf32>, tensor<1x2x5x1xf32>) -> tensor<1x2x5x7xf32>
  %e = nn.exp %d : (tensor<1x2x5x7xf32>) -> tensor<1x2x5x7xf32>
  %s = nn.reduce %e {kind = "sum", axes = array<i64: 3>, keepdims = true} : (tensor<1x2x5x7xf32>) -> tensor<1x2x5x1xf32>
  %p = nn.div %e, %s : (tensor<1x2x5x7xf32>, tensor<1x2x5x1xf32>) -> tensor<1x2x5x7xf32>
  %y = nn.matmul %p, %v : (tensor<1x2x5x7xf32>, tensor<1x2x7x16xf32>) -> tensor<1x2x5x16xf32>
  return %y : tensor<1x2x5x16xf32>
}
