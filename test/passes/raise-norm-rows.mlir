// Layer norms that tf.keras writes as a batch normalisation of rows.
// RUN: fusion-opt %s --nn-raise-norm --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-raise-norm --split-input-file --remarks-filter-missed=raise 2>&1 | FileCheck %s --check-prefix=MISS

// The weight and the bias follow the batch normalisation.
// CHECK-LABEL: func @keras
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<2x3x8xf32>, %[[W:[a-z0-9]*]]: tensor<8xf32>, %[[B:[a-z0-9]*]]: tensor<8xf32>)
// CHECK-NEXT: %[[N:.*]] = nn.layer_norm %[[X]], %[[W]], %[[B]] {eps = 1.000000e-03 : f32}
// CHECK-NEXT: return %[[N]]
func.func @keras(%x: tensor<2x3x8xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<2x3x8xf32> {
  %size = nn.constant {value = dense<8.0> : tensor<f32>} : () -> tensor<f32>
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f32>} : () -> tensor<f32>
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %rows = nn.reshape %x {shape = [1, 6, 8, 1]} : (tensor<2x3x8xf32>) -> tensor<1x6x8x1xf32>
  %mean = nn.reduce %rows {kind = "mean", axes = array<i64: 0, 2, 3>, keepdims = true} : (tensor<1x6x8x1xf32>) -> tensor<1x6x1x1xf32>
  %centred = nn.sub %rows, %mean : (tensor<1x6x8x1xf32>, tensor<1x6x1x1xf32>) -> tensor<1x6x8x1xf32>
  %sum = nn.reduce %centred {kind = "sum_square", axes = array<i64: 0, 2, 3>, keepdims = false} : (tensor<1x6x8x1xf32>) -> tensor<6xf32>
  %var = nn.div %sum, %size : (tensor<6xf32>, tensor<f32>) -> tensor<6xf32>
  %offset = nn.add %var, %eps : (tensor<6xf32>, tensor<f32>) -> tensor<6xf32>
  %r = nn.rsqrt %offset : (tensor<6xf32>) -> tensor<6xf32>
  %flat = nn.reshape %mean {shape = [6]} : (tensor<1x6x1x1xf32>) -> tensor<6xf32>
  %m = nn.mul %flat, %r : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
  %n = nn.sub %zero, %m : (tensor<f32>, tensor<6xf32>) -> tensor<6xf32>
  %over = nn.reshape %r {shape = [6, 1, 1]} : (tensor<6xf32>) -> tensor<6x1x1xf32>
  %scaled = nn.mul %rows, %over : (tensor<1x6x8x1xf32>, tensor<6x1x1xf32>) -> tensor<1x6x8x1xf32>
  %shift = nn.reshape %n {shape = [6, 1, 1]} : (tensor<6xf32>) -> tensor<6x1x1xf32>
  %shifted = nn.add %scaled, %shift : (tensor<1x6x8x1xf32>, tensor<6x1x1xf32>) -> tensor<1x6x8x1xf32>
  %back = nn.reshape %shifted {shape = [2, 3, 8]} : (tensor<1x6x8x1xf32>) -> tensor<2x3x8xf32>
  %s = nn.mul %back, %w : (tensor<2x3x8xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
  %y = nn.add %s, %b : (tensor<2x3x8xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
  return %y : tensor<2x3x8xf32>
}

// -----

// Sizes known only when the graph runs; neither weight nor bias.
// CHECK-LABEL: func @dynamic
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x?x8xf32>
// CHECK-NEXT: %[[ONES:.*]] = nn.constant {value = dense<1.000000e+00> : tensor<8xf32>}
// CHECK-NEXT: %[[N:.*]] = nn.layer_norm %[[X]], %[[ONES]] {eps = 1.000000e-03 : f32}
// CHECK-NEXT: return %[[N]]
func.func @dynamic(%x: tensor<?x?x8xf32> {nn.dims = ["b", "s", 8]}) -> tensor<?x?x8xf32> {
  %size = nn.constant {value = dense<8.0> : tensor<f32>} : () -> tensor<f32>
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f32>} : () -> tensor<f32>
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %rows = nn.reshape %x {shape = [1, "b*s", 8, 1]} : (tensor<?x?x8xf32>) -> tensor<1x?x8x1xf32>
  %mean = nn.reduce %rows {kind = "mean", axes = array<i64: 0, 2, 3>, keepdims = true} : (tensor<1x?x8x1xf32>) -> tensor<1x?x1x1xf32>
  %centred = nn.sub %rows, %mean : (tensor<1x?x8x1xf32>, tensor<1x?x1x1xf32>) -> tensor<1x?x8x1xf32>
  %sum = nn.reduce %centred {kind = "sum_square", axes = array<i64: 0, 2, 3>, keepdims = false} : (tensor<1x?x8x1xf32>) -> tensor<?xf32>
  %var = nn.div %sum, %size : (tensor<?xf32>, tensor<f32>) -> tensor<?xf32>
  %offset = nn.add %var, %eps : (tensor<?xf32>, tensor<f32>) -> tensor<?xf32>
  %r = nn.rsqrt %offset : (tensor<?xf32>) -> tensor<?xf32>
  %flat = nn.reshape %mean {shape = ["b*s"]} : (tensor<1x?x1x1xf32>) -> tensor<?xf32>
  %m = nn.mul %flat, %r : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %n = nn.sub %zero, %m : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %over = nn.reshape %r {shape = ["b*s", 1, 1]} : (tensor<?xf32>) -> tensor<?x1x1xf32>
  %scaled = nn.mul %rows, %over : (tensor<1x?x8x1xf32>, tensor<?x1x1xf32>) -> tensor<1x?x8x1xf32>
  %shift = nn.reshape %n {shape = ["b*s", 1, 1]} : (tensor<?xf32>) -> tensor<?x1x1xf32>
  %shifted = nn.add %scaled, %shift : (tensor<1x?x8x1xf32>, tensor<?x1x1xf32>) -> tensor<1x?x8x1xf32>
  %back = nn.reshape %shifted {shape = ["b", "s", 8]} : (tensor<1x?x8x1xf32>) -> tensor<?x?x8xf32>
  return %back : tensor<?x?x8xf32>
}

// -----

// The sum is not divided by the size of a row.
// CHECK-LABEL: func @other_size
// CHECK-NOT: nn.layer_norm
// CHECK: nn.rsqrt
func.func @other_size(%x: tensor<2x3x8xf32>) -> tensor<2x3x8xf32> {
  %size = nn.constant {value = dense<7.0> : tensor<f32>} : () -> tensor<f32>
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f32>} : () -> tensor<f32>
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %rows = nn.reshape %x {shape = [1, 6, 8, 1]} : (tensor<2x3x8xf32>) -> tensor<1x6x8x1xf32>
  %mean = nn.reduce %rows {kind = "mean", axes = array<i64: 0, 2, 3>, keepdims = true} : (tensor<1x6x8x1xf32>) -> tensor<1x6x1x1xf32>
  %centred = nn.sub %rows, %mean : (tensor<1x6x8x1xf32>, tensor<1x6x1x1xf32>) -> tensor<1x6x8x1xf32>
  %sum = nn.reduce %centred {kind = "sum_square", axes = array<i64: 0, 2, 3>, keepdims = false} : (tensor<1x6x8x1xf32>) -> tensor<6xf32>
  %var = nn.div %sum, %size : (tensor<6xf32>, tensor<f32>) -> tensor<6xf32>
  %offset = nn.add %var, %eps : (tensor<6xf32>, tensor<f32>) -> tensor<6xf32>
  %r = nn.rsqrt %offset : (tensor<6xf32>) -> tensor<6xf32>
  %flat = nn.reshape %mean {shape = [6]} : (tensor<1x6x1x1xf32>) -> tensor<6xf32>
  %m = nn.mul %flat, %r : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
  %n = nn.sub %zero, %m : (tensor<f32>, tensor<6xf32>) -> tensor<6xf32>
  %over = nn.reshape %r {shape = [6, 1, 1]} : (tensor<6xf32>) -> tensor<6x1x1xf32>
  %scaled = nn.mul %rows, %over : (tensor<1x6x8x1xf32>, tensor<6x1x1xf32>) -> tensor<1x6x8x1xf32>
  %shift = nn.reshape %n {shape = [6, 1, 1]} : (tensor<6xf32>) -> tensor<6x1x1xf32>
  %shifted = nn.add %scaled, %shift : (tensor<1x6x8x1xf32>, tensor<6x1x1xf32>) -> tensor<1x6x8x1xf32>
  %back = nn.reshape %shifted {shape = [2, 3, 8]} : (tensor<1x6x8x1xf32>) -> tensor<2x3x8xf32>
  return %back : tensor<2x3x8xf32>
}

