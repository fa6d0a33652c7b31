// RUN: fusion-opt %s --fuse-l2-norm --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-l2-norm --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// CHECK-LABEL: @heads
// CHECK: fusion.group "l2_norm" schedule "row"
// CHECK-NEXT: nn.reduce
// CHECK-NEXT: nn.sqrt
// CHECK-NEXT: nn.div
// CHECK-NEXT: fusion.yield
func.func @heads(%x: tensor<2x7x4x32xf32>) -> tensor<2x7x4x32xf32> {
  %0 = nn.reduce %x {axes = array<i64: 3>, keepdims = true, kind = "sum_square"} : (tensor<2x7x4x32xf32>) -> tensor<2x7x4x1xf32>
  %1 = nn.sqrt %0 : (tensor<2x7x4x1xf32>) -> tensor<2x7x4x1xf32>
  %2 = nn.div %x, %1 : (tensor<2x7x4x32xf32>, tensor<2x7x4x1xf32>) -> tensor<2x7x4x32xf32>
  return %2 : tensor<2x7x4x32xf32>
}

// -----

// Another tensor is divided.
// CHECK-LABEL: @another
// CHECK-NOT: fusion.group
// MISS: l2_norm missed at {{.*}}
func.func @another(%x: tensor<2x32xf32>, %y: tensor<2x32xf32>) -> tensor<2x32xf32> {
  %0 = nn.reduce %x {axes = array<i64: 1>, keepdims = true, kind = "sum_square"} : (tensor<2x32xf32>) -> tensor<2x1xf32>
  %1 = nn.sqrt %0 : (tensor<2x1xf32>) -> tensor<2x1xf32>
  %2 = nn.div %y, %1 : (tensor<2x32xf32>, tensor<2x1xf32>) -> tensor<2x32xf32>
  return %2 : tensor<2x32xf32>
}
