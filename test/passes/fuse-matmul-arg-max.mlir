// RUN: fusion-opt %s --fuse-matmul-arg-max --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-matmul-arg-max --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// The head of a decoder: its elements leave, too.
// CHECK-LABEL: @head
// CHECK: %[[G:.*]]:2 = fusion.group "matmul_arg_max" schedule "matmul_arg_max"
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.arg_max
// CHECK-NEXT: fusion.yield
// CHECK: return %[[G]]#0, %[[G]]#1
func.func @head(%x: tensor<?x1x128xbf16>, %w: tensor<1000x128xbf16>) -> (tensor<?x1x1000xbf16>, tensor<?x1xi64>) {
  %0 = nn.matmul %x, %w {transpose_b = true} : (tensor<?x1x128xbf16>, tensor<1000x128xbf16>) -> tensor<?x1x1000xbf16>
  %1 = nn.arg_max %0 {axis = -1 : i64, keepdims = false} : (tensor<?x1x1000xbf16>) -> tensor<?x1xi64>
  return %0, %1 : tensor<?x1x1000xbf16>, tensor<?x1xi64>
}

// -----

// A cap on the logits, and f32.
// CHECK-LABEL: @capped
// CHECK: fusion.group "matmul_arg_max" schedule "matmul_arg_max"
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.cast
// CHECK-NEXT: nn.tanh
// CHECK-NEXT: nn.arg_max
func.func @capped(%x: tensor<?x128xf16>, %w: tensor<128x1000xf16>) -> tensor<?x1xi64> {
  %0 = nn.matmul %x, %w : (tensor<?x128xf16>, tensor<128x1000xf16>) -> tensor<?x1000xf16>
  %1 = nn.cast %0 : (tensor<?x1000xf16>) -> tensor<?x1000xf32>
  %2 = nn.tanh %1 : (tensor<?x1000xf32>) -> tensor<?x1000xf32>
  %3 = nn.arg_max %2 {axis = 1 : i64, keepdims = true} : (tensor<?x1000xf32>) -> tensor<?x1xi64>
  return %3 : tensor<?x1xi64>
}

// -----

// Something else reads the elements before the cast: what would be a result beside them stays apart.
// CHECK-LABEL: @read_before
// CHECK-NOT: "matmul_arg_max"
// MISS: matmul_arg_max missed{{.*}}what it looks at is no result of a matmul, or of scalar ops after one
func.func @read_before(%x: tensor<?x128xf16>, %w: tensor<128x1000xf16>) -> (tensor<?x1000xf16>, tensor<?xi64>) {
  %0 = nn.matmul %x, %w : (tensor<?x128xf16>, tensor<128x1000xf16>) -> tensor<?x1000xf16>
  %1 = nn.cast %0 : (tensor<?x1000xf16>) -> tensor<?x1000xf32>
  %2 = nn.arg_max %1 {axis = 1 : i64, keepdims = false} : (tensor<?x1000xf32>) -> tensor<?xi64>
  return %0, %2 : tensor<?x1000xf16>, tensor<?xi64>
}

// -----

// CHECK-LABEL: @along_rows
// CHECK-NOT: "matmul_arg_max"
// MISS: matmul_arg_max missed{{.*}}matmul_arg_max: nn.arg_max along another dim than the columns of the matmul
func.func @along_rows(%x: tensor<4x128xf16>, %w: tensor<128x1000xf16>) -> tensor<1000xi64> {
  %0 = nn.matmul %x, %w : (tensor<4x128xf16>, tensor<128x1000xf16>) -> tensor<4x1000xf16>
  %1 = nn.arg_max %0 {axis = 0 : i64, keepdims = false} : (tensor<4x1000xf16>) -> tensor<1000xi64>
  return %1 : tensor<1000xi64>
}

// -----

// More rows than gemm_swap_ab takes.
// CHECK-LABEL: @many_rows
// CHECK-NOT: "matmul_arg_max"
// MISS: matmul_arg_max missed{{.*}}matmul_arg_max: one kernel is for 1 to 128 rows: here there are 129
func.func @many_rows(%x: tensor<129x128xf16>, %w: tensor<128x1000xf16>) -> tensor<129xi64> {
  %0 = nn.matmul %x, %w : (tensor<129x128xf16>, tensor<128x1000xf16>) -> tensor<129x1000xf16>
  %1 = nn.arg_max %0 {axis = 1 : i64, keepdims = false} : (tensor<129x1000xf16>) -> tensor<129xi64>
  return %1 : tensor<129xi64>
}

// -----

// CHECK-LABEL: @other_type
// CHECK-NOT: "matmul_arg_max"
// MISS: matmul_arg_max missed{{.*}}matmul_arg_max: neither gemm_swap_ab nor gemm_swap_codes takes the matmul
func.func @other_type(%x: tensor<4x128xf32>, %w: tensor<128x1000xf32>) -> tensor<4xi64> {
  %0 = nn.matmul %x, %w : (tensor<4x128xf32>, tensor<128x1000xf32>) -> tensor<4x1000xf32>
  %1 = nn.arg_max %0 {axis = 1 : i64, keepdims = false} : (tensor<4x1000xf32>) -> tensor<4xi64>
  return %1 : tensor<4xi64>
}

// -----

// Two look at the same elements: one fuses, and the other says that it was in the way.
// CHECK-LABEL: @two
// CHECK: %[[G:.*]]:2 = fusion.group "matmul_arg_max"
// CHECK: nn.arg_max %[[G]]#0
// MISS: matmul_arg_max missed{{.*}}dropped: overlaps matmul_arg_max
func.func @two(%x: tensor<?x128xf16>, %w: tensor<128x1000xf16>) -> (tensor<?xi64>, tensor<?x1xi64>) {
  %0 = nn.matmul %x, %w : (tensor<?x128xf16>, tensor<128x1000xf16>) -> tensor<?x1000xf16>
  %1 = nn.arg_max %0 {axis = 1 : i64, keepdims = false} : (tensor<?x1000xf16>) -> tensor<?xi64>
  %2 = nn.arg_max %0 {axis = 1 : i64, keepdims = true} : (tensor<?x1000xf16>) -> tensor<?x1xi64>
  return %1, %2 : tensor<?xi64>, tensor<?x1xi64>
}

// -----

// One along the rows does not keep one along the columns from fusing.
// CHECK-LABEL: @columns
// CHECK: fusion.group "matmul_arg_max"
// CHECK: nn.arg_max {{.*}}axis = 1
// CHECK: fusion.yield
// MISS: matmul_arg_max missed{{.*}}nn.arg_max along another dim than the columns of the matmul
func.func @columns(%x: tensor<?x128xf16>, %w: tensor<128x1000xf16>) -> (tensor<1000xi64>, tensor<?xi64>) {
  %0 = nn.matmul %x, %w : (tensor<?x128xf16>, tensor<128x1000xf16>) -> tensor<?x1000xf16>
  %1 = nn.arg_max %0 {axis = 0 : i64, keepdims = false} : (tensor<?x1000xf16>) -> tensor<1000xi64>
  %2 = nn.arg_max %0 {axis = 1 : i64, keepdims = false} : (tensor<?x1000xf16>) -> tensor<?xi64>
  return %1, %2 : tensor<1000xi64>, tensor<?xi64>
}