// -----

// Leading dims differ.
// CHECK-LABEL: func @merged
// CHECK: %[[M:.*]] = nn.reshape %{{.*}} {shape = [6, 8]}
// CHECK: %[[N:.*]] = nn.layer_norm %[[M]], %{{.*}} {eps = 1.000000e-03 : f32} : (tensor<6x8xf32>, tensor<8xf32>)
// CHECK-NEXT: return %[[N]]
func.func @merged(%x: tensor<2x3x8xf32>) -> tensor<6x8xf32> {
  %size = nn.constant {value = dense<8.0> : tensor<f32>} : () -> tensor<f32>
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f32>} : () -> tensor<f32>
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %rows = nn.reshape %x {shape = [1, 6, 8, 1]} : (tensor<2x3x8xf32>) -> tensor<1x6x8x1xf32>
  %mean = nn.reduce %rows {kind = "mean", axes = array<i64: 0, 2, 3>, keepdims = true} : (tensor<1x6x8x1xf32>) -> tensor<1x6x1x1xf32>
  %centred = nn.sub %rows, %mean : (tensor<1x6x8x1xf32>, tensor<1x6x1x1xf32>) -> tensor<1x6x8x1xf32>
  %sum = nn.reduce %centred {kind = "sum_square", axes = array<i64: 0, 2, 3>, keepdims = false} : (tensor<1x6x8x1xf32>) -> tensor<6xf32>
  %var = nn.div %sum, %size : (tensor<6xf32>, tensor<f32>) -> tensor<6xf32>
  %offset = nn.add %var, %eps : (tensor<6xf32>, tensor<f32>) -> tensor<6xf32>
  %r = nn.rsqrt %offset : (tensor<6xf32>) -> tensor<6xf32>
  %flat = nn.reshape %mean {shape = [6]} : (tensor<1x6x1x1xf32>) -> tensor<6xf32>
  %m = nn.mul %flat, %r : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
  %n = nn.sub %zero, %m : (tensor<f32>, tensor<6xf32>) -> tensor<6xf32>
  %over = nn.reshape %r {shape = [6, 1, 1]} : (tensor<6xf32>) -> tensor<6x1x1xf32>
  %scaled = nn.mul %rows, %over : (tensor<1x6x8x1xf32>, tensor<6x1x1xf32>) -> tensor<1x6x8x1xf32>
  %shift = nn.reshape %n {shape = [6, 1, 1]} : (tensor<6xf32>) -> tensor<6x1x1xf32>
  %shifted = nn.add %scaled, %shift : (tensor<1x6x8x1xf32>, tensor<6x1x1xf32>) -> tensor<1x6x8x1xf32>
  %back = nn.reshape %shifted {shape = [6, 8]} : (tensor<1x6x8x1xf32>) -> tensor<6x8xf32>
  return %back : tensor<6x8xf32>
}

