// Norms in which the inverse deviation meets the weight before the value.
// RUN: fusion-opt %s --nn-raise-norm --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-raise-norm --split-input-file --remarks-filter-missed=raise 2>&1 | FileCheck %s --check-prefix=MISS

// tf.nn.batch_normalization: the weight meets the inverse deviation first, the bias the mean.
// CHECK-LABEL: func @batch_normalization
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<2x3x8xf32>, %[[W:[a-z0-9]*]]: tensor<8xf32>, %[[B:[a-z0-9]*]]: tensor<8xf32>)
// CHECK-NEXT: %[[N:.*]] = nn.layer_norm %[[X]], %[[W]], %[[B]] {eps = 1.000000e-03 : f32}
// CHECK-NEXT: return %[[N]]
func.func @batch_normalization(%x: tensor<2x3x8xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<2x3x8xf32> {
  %mean = nn.reduce %x {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %centred = nn.sub %x, %mean : (tensor<2x3x8xf32>, tensor<2x3x1xf32>) -> tensor<2x3x8xf32>
  %square = nn.square %centred : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %var = nn.reduce %square {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f32>} : () -> tensor<f32>
  %sum = nn.add %var, %eps : (tensor<2x3x1xf32>, tensor<f32>) -> tensor<2x3x1xf32>
  %r = nn.rsqrt %sum : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
  %g = nn.mul %r, %w : (tensor<2x3x1xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
  %m = nn.mul %mean, %g : (tensor<2x3x1xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %shift = nn.sub %b, %m : (tensor<8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %s = nn.mul %x, %g : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %y = nn.add %s, %shift : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  return %y : tensor<2x3x8xf32>
}

// -----

// Keras 3: the mean is negated, weight and bias have the rank of x.
// CHECK-LABEL: func @keras
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<2x3x8xf32>
// CHECK: %[[N:.*]] = nn.layer_norm %[[X]], %{{.*}}, %{{.*}} {eps = 1.000000e-03 : f32} : (tensor<2x3x8xf32>, tensor<8xf32>, tensor<8xf32>)
// CHECK-NEXT: return %[[N]]
func.func @keras(%x: tensor<2x3x8xf32>, %w: tensor<1x1x8xf32>, %b: tensor<1x1x8xf32>) -> tensor<2x3x8xf32> {
  %mean = nn.reduce %x {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %centred = nn.sub %x, %mean : (tensor<2x3x8xf32>, tensor<2x3x1xf32>) -> tensor<2x3x8xf32>
  %square = nn.square %centred : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %var = nn.reduce %square {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f32>} : () -> tensor<f32>
  %sum = nn.add %var, %eps : (tensor<2x3x1xf32>, tensor<f32>) -> tensor<2x3x1xf32>
  %r = nn.rsqrt %sum : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
  %n = nn.neg %mean : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
  %g = nn.mul %w, %r : (tensor<1x1x8xf32>, tensor<2x3x1xf32>) -> tensor<2x3x8xf32>
  %s = nn.mul %x, %g : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %m = nn.mul %n, %g : (tensor<2x3x1xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %shift = nn.add %m, %b : (tensor<2x3x8xf32>, tensor<1x1x8xf32>) -> tensor<2x3x8xf32>
  %y = nn.add %s, %shift : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  return %y : tensor<2x3x8xf32>
}

// -----

// The bias comes last, and the shift is subtracted.
// CHECK-LABEL: func @bias_last
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<2x3x8xf32>, %[[W:[a-z0-9]*]]: tensor<8xf32>, %[[B:[a-z0-9]*]]: tensor<8xf32>)
// CHECK-NEXT: %[[N:.*]] = nn.layer_norm %[[X]], %[[W]], %[[B]] {eps = 1.000000e-03 : f32}
// CHECK-NEXT: return %[[N]]
func.func @bias_last(%x: tensor<2x3x8xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<2x3x8xf32> {
  %mean = nn.reduce %x {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %centred = nn.sub %x, %mean : (tensor<2x3x8xf32>, tensor<2x3x1xf32>) -> tensor<2x3x8xf32>
  %square = nn.square %centred : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %var = nn.reduce %square {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f32>} : () -> tensor<f32>
  %sum = nn.add %var, %eps : (tensor<2x3x1xf32>, tensor<f32>) -> tensor<2x3x1xf32>
  %r = nn.rsqrt %sum : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
  %g = nn.mul %r, %w : (tensor<2x3x1xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
  %s = nn.mul %x, %g : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %m = nn.mul %mean, %g : (tensor<2x3x1xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %d = nn.sub %s, %m : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %y = nn.add %d, %b : (tensor<2x3x8xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
  return %y : tensor<2x3x8xf32>
}

// -----

// (x - mean) * (r * weight) + bias
// CHECK-LABEL: func @centred
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<2x3x8xf32>, %[[W:[a-z0-9]*]]: tensor<8xf32>, %[[B:[a-z0-9]*]]: tensor<8xf32>)
// CHECK-NEXT: %[[N:.*]] = nn.layer_norm %[[X]], %[[W]], %[[B]] {eps = 1.000000e-03 : f32}
// CHECK-NEXT: return %[[N]]
func.func @centred(%x: tensor<2x3x8xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<2x3x8xf32> {
  %mean = nn.reduce %x {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %centred = nn.sub %x, %mean : (tensor<2x3x8xf32>, tensor<2x3x1xf32>) -> tensor<2x3x8xf32>
  %square = nn.square %centred : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %var = nn.reduce %square {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f32>} : () -> tensor<f32>
  %sum = nn.add %var, %eps : (tensor<2x3x1xf32>, tensor<f32>) -> tensor<2x3x1xf32>
  %r = nn.rsqrt %sum : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
  %g = nn.mul %r, %w : (tensor<2x3x1xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
  %s = nn.mul %g, %centred : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %y = nn.add %s, %b : (tensor<2x3x8xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
  return %y : tensor<2x3x8xf32>
}

// -----

// Without a weight: batch_normalization(scale = None).
// CHECK-LABEL: func @no_weight
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<2x3x8xf32>, %[[W:[a-z0-9]*]]: tensor<8xf32>, %[[B:[a-z0-9]*]]: tensor<8xf32>)
// CHECK-NEXT: %[[ONES:.*]] = nn.constant {value = dense<1.000000e+00> : tensor<8xf32>}
// CHECK-NEXT: %[[N:.*]] = nn.layer_norm %[[X]], %[[ONES]], %[[B]] {eps = 1.000000e-03 : f32}
// CHECK-NEXT: return %[[N]]
func.func @no_weight(%x: tensor<2x3x8xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<2x3x8xf32> {
  %mean = nn.reduce %x {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %centred = nn.sub %x, %mean : (tensor<2x3x8xf32>, tensor<2x3x1xf32>) -> tensor<2x3x8xf32>
  %square = nn.square %centred : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %var = nn.reduce %square {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f32>} : () -> tensor<f32>
  %sum = nn.add %var, %eps : (tensor<2x3x1xf32>, tensor<f32>) -> tensor<2x3x1xf32>
  %r = nn.rsqrt %sum : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
  %m = nn.mul %mean, %r : (tensor<2x3x1xf32>, tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
  %shift = nn.sub %b, %m : (tensor<8xf32>, tensor<2x3x1xf32>) -> tensor<2x3x8xf32>
  %s = nn.mul %x, %r : (tensor<2x3x8xf32>, tensor<2x3x1xf32>) -> tensor<2x3x8xf32>
  %y = nn.add %s, %shift : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  return %y : tensor<2x3x8xf32>
}

// -----

// x * (r * weight)
// CHECK-LABEL: func @rms
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<2x3x8xf32>, %[[W:[a-z0-9]*]]: tensor<8xf32>)
// CHECK-NEXT: %[[N:.*]] = nn.rms_norm %[[X]], %[[W]] {eps = 1.000000e-03 : f32}
// CHECK-NEXT: return %[[N]]
func.func @rms(%x: tensor<2x3x8xf32>, %w: tensor<8xf32>) -> tensor<2x3x8xf32> {
  %square = nn.square %x : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %var = nn.reduce %square {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f32>} : () -> tensor<f32>
  %sum = nn.add %var, %eps : (tensor<2x3x1xf32>, tensor<f32>) -> tensor<2x3x1xf32>
  %r = nn.rsqrt %sum : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
  %g = nn.mul %r, %w : (tensor<2x3x1xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
  %y = nn.mul %x, %g : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  return %y : tensor<2x3x8xf32>
}

// -----

// x * gain of a centred statistic is no norm without the mean.
// CHECK-LABEL: func @no_shift
// CHECK-NOT: nn.layer_norm
// CHECK: nn.rsqrt
// MISS: {{.*}}raise-norm-gain.mlir{{.*}}Missed{{.*}}layer_norm{{.*}}the inverse deviation does not scale the value that the statistics are of
func.func @no_shift(%x: tensor<2x3x8xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<2x3x8xf32> {
  %mean = nn.reduce %x {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %centred = nn.sub %x, %mean : (tensor<2x3x8xf32>, tensor<2x3x1xf32>) -> tensor<2x3x8xf32>
  %square = nn.square %centred : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %var = nn.reduce %square {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f32>} : () -> tensor<f32>
  %sum = nn.add %var, %eps : (tensor<2x3x1xf32>, tensor<f32>) -> tensor<2x3x1xf32>
  %r = nn.rsqrt %sum : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
  %g = nn.mul %r, %w : (tensor<2x3x1xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
  %s = nn.mul %x, %g : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %y = nn.add %s, %b : (tensor<2x3x8xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
  return %y : tensor<2x3x8xf32>
}

// -----

// The mean is added instead of subtracted.
// CHECK-LABEL: func @added_mean
// CHECK-NOT: nn.layer_norm
// CHECK: nn.rsqrt
// MISS: {{.*}}raise-norm-gain.mlir{{.*}}Missed{{.*}}layer_norm{{.*}}the inverse deviation does not scale the value that the statistics are of
func.func @added_mean(%x: tensor<2x3x8xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<2x3x8xf32> {
  %mean = nn.reduce %x {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %centred = nn.sub %x, %mean : (tensor<2x3x8xf32>, tensor<2x3x1xf32>) -> tensor<2x3x8xf32>
  %square = nn.square %centred : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %var = nn.reduce %square {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f32>} : () -> tensor<f32>
  %sum = nn.add %var, %eps : (tensor<2x3x1xf32>, tensor<f32>) -> tensor<2x3x1xf32>
  %r = nn.rsqrt %sum : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
  %g = nn.mul %r, %w : (tensor<2x3x1xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
  %m = nn.mul %mean, %g : (tensor<2x3x1xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %shift = nn.add %b, %m : (tensor<8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %s = nn.mul %x, %g : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %y = nn.add %s, %shift : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  return %y : tensor<2x3x8xf32>
}

// -----

// The shift has another gain than x.
// CHECK-LABEL: func @two_gains
// CHECK-NOT: nn.layer_norm
// CHECK: nn.rsqrt
// MISS: {{.*}}raise-norm-gain.mlir{{.*}}Missed{{.*}}layer_norm{{.*}}the inverse deviation does not scale the value that the statistics are of
func.func @two_gains(%x: tensor<2x3x8xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<2x3x8xf32> {
  %mean = nn.reduce %x {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %centred = nn.sub %x, %mean : (tensor<2x3x8xf32>, tensor<2x3x1xf32>) -> tensor<2x3x8xf32>
  %square = nn.square %centred : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %var = nn.reduce %square {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f32>} : () -> tensor<f32>
  %sum = nn.add %var, %eps : (tensor<2x3x1xf32>, tensor<f32>) -> tensor<2x3x1xf32>
  %r = nn.rsqrt %sum : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
  %g = nn.mul %r, %w : (tensor<2x3x1xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
  %h = nn.mul %r, %b : (tensor<2x3x1xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
  %m = nn.mul %mean, %h : (tensor<2x3x1xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %shift = nn.sub %b, %m : (tensor<8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %s = nn.mul %x, %g : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %y = nn.add %s, %shift : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  return %y : tensor<2x3x8xf32>
}

// -----

// x * gain is a result too.
// CHECK-LABEL: func @read_twice
// CHECK-NOT: nn.layer_norm
// CHECK: nn.rsqrt
// MISS: {{.*}}raise-norm-gain.mlir{{.*}}Missed{{.*}}layer_norm{{.*}}the inverse deviation does not scale the value that the statistics are of
func.func @read_twice(%x: tensor<2x3x8xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>) -> (tensor<2x3x8xf32>, tensor<2x3x8xf32>) {
  %mean = nn.reduce %x {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %centred = nn.sub %x, %mean : (tensor<2x3x8xf32>, tensor<2x3x1xf32>) -> tensor<2x3x8xf32>
  %square = nn.square %centred : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %var = nn.reduce %square {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f32>} : () -> tensor<f32>
  %sum = nn.add %var, %eps : (tensor<2x3x1xf32>, tensor<f32>) -> tensor<2x3x1xf32>
  %r = nn.rsqrt %sum : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
  %g = nn.mul %r, %w : (tensor<2x3x1xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
  %m = nn.mul %mean, %g : (tensor<2x3x1xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %shift = nn.sub %b, %m : (tensor<8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %s = nn.mul %x, %g : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %y = nn.add %s, %shift : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  return %s, %y : tensor<2x3x8xf32>, tensor<2x3x8xf32>
}

// -----

// In f16 r * weight is rounded before it meets x.
// CHECK-LABEL: func @narrow
// CHECK-NOT: nn.rms_norm
// CHECK: nn.rsqrt
// MISS: {{.*}}raise-norm-gain.mlir{{.*}}Missed{{.*}}rms_norm{{.*}}statistics are computed in f16, not in f32
func.func @narrow(%x: tensor<2x3x8xf16>, %w: tensor<8xf16>) -> tensor<2x3x8xf16> {
  %square = nn.square %x : (tensor<2x3x8xf16>) -> tensor<2x3x8xf16>
  %var = nn.reduce %square {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x3x8xf16>) -> tensor<2x3x1xf16>
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f16>} : () -> tensor<f16>
  %sum = nn.add %var, %eps : (tensor<2x3x1xf16>, tensor<f16>) -> tensor<2x3x1xf16>
  %r = nn.rsqrt %sum : (tensor<2x3x1xf16>) -> tensor<2x3x1xf16>
  %g = nn.mul %r, %w : (tensor<2x3x1xf16>, tensor<8xf16>) -> tensor<2x3x8xf16>
  %y = nn.mul %x, %g : (tensor<2x3x8xf16>, tensor<2x3x8xf16>) -> tensor<2x3x8xf16>
  return %y : tensor<2x3x8xf16>
}
