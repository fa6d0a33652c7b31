// RUN: fusion-opt %s --nn-raise-norm=assume-finite=false --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-raise-norm=assume-finite=false --split-input-file --remarks-filter-missed=raise 2>&1 | FileCheck %s --check-prefix=MISS

// Llama: normalise in f32, round to the model's type, scale there.
// CHECK-LABEL: func @llama
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x128xf16>, %[[W:[a-z0-9]*]]: tensor<128xf16>
// CHECK-NEXT: %[[N:.*]] = nn.rms_norm %[[X]], %[[W]] {eps = 9.99999997E-7 : f32} : (tensor<?x128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
// CHECK-NEXT: return %[[N]]
func.func @llama(%x: tensor<?x128xf16>, %w: tensor<128xf16>) -> tensor<?x128xf16> {
  %eps = nn.constant {value = dense<1.0e-6> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.cast %x : (tensor<?x128xf16>) -> tensor<?x128xf32>
  %1 = nn.square %0 : (tensor<?x128xf32>) -> tensor<?x128xf32>
  %2 = nn.reduce %1 {kind = "mean", axes = array<i64: -1>, keepdims = true} : (tensor<?x128xf32>) -> tensor<?x1xf32>
  %3 = nn.add %2, %eps : (tensor<?x1xf32>, tensor<f32>) -> tensor<?x1xf32>
  %4 = nn.rsqrt %3 : (tensor<?x1xf32>) -> tensor<?x1xf32>
  %5 = nn.mul %0, %4 : (tensor<?x128xf32>, tensor<?x1xf32>) -> tensor<?x128xf32>
  %6 = nn.cast %5 : (tensor<?x128xf32>) -> tensor<?x128xf16>
  %7 = nn.mul %w, %6 : (tensor<128xf16>, tensor<?x128xf16>) -> tensor<?x128xf16>
  return %7 : tensor<?x128xf16>
}

// -----

// Commuted operands, an eps of shape [1], x / sqrt(..), f32 throughout.
// CHECK-LABEL: func @divided
// CHECK: nn.rms_norm %{{.*}}, %{{.*}} {eps = 9.99999974E-6 : f32} : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
// CHECK-NEXT: return
func.func @divided(%x: tensor<2x8xf32>, %w: tensor<8xf32>) -> tensor<2x8xf32> {
  %eps = nn.constant {value = dense<1.0e-5> : tensor<1xf32>} : () -> tensor<1xf32>
  %1 = nn.square %x : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %2 = nn.reduce %1 {kind = "mean", axes = array<i64: 1>, keepdims = true} : (tensor<2x8xf32>) -> tensor<2x1xf32>
  %3 = nn.add %eps, %2 : (tensor<1xf32>, tensor<2x1xf32>) -> tensor<2x1xf32>
  %4 = nn.sqrt %3 : (tensor<2x1xf32>) -> tensor<2x1xf32>
  %5 = nn.div %x, %4 : (tensor<2x8xf32>, tensor<2x1xf32>) -> tensor<2x8xf32>
  %6 = nn.mul %5, %w : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  return %6 : tensor<2x8xf32>
}

// -----

// Gemma: a live 1 + w in f32, the product in f32, rounded last.
// CHECK-LABEL: func @gemma_live
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x128xbf16>, %[[W:[a-z0-9]*]]: tensor<128xbf16>
// CHECK-NEXT: %[[N:.*]] = nn.rms_norm %[[X]], %[[W]] {eps = 9.99999997E-7 : f32, scale_in = f32, weight_bias = 1.000000e+00 : f32} : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
// CHECK-NEXT: return %[[N]]
func.func @gemma_live(%x: tensor<?x128xbf16>, %w: tensor<128xbf16>) -> tensor<?x128xbf16> {
  %eps = nn.constant {value = dense<1.0e-6> : tensor<f32>} : () -> tensor<f32>
  %one = nn.constant {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.cast %x : (tensor<?x128xbf16>) -> tensor<?x128xf32>
  %1 = nn.square %0 : (tensor<?x128xf32>) -> tensor<?x128xf32>
  %2 = nn.reduce %1 {kind = "mean", axes = array<i64: -1>, keepdims = true} : (tensor<?x128xf32>) -> tensor<?x1xf32>
  %3 = nn.add %2, %eps : (tensor<?x1xf32>, tensor<f32>) -> tensor<?x1xf32>
  %4 = nn.rsqrt %3 : (tensor<?x1xf32>) -> tensor<?x1xf32>
  %5 = nn.mul %0, %4 : (tensor<?x128xf32>, tensor<?x1xf32>) -> tensor<?x128xf32>
  %wf = nn.cast %w : (tensor<128xbf16>) -> tensor<128xf32>
  %w1 = nn.add %wf, %one : (tensor<128xf32>, tensor<f32>) -> tensor<128xf32>
  %6 = nn.mul %5, %w1 : (tensor<?x128xf32>, tensor<128xf32>) -> tensor<?x128xf32>
  %7 = nn.cast %6 : (tensor<?x128xf32>) -> tensor<?x128xbf16>
  return %7 : tensor<?x128xbf16>
}

// -----

// Gemma with 1 + w folded into an f32 weight: the weight keeps its type, so the product is in f32.
// CHECK-LABEL: func @gemma_folded
// CHECK: nn.rms_norm %{{.*}}, %{{.*}} {eps = 9.99999997E-7 : f32} : (tensor<?x128xbf16>, tensor<128xf32>) -> tensor<?x128xbf16>
// CHECK-NEXT: return
func.func @gemma_folded(%x: tensor<?x128xbf16>, %w: tensor<128xf32>) -> tensor<?x128xbf16> {
  %eps = nn.constant {value = dense<1.0e-6> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.cast %x : (tensor<?x128xbf16>) -> tensor<?x128xf32>
  %1 = nn.square %0 : (tensor<?x128xf32>) -> tensor<?x128xf32>
  %2 = nn.reduce %1 {kind = "mean", axes = array<i64: -1>, keepdims = true} : (tensor<?x128xf32>) -> tensor<?x1xf32>
  %3 = nn.add %2, %eps : (tensor<?x1xf32>, tensor<f32>) -> tensor<?x1xf32>
  %4 = nn.rsqrt %3 : (tensor<?x1xf32>) -> tensor<?x1xf32>
  %5 = nn.mul %4, %0 : (tensor<?x1xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %6 = nn.mul %w, %5 : (tensor<128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %7 = nn.cast %6 : (tensor<?x128xf32>) -> tensor<?x128xbf16>
  return %7 : tensor<?x128xbf16>
}

// -----

// OLMo 2: the weight widened, the product in f32, rounded last; [1, 1, n] weight.
// CHECK-LABEL: func @olmo2
// CHECK: nn.rms_norm %{{.*}}, %{{.*}} {eps = 9.99999997E-7 : f32, scale_in = f32} : (tensor<?x4x8xbf16>, tensor<8xbf16>) -> tensor<?x4x8xbf16>
// CHECK-NEXT: return
func.func @olmo2(%x: tensor<?x4x8xbf16>, %w: tensor<1x1x8xbf16>) -> tensor<?x4x8xbf16> {
  %eps = nn.constant {value = dense<1.0e-6> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.cast %x : (tensor<?x4x8xbf16>) -> tensor<?x4x8xf32>
  %1 = nn.square %0 : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %2 = nn.reduce %1 {kind = "mean", axes = array<i64: -1>, keepdims = true} : (tensor<?x4x8xf32>) -> tensor<?x4x1xf32>
  %3 = nn.add %2, %eps : (tensor<?x4x1xf32>, tensor<f32>) -> tensor<?x4x1xf32>
  %4 = nn.rsqrt %3 : (tensor<?x4x1xf32>) -> tensor<?x4x1xf32>
  %5 = nn.mul %0, %4 : (tensor<?x4x8xf32>, tensor<?x4x1xf32>) -> tensor<?x4x8xf32>
  %wr = nn.reshape %w {shape = [8]} : (tensor<1x1x8xbf16>) -> tensor<8xbf16>
  %wf = nn.cast %wr : (tensor<8xbf16>) -> tensor<8xf32>
  %6 = nn.mul %wf, %5 : (tensor<8xf32>, tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %7 = nn.cast %6 : (tensor<?x4x8xf32>) -> tensor<?x4x8xbf16>
  return %7 : tensor<?x4x8xbf16>
}

// -----

// No weight: ones of the result's type.
// CHECK-LABEL: func @weightless
// CHECK: %[[O:.*]] = nn.constant {value = dense<1.000000e+00> : tensor<32xbf16>}
// CHECK: nn.rms_norm %{{.*}}, %[[O]] {{.*}} -> tensor<2x32xbf16>
func.func @weightless(%x: tensor<2x32xbf16>) -> tensor<2x32xbf16> {
  %eps = nn.constant {value = dense<1.0e-6> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.cast %x : (tensor<2x32xbf16>) -> tensor<2x32xf32>
  %1 = nn.square %0 : (tensor<2x32xf32>) -> tensor<2x32xf32>
  %2 = nn.reduce %1 {kind = "mean", axes = array<i64: -1>, keepdims = true} : (tensor<2x32xf32>) -> tensor<2x1xf32>
  %3 = nn.add %2, %eps : (tensor<2x1xf32>, tensor<f32>) -> tensor<2x1xf32>
  %4 = nn.rsqrt %3 : (tensor<2x1xf32>) -> tensor<2x1xf32>
  %5 = nn.mul %0, %4 : (tensor<2x32xf32>, tensor<2x1xf32>) -> tensor<2x32xf32>
  %6 = nn.cast %5 : (tensor<2x32xf32>) -> tensor<2x32xbf16>
  return %6 : tensor<2x32xbf16>
}

// -----

// The rounded value is read twice: the weight stays outside.
// CHECK-LABEL: func @extra_use
// CHECK: %[[N:.*]] = nn.rms_norm
// CHECK: %[[M:.*]] = nn.mul %[[N]]
// CHECK: return %[[N]], %[[M]]
// MISS: {{.*}}raise-norm.mlir{{.*}}Missed{{.*}}the normalised value is used more than once: its weight stays outside
func.func @extra_use(%x: tensor<2x32xf32>, %w: tensor<32xf32>) -> (tensor<2x32xf32>, tensor<2x32xf32>) {
  %eps = nn.constant {value = dense<1.0e-6> : tensor<f32>} : () -> tensor<f32>
  %1 = nn.square %x : (tensor<2x32xf32>) -> tensor<2x32xf32>
  %2 = nn.reduce %1 {kind = "mean", axes = array<i64: -1>, keepdims = true} : (tensor<2x32xf32>) -> tensor<2x1xf32>
  %3 = nn.add %2, %eps : (tensor<2x1xf32>, tensor<f32>) -> tensor<2x1xf32>
  %4 = nn.rsqrt %3 : (tensor<2x1xf32>) -> tensor<2x1xf32>
  %5 = nn.mul %x, %4 : (tensor<2x32xf32>, tensor<2x1xf32>) -> tensor<2x32xf32>
  %6 = nn.mul %5, %w : (tensor<2x32xf32>, tensor<32xf32>) -> tensor<2x32xf32>
  return %5, %6 : tensor<2x32xf32>, tensor<2x32xf32>
}

// -----

// Statistics in f16 round in between; nn.rms_norm would not.
// CHECK-LABEL: func @narrow_statistics
// CHECK-NOT: nn.rms_norm
// CHECK: nn.rsqrt
// MISS: statistics are computed in f16, not in f32
func.func @narrow_statistics(%x: tensor<2x32xf16>) -> tensor<2x32xf16> {
  %eps = nn.constant {value = dense<1.0e-6> : tensor<f16>} : () -> tensor<f16>
  %1 = nn.square %x : (tensor<2x32xf16>) -> tensor<2x32xf16>
  %2 = nn.reduce %1 {kind = "mean", axes = array<i64: -1>, keepdims = true} : (tensor<2x32xf16>) -> tensor<2x1xf16>
  %3 = nn.add %2, %eps : (tensor<2x1xf16>, tensor<f16>) -> tensor<2x1xf16>
  %4 = nn.rsqrt %3 : (tensor<2x1xf16>) -> tensor<2x1xf16>
  %5 = nn.mul %x, %4 : (tensor<2x32xf16>, tensor<2x1xf16>) -> tensor<2x32xf16>
  return %5 : tensor<2x32xf16>
}

// -----

// The deviation scales another value than the one it is of.
// CHECK-LABEL: func @other_value
// CHECK-NOT: nn.rms_norm
// MISS: does not scale the value that the statistics are of
func.func @other_value(%x: tensor<2x32xf32>, %y: tensor<2x32xf32>) -> tensor<2x32xf32> {
  %1 = nn.square %x : (tensor<2x32xf32>) -> tensor<2x32xf32>
  %2 = nn.reduce %1 {kind = "mean", axes = array<i64: -1>, keepdims = true} : (tensor<2x32xf32>) -> tensor<2x1xf32>
  %4 = nn.rsqrt %2 : (tensor<2x1xf32>) -> tensor<2x1xf32>
  %5 = nn.mul %y, %4 : (tensor<2x32xf32>, tensor<2x1xf32>) -> tensor<2x32xf32>
  return %5 : tensor<2x32xf32>
}

// -----

// A reduction over another dim is no norm of the last one.
// CHECK-LABEL: func @other_axis
// CHECK-NOT: nn.rms_norm
func.func @other_axis(%x: tensor<32x32xf32>) -> tensor<32x32xf32> {
  %1 = nn.square %x : (tensor<32x32xf32>) -> tensor<32x32xf32>
  %2 = nn.reduce %1 {kind = "mean", axes = array<i64: 0>, keepdims = true} : (tensor<32x32xf32>) -> tensor<1x32xf32>
  %4 = nn.rsqrt %2 : (tensor<1x32xf32>) -> tensor<1x32xf32>
  %5 = nn.mul %x, %4 : (tensor<32x32xf32>, tensor<1x32xf32>) -> tensor<32x32xf32>
  return %5 : tensor<32x32xf32>
}

// -----

// CHECK-LABEL: func @layer_norm
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x8xf32>, %[[W:[a-z0-9]*]]: tensor<8xf32>, %[[B:[a-z0-9]*]]: tensor<8xf32>
// CHECK-NEXT: nn.layer_norm %[[X]], %[[W]], %[[B]] {eps = 9.99999974E-6 : f32}
// CHECK-NEXT: return
func.func @layer_norm(%x: tensor<?x8xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<?x8xf32> {
  %eps = nn.constant {value = dense<1.0e-5> : tensor<f32>} : () -> tensor<f32>
  %m = nn.reduce %x {kind = "mean", axes = array<i64: -1>, keepdims = true} : (tensor<?x8xf32>) -> tensor<?x1xf32>
  %d = nn.sub %x, %m : (tensor<?x8xf32>, tensor<?x1xf32>) -> tensor<?x8xf32>
  %1 = nn.square %d : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %2 = nn.reduce %1 {kind = "mean", axes = array<i64: -1>, keepdims = true} : (tensor<?x8xf32>) -> tensor<?x1xf32>
  %3 = nn.add %2, %eps : (tensor<?x1xf32>, tensor<f32>) -> tensor<?x1xf32>
  %4 = nn.sqrt %3 : (tensor<?x1xf32>) -> tensor<?x1xf32>
  %5 = nn.div %d, %4 : (tensor<?x8xf32>, tensor<?x1xf32>) -> tensor<?x8xf32>
  %6 = nn.mul %5, %w : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
  %7 = nn.add %b, %6 : (tensor<8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %7 : tensor<?x8xf32>
}

// -----

// Rounded before weight and bias.
// CHECK-LABEL: func @layer_norm_f16
// CHECK: nn.layer_norm %{{.*}}, %{{.*}}, %{{.*}} {eps = 9.99999974E-6 : f32} : (tensor<?x8xf16>, tensor<8xf16>, tensor<8xf16>) -> tensor<?x8xf16>
// CHECK-NEXT: return
func.func @layer_norm_f16(%h: tensor<?x8xf16>, %w: tensor<8xf16>, %b: tensor<8xf16>) -> tensor<?x8xf16> {
  %eps = nn.constant {value = dense<1.0e-5> : tensor<f32>} : () -> tensor<f32>
  %x = nn.cast %h : (tensor<?x8xf16>) -> tensor<?x8xf32>
  %m = nn.reduce %x {kind = "mean", axes = array<i64: -1>, keepdims = true} : (tensor<?x8xf32>) -> tensor<?x1xf32>
  %d = nn.sub %x, %m : (tensor<?x8xf32>, tensor<?x1xf32>) -> tensor<?x8xf32>
  %1 = nn.square %d : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %2 = nn.reduce %1 {kind = "mean", axes = array<i64: -1>, keepdims = true} : (tensor<?x8xf32>) -> tensor<?x1xf32>
  %3 = nn.add %2, %eps : (tensor<?x1xf32>, tensor<f32>) -> tensor<?x1xf32>
  %4 = nn.rsqrt %3 : (tensor<?x1xf32>) -> tensor<?x1xf32>
  %5 = nn.mul %d, %4 : (tensor<?x8xf32>, tensor<?x1xf32>) -> tensor<?x8xf32>
  %n = nn.cast %5 : (tensor<?x8xf32>) -> tensor<?x8xf16>
  %6 = nn.mul %n, %w : (tensor<?x8xf16>, tensor<8xf16>) -> tensor<?x8xf16>
  %7 = nn.add %6, %b : (tensor<?x8xf16>, tensor<8xf16>) -> tensor<?x8xf16>
  return %7 : tensor<?x8xf16>
}

// -----

// RMSNormalization with an f32 scale, then a cast: Gemma at opset 23.
// CHECK-LABEL: func @cast_of_named
// CHECK-NEXT: nn.rms_norm %{{.*}}, %{{.*}} {eps = 9.99999997E-7 : f32} : (tensor<?x128xbf16>, tensor<128xf32>) -> tensor<?x128xbf16>
// CHECK-NEXT: return
func.func @cast_of_named(%x: tensor<?x128xbf16>, %w: tensor<128xf32>) -> tensor<?x128xbf16> {
  %0 = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x128xbf16>, tensor<128xf32>) -> tensor<?x128xf32>
  %1 = nn.cast %0 : (tensor<?x128xf32>) -> tensor<?x128xbf16>
  return %1 : tensor<?x128xbf16>
}

// -----

// A norm with ones, then the weight.
// CHECK-LABEL: func @norm_of_ones
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x8xbf16>, %[[W:[a-z0-9]*]]: tensor<8xbf16>
// CHECK: nn.rms_norm %[[X]], %[[W]] {eps = 9.99999997E-7 : f32}
// CHECK-NEXT: return
func.func @norm_of_ones(%x: tensor<?x8xbf16>, %w: tensor<8xbf16>) -> tensor<?x8xbf16> {
  %ones = nn.constant {value = dense<1.0> : tensor<8xbf16>} : () -> tensor<8xbf16>
  %0 = nn.rms_norm %x, %ones {eps = 1.0e-6 : f32} : (tensor<?x8xbf16>, tensor<8xbf16>) -> tensor<?x8xbf16>
  %1 = nn.mul %0, %w : (tensor<?x8xbf16>, tensor<8xbf16>) -> tensor<?x8xbf16>
  return %1 : tensor<?x8xbf16>
}

// -----

// The norm rounds to bf16, where the ones are, before the multiplication in f32: both stay.
// CHECK-LABEL: func @norm_of_narrow_ones
// CHECK: %[[N:.*]] = nn.rms_norm
// CHECK-NEXT: nn.mul %[[N]]
func.func @norm_of_narrow_ones(%x: tensor<?x8xf32>, %w: tensor<8xf32>) -> tensor<?x8xf32> {
  %ones = nn.constant {value = dense<1.0> : tensor<8xbf16>} : () -> tensor<8xbf16>
  %0 = nn.rms_norm %x, %ones {eps = 1.0e-6 : f32} : (tensor<?x8xf32>, tensor<8xbf16>) -> tensor<?x8xf32>
  %1 = nn.mul %0, %w : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
  return %1 : tensor<?x8xf32>
}

// -----

// The f32 result has another reader than the cast: the norm stays.
// CHECK-LABEL: func @cast_of_one_reader
// CHECK-NEXT: %[[N:.*]] = nn.rms_norm {{.*}} -> tensor<?x128xf32>
// CHECK-NEXT: %[[C:.*]] = nn.cast %[[N]]
// CHECK-NEXT: return %[[C]], %[[N]]
func.func @cast_of_one_reader(%x: tensor<?x128xbf16>, %w: tensor<128xf32>)
    -> (tensor<?x128xbf16>, tensor<?x128xf32>) {
  %0 = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x128xbf16>, tensor<128xf32>) -> tensor<?x128xf32>
  %1 = nn.cast %0 : (tensor<?x128xf32>) -> tensor<?x128xbf16>
  return %1, %0 : tensor<?x128xbf16>, tensor<?x128xf32>
}

// -----

// The 1 is added in bf16, and the rounded sum meets the value in f32: the addition stays.
// CHECK-LABEL: func @weight_bias_in_bf16
// CHECK: %[[W:.*]] = nn.add
// CHECK-NEXT: nn.rms_norm %{{.*}}, %[[W]] {eps = 9.99999997E-7 : f32, scale_in = f32}
func.func @weight_bias_in_bf16(%x: tensor<?x128xbf16>, %w: tensor<128xbf16>) -> tensor<?x128xbf16> {
  %one = nn.constant {value = dense<1.0> : tensor<bf16>} : () -> tensor<bf16>
  %0 = nn.add %w, %one : (tensor<128xbf16>, tensor<bf16>) -> tensor<128xbf16>
  %1 = nn.rms_norm %x, %0 {eps = 1.0e-6 : f32, scale_in = f32}
     : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
  return %1 : tensor<?x128xbf16>
}

// -----

// The named norm rounds to bf16 before it is widened: the cast stays.
// CHECK-LABEL: func @rounded_named
// CHECK: nn.rms_norm
// CHECK: nn.cast
func.func @rounded_named(%x: tensor<?x8xbf16>, %w: tensor<8xbf16>) -> tensor<?x8xf32> {
  %0 = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x8xbf16>, tensor<8xbf16>) -> tensor<?x8xbf16>
  %1 = nn.cast %0 : (tensor<?x8xbf16>) -> tensor<?x8xf32>
  return %1 : tensor<?x8xf32>
}

// -----

// Cohere at opset 23: the centring stands before RMSNormalization.
// CHECK-LABEL: func @centred_before_rms
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<4x8xbf16>, %[[W:[a-z0-9]*]]: tensor<8xf32>)
// CHECK-NEXT: %[[N:.*]] = nn.layer_norm %[[X]], %[[W]] {eps = 9.99999974E-6 : f32} : (tensor<4x8xbf16>, tensor<8xf32>) -> tensor<4x8xbf16>
// CHECK-NEXT: return %[[N]]
func.func @centred_before_rms(%x: tensor<4x8xbf16>, %w: tensor<8xf32>) -> tensor<4x8xbf16> {
  %0 = nn.cast %x : (tensor<4x8xbf16>) -> tensor<4x8xf32>
  %1 = nn.reduce %0 {axes = array<i64: 1>, keepdims = true, kind = "mean"} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  %2 = nn.sub %0, %1 : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %3 = nn.rms_norm %2, %w {eps = 1.0e-5 : f32} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %4 = nn.cast %3 : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  return %4 : tensor<4x8xbf16>
}

// -----

// The type in which value and weight meet stays.
// CHECK-LABEL: func @centred_before_narrow_rms
// CHECK-NEXT: nn.layer_norm %{{.*}} {eps = 9.99999974E-6 : f32, scale_in = bf16} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xbf16>
// CHECK-NEXT: return
func.func @centred_before_narrow_rms(%x: tensor<4x8xf32>, %w: tensor<8xf32>) -> tensor<4x8xbf16> {
  %1 = nn.reduce %x {axes = array<i64: -1>, keepdims = true, kind = "mean"} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  %2 = nn.sub %x, %1 : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %3 = nn.rms_norm %2, %w {eps = 1.0e-5 : f32, scale_in = bf16} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xbf16>
  return %3 : tensor<4x8xbf16>
}

// -----

// CHECK-LABEL: func @centred_in_bf16
// CHECK: nn.rms_norm
// MISS: {{.*}}raise-norm.mlir{{.*}}Missed{{.*}}the mean is subtracted in bf16, not in f32
func.func @centred_in_bf16(%x: tensor<4x8xbf16>, %w: tensor<8xbf16>) -> tensor<4x8xbf16> {
  %1 = nn.reduce %x {axes = array<i64: 1>, keepdims = true, kind = "mean"} : (tensor<4x8xbf16>) -> tensor<4x1xbf16>
  %2 = nn.sub %x, %1 : (tensor<4x8xbf16>, tensor<4x1xbf16>) -> tensor<4x8xbf16>
  %3 = nn.rms_norm %2, %w {eps = 1.0e-5 : f32} : (tensor<4x8xbf16>, tensor<8xbf16>) -> tensor<4x8xbf16>
  return %3 : tensor<4x8xbf16>
}

// -----

// The layer norm would round the product to bf16.
// CHECK-LABEL: func @centred_wide_product
// CHECK: nn.rms_norm
// MISS: {{.*}}raise-norm.mlir{{.*}}Missed{{.*}}the product with the weight is not rounded
func.func @centred_wide_product(%x: tensor<4x8xf32>, %w: tensor<8xbf16>) -> tensor<4x8xf32> {
  %1 = nn.reduce %x {axes = array<i64: 1>, keepdims = true, kind = "mean"} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  %2 = nn.sub %x, %1 : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %3 = nn.rms_norm %2, %w {eps = 1.0e-5 : f32} : (tensor<4x8xf32>, tensor<8xbf16>) -> tensor<4x8xf32>
  return %3 : tensor<4x8xf32>
}

// -----

// No eps, every product commuted, the axis counted from the front.
// CHECK-LABEL: func @no_eps_commuted
// CHECK-NEXT: nn.rms_norm %{{.*}}, %{{.*}} {eps = 0.000000e+00 : f32}
// CHECK-NEXT: return
func.func @no_eps_commuted(%x: tensor<2x8xf32>, %w: tensor<8xf32>) -> tensor<2x8xf32> {
  %0 = nn.square %x : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %1 = nn.reduce %0 {axes = array<i64: 1>, keepdims = true, kind = "mean"} : (tensor<2x8xf32>) -> tensor<2x1xf32>
  %2 = nn.rsqrt %1 : (tensor<2x1xf32>) -> tensor<2x1xf32>
  %3 = nn.mul %2, %x : (tensor<2x1xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  %4 = nn.mul %w, %3 : (tensor<8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return %4 : tensor<2x8xf32>
}

// -----

// A sum is no mean.
// CHECK-LABEL: func @sum_of_squares
// CHECK-NOT: nn.rms_norm
// CHECK: nn.rsqrt
func.func @sum_of_squares(%x: tensor<2x8xf32>, %w: tensor<8xf32>) -> tensor<2x8xf32> {
  %0 = nn.square %x : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %1 = nn.reduce %0 {axes = array<i64: 1>, keepdims = true, kind = "sum"} : (tensor<2x8xf32>) -> tensor<2x1xf32>
  %2 = nn.rsqrt %1 : (tensor<2x1xf32>) -> tensor<2x1xf32>
  %3 = nn.mul %x, %2 : (tensor<2x8xf32>, tensor<2x1xf32>) -> tensor<2x8xf32>
  %4 = nn.mul %3, %w : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  return %4 : tensor<2x8xf32>
}

// -----

// Nobody reads the norm.
// CHECK-LABEL: func @dead_norm
// CHECK-NEXT: %[[S:.*]] = nn.square
// CHECK-NEXT: return %[[S]]
func.func @dead_norm(%x: tensor<2x8xf32>, %w: tensor<8xf32>) -> tensor<2x8xf32> {
  %0 = nn.square %x : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %1 = nn.reduce %0 {axes = array<i64: 1>, keepdims = true, kind = "mean"} : (tensor<2x8xf32>) -> tensor<2x1xf32>
  %2 = nn.rsqrt %1 : (tensor<2x1xf32>) -> tensor<2x1xf32>
  %3 = nn.mul %x, %2 : (tensor<2x8xf32>, tensor<2x1xf32>) -> tensor<2x8xf32>
  %4 = nn.mul %3, %w : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// The centred values are read elsewhere too: they stay beside the layer norm.
// CHECK-LABEL: func @centred_used
// CHECK: %[[D:.*]] = nn.sub
// CHECK-NEXT: %[[N:.*]] = nn.layer_norm %{{.*}}, %{{.*}} {eps = 0.000000e+00 : f32} : (tensor<2x8xf32>, tensor<8xf32>)
// CHECK-NEXT: return %[[N]], %[[D]]
func.func @centred_used(%x: tensor<2x8xf32>, %w: tensor<8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %m = nn.reduce %x {axes = array<i64: -1>, keepdims = true, kind = "mean"} : (tensor<2x8xf32>) -> tensor<2x1xf32>
  %d = nn.sub %x, %m : (tensor<2x8xf32>, tensor<2x1xf32>) -> tensor<2x8xf32>
  %0 = nn.square %d : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %1 = nn.reduce %0 {axes = array<i64: 1>, keepdims = true, kind = "mean"} : (tensor<2x8xf32>) -> tensor<2x1xf32>
  %2 = nn.rsqrt %1 : (tensor<2x1xf32>) -> tensor<2x1xf32>
  %3 = nn.mul %2, %d : (tensor<2x1xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  %4 = nn.mul %3, %w : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  return %4, %d : tensor<2x8xf32>, tensor<2x8xf32>
}

// -----

// What scales the rows differs from row to row: no weight of a norm.
// CHECK-LABEL: func @full_weight
// CHECK: %[[N:.*]] = nn.rms_norm
// CHECK-NEXT: nn.mul %[[N]]
// CHECK-NEXT: return
func.func @full_weight(%x: tensor<2x8xf32>, %w: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = nn.square %x : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %1 = nn.reduce %0 {axes = array<i64: 1>, keepdims = true, kind = "mean"} : (tensor<2x8xf32>) -> tensor<2x1xf32>
  %2 = nn.rsqrt %1 : (tensor<2x1xf32>) -> tensor<2x1xf32>
  %3 = nn.mul %x, %2 : (tensor<2x8xf32>, tensor<2x1xf32>) -> tensor<2x8xf32>
  %4 = nn.mul %3, %w : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return %4 : tensor<2x8xf32>
}

// -----

// Two weights for one normalised value, as equal ops of two norms were merged: two norms again.
// CHECK-LABEL: func @two_norms
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<2x8xf32>, %[[W:[a-z0-9]*]]: tensor<8xf32>, %[[V:[a-z0-9]*]]: tensor<8xf32>)
// CHECK-DAG: %[[N:.*]] = nn.rms_norm %[[X]], %[[W]]
// CHECK-DAG: %[[M:.*]] = nn.rms_norm %[[X]], %[[V]]
// CHECK: return %[[N]], %[[M]]
func.func @two_norms(%x: tensor<2x8xf32>, %w: tensor<8xf32>, %v: tensor<8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %0 = nn.square %x : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %1 = nn.reduce %0 {axes = array<i64: 1>, keepdims = true, kind = "mean"} : (tensor<2x8xf32>) -> tensor<2x1xf32>
  %2 = nn.rsqrt %1 : (tensor<2x1xf32>) -> tensor<2x1xf32>
  %3 = nn.mul %x, %2 : (tensor<2x8xf32>, tensor<2x1xf32>) -> tensor<2x8xf32>
  %4 = nn.mul %3, %w : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  %5 = nn.mul %3, %v : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  return %4, %5 : tensor<2x8xf32>, tensor<2x8xf32>
}

// -----

// The squares are of another value than the mean: no variance.
// CHECK-LABEL: func @mean_of_another
// CHECK-NOT: nn.layer_norm
// CHECK: return
func.func @mean_of_another(%x: tensor<2x5x64xf32>, %y: tensor<2x5x64xf32>, %w: tensor<64xf32>) -> tensor<2x5x64xf32> {
  %eps = nn.constant {value = dense<1.0e-6> : tensor<f32>} : () -> tensor<f32>
  %mean = nn.reduce %y {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x5x64xf32>) -> tensor<2x5x1xf32>
  %0 = nn.square %x : (tensor<2x5x64xf32>) -> tensor<2x5x64xf32>
  %1 = nn.reduce %0 {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x5x64xf32>) -> tensor<2x5x1xf32>
  %2 = nn.square %mean : (tensor<2x5x1xf32>) -> tensor<2x5x1xf32>
  %3 = nn.sub %1, %2 : (tensor<2x5x1xf32>, tensor<2x5x1xf32>) -> tensor<2x5x1xf32>
  %5 = nn.add %3, %eps : (tensor<2x5x1xf32>, tensor<f32>) -> tensor<2x5x1xf32>
  %6 = nn.rsqrt %5 : (tensor<2x5x1xf32>) -> tensor<2x5x1xf32>
  %8 = nn.sub %y, %mean : (tensor<2x5x64xf32>, tensor<2x5x1xf32>) -> tensor<2x5x64xf32>
  %9 = nn.mul %8, %6 : (tensor<2x5x64xf32>, tensor<2x5x1xf32>) -> tensor<2x5x64xf32>
  %10 = nn.mul %9, %w : (tensor<2x5x64xf32>, tensor<64xf32>) -> tensor<2x5x64xf32>
  return %10 : tensor<2x5x64xf32>
}

// -----

// Rows whose length only a run knows, as groups of channels of a picture: a weight of ones, as many as a row has.
// CHECK-LABEL: func @unknown_width
// CHECK: %[[ONES:.*]] = nn.expand %{{.*}} {shape = ["n"]}
// CHECK-NEXT: nn.layer_norm %{{.*}}, %[[ONES]] {eps = 9.99999974E-6 : f32}
// CHECK-NEXT: return
func.func @unknown_width(%x: tensor<?x8x?xf32> {nn.dims = ["b", 8, "n"]}) -> tensor<?x8x?xf32> {
  %eps = nn.constant {value = dense<1.0e-5> : tensor<f32>} : () -> tensor<f32>
  %mean = nn.reduce %x {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<?x8x?xf32>) -> tensor<?x8x1xf32>
  %d = nn.sub %x, %mean : (tensor<?x8x?xf32>, tensor<?x8x1xf32>) -> tensor<?x8x?xf32>
  %q = nn.square %d : (tensor<?x8x?xf32>) -> tensor<?x8x?xf32>
  %v = nn.reduce %q {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<?x8x?xf32>) -> tensor<?x8x1xf32>
  %s = nn.add %v, %eps : (tensor<?x8x1xf32>, tensor<f32>) -> tensor<?x8x1xf32>
  %r = nn.rsqrt %s : (tensor<?x8x1xf32>) -> tensor<?x8x1xf32>
  %y = nn.mul %d, %r : (tensor<?x8x?xf32>, tensor<?x8x1xf32>) -> tensor<?x8x?xf32>
  return %y : tensor<?x8x?xf32>
}