// -----

// The rows are split.
// CHECK-LABEL: func @other_shape
// CHECK-NOT: nn.layer_norm
// CHECK: nn.rsqrt
// MISS: {{.*}}raise-norm-rows.mlir{{.*}}Missed{{.*}}layer_norm{{.*}}the rows are not shifted by their mean and put into a shape whose last dim is a row
func.func @other_shape(%x: tensor<2x3x8xf32>) -> tensor<12x4xf32> {
  %size = nn.constant {value = dense<8.0> : tensor<f32>} : () -> tensor<f32>
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f32>} : () -> tensor<f32>
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %rows = nn.reshape %x {shape = [1, 6, 8, 1]} : (tensor<2x3x8xf32>) -> tensor<1x6x8x1xf32>
  %mean = nn.reduce %rows {kind = "mean", axes = array<i64: 0, 2, 3>, keepdims = true} : (tensor<1x6x8x1xf32>) -> tensor<1x6x1x1xf32>
  %centred = nn.sub %rows, %mean : (tensor<1x6x8x1xf32>, tensor<1x6x1x1xf32>) -> tensor<1x6x8x1xf32>
  %sum = nn.reduce %centred {kind = "sum_square", axes = array<i64: 0, 2, 3>, keepdims = false} : (tensor<1x6x8x1xf32>) -> tensor<6xf32>
  %var = nn.div %sum, %size : (tensor<6xf32>, tensor<f32>) -> tensor<6xf32>
  %offset = nn.add %var, %eps : (tensor<6xf32>, tensor<f32>) -> tensor<6xf32>
  %r = nn.rsqrt %offset : (tensor<6xf32>) -> tensor<6xf32>
  %flat = nn.reshape %mean {shape = [6]} : (tensor<1x6x1x1xf32>) -> tensor<6xf32>
  %m = nn.mul %flat, %r : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
  %n = nn.sub %zero, %m : (tensor<f32>, tensor<6xf32>) -> tensor<6xf32>
  %over = nn.reshape %r {shape = [6, 1, 1]} : (tensor<6xf32>) -> tensor<6x1x1xf32>
  %scaled = nn.mul %rows, %over : (tensor<1x6x8x1xf32>, tensor<6x1x1xf32>) -> tensor<1x6x8x1xf32>
  %shift = nn.reshape %n {shape = [6, 1, 1]} : (tensor<6xf32>) -> tensor<6x1x1xf32>
  %shifted = nn.add %scaled, %shift : (tensor<1x6x8x1xf32>, tensor<6x1x1xf32>) -> tensor<1x6x8x1xf32>
  %back = nn.reshape %shifted {shape = [12, 4]} : (tensor<1x6x8x1xf32>) -> tensor<12x4xf32>
  return %back : tensor<12x4xf32>
}

// -----

// The shift is not the mean times the inverse deviation.
// CHECK-LABEL: func @other_shift
// CHECK-NOT: nn.layer_norm
// CHECK: nn.rsqrt
// MISS: {{.*}}raise-norm-rows.mlir{{.*}}Missed{{.*}}layer_norm{{.*}}the rows are not shifted by their mean and put into a shape whose last dim is a row
func.func @other_shift(%x: tensor<2x3x8xf32>) -> tensor<2x3x8xf32> {
  %size = nn.constant {value = dense<8.0> : tensor<f32>} : () -> tensor<f32>
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f32>} : () -> tensor<f32>
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %rows = nn.reshape %x {shape = [1, 6, 8, 1]} : (tensor<2x3x8xf32>) -> tensor<1x6x8x1xf32>
  %mean = nn.reduce %rows {kind = "mean", axes = array<i64: 0, 2, 3>, keepdims = true} : (tensor<1x6x8x1xf32>) -> tensor<1x6x1x1xf32>
  %centred = nn.sub %rows, %mean : (tensor<1x6x8x1xf32>, tensor<1x6x1x1xf32>) -> tensor<1x6x8x1xf32>
  %sum = nn.reduce %centred {kind = "sum_square", axes = array<i64: 0, 2, 3>, keepdims = false} : (tensor<1x6x8x1xf32>) -> tensor<6xf32>
  %var = nn.div %sum, %size : (tensor<6xf32>, tensor<f32>) -> tensor<6xf32>
  %offset = nn.add %var, %eps : (tensor<6xf32>, tensor<f32>) -> tensor<6xf32>
  %r = nn.rsqrt %offset : (tensor<6xf32>) -> tensor<6xf32>
  %flat = nn.reshape %mean {shape = [6]} : (tensor<1x6x1x1xf32>) -> tensor<6xf32>
  %m = nn.mul %flat, %r : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
  %n = nn.sub %zero, %flat : (tensor<f32>, tensor<6xf32>) -> tensor<6xf32>
  %over = nn.reshape %r {shape = [6, 1, 1]} : (tensor<6xf32>) -> tensor<6x1x1xf32>
  %scaled = nn.mul %rows, %over : (tensor<1x6x8x1xf32>, tensor<6x1x1xf32>) -> tensor<1x6x8x1xf32>
  %shift = nn.reshape %n {shape = [6, 1, 1]} : (tensor<6xf32>) -> tensor<6x1x1xf32>
  %shifted = nn.add %scaled, %shift : (tensor<1x6x8x1xf32>, tensor<6x1x1xf32>) -> tensor<1x6x8x1xf32>
  %back = nn.reshape %shifted {shape = [2, 3, 8]} : (tensor<1x6x8x1xf32>) -> tensor<2x3x8xf32>
  return %back : tensor<2x3x8xf32>
}

// -----

// Statistics over the rows instead of within them.
// CHECK-LABEL: func @other_axis
// CHECK-NOT: nn.layer_norm
// CHECK: nn.rsqrt
func.func @other_axis(%x: tensor<2x3x8xf32>) -> tensor<2x3x8xf32> {
  %size = nn.constant {value = dense<8.0> : tensor<f32>} : () -> tensor<f32>
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f32>} : () -> tensor<f32>
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %rows = nn.reshape %x {shape = [1, 6, 8, 1]} : (tensor<2x3x8xf32>) -> tensor<1x6x8x1xf32>
  %mean = nn.reduce %rows {kind = "mean", axes = array<i64: 0, 1, 3>, keepdims = true} : (tensor<1x6x8x1xf32>) -> tensor<1x1x8x1xf32>
  %centred = nn.sub %rows, %mean : (tensor<1x6x8x1xf32>, tensor<1x1x8x1xf32>) -> tensor<1x6x8x1xf32>
  %sum = nn.reduce %centred {kind = "sum_square", axes = array<i64: 0, 1, 3>, keepdims = false} : (tensor<1x6x8x1xf32>) -> tensor<8xf32>
  %var = nn.div %sum, %size : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %offset = nn.add %var, %eps : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %r = nn.rsqrt %offset : (tensor<8xf32>) -> tensor<8xf32>
  %flat = nn.reshape %mean {shape = [8]} : (tensor<1x1x8x1xf32>) -> tensor<8xf32>
  %m = nn.mul %flat, %r : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %n = nn.sub %zero, %m : (tensor<f32>, tensor<8xf32>) -> tensor<8xf32>
  %over = nn.reshape %r {shape = [1, 8, 1]} : (tensor<8xf32>) -> tensor<1x8x1xf32>
  %scaled = nn.mul %rows, %over : (tensor<1x6x8x1xf32>, tensor<1x8x1xf32>) -> tensor<1x6x8x1xf32>
  %shift = nn.reshape %n {shape = [1, 8, 1]} : (tensor<8xf32>) -> tensor<1x8x1xf32>
  %shifted = nn.add %scaled, %shift : (tensor<1x6x8x1xf32>, tensor<1x8x1xf32>) -> tensor<1x6x8x1xf32>
  %back = nn.reshape %shifted {shape = [2, 3, 8]} : (tensor<1x6x8x1xf32>) -> tensor<2x3x8xf32>
  return %back : tensor<2x3x8xf32>
}
