// Norms of which the graph computes the statistics in f16 or bf16: with fewer roundings, and squares that are finite.
// RUN: fusion-opt %s --nn-raise-norm --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-raise-norm --split-input-file --remarks-filter-missed=raise 2>&1 | FileCheck %s --check-prefix=MISS
// RUN: fusion-opt %s --nn-raise-norm=assume-finite=false --split-input-file --remarks-filter-missed=raise 2>&1 | FileCheck %s --check-prefix=STRICT

// MISS-NOT: statistics are computed
// STRICT-NOT: nn.rms_norm

// What a converter to f16 makes of Llama's norm: x * (1 / sqrt(mean(x^2) + eps)) * w.
// CHECK-LABEL: func @converted
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<2x5x64xf16>, %[[W:[a-z0-9]*]]: tensor<64xf16>)
// CHECK-NEXT: %[[N:.*]] = nn.rms_norm %[[X]], %[[W]] {eps = {{.*}}} : (tensor<2x5x64xf16>, tensor<64xf16>) -> tensor<2x5x64xf16>
// CHECK-NEXT: return %[[N]]
// STRICT-LABEL: func @converted
// STRICT: nn.sqrt
func.func @converted(%x: tensor<2x5x64xf16>, %w: tensor<64xf16>) -> tensor<2x5x64xf16> {
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f16>} : () -> tensor<f16>
  %one = nn.constant {value = dense<1.0> : tensor<f16>} : () -> tensor<f16>
  %0 = nn.square %x : (tensor<2x5x64xf16>) -> tensor<2x5x64xf16>
  %1 = nn.reduce %0 {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x5x64xf16>) -> tensor<2x5x1xf16>
  %2 = nn.add %1, %eps : (tensor<2x5x1xf16>, tensor<f16>) -> tensor<2x5x1xf16>
  %3 = nn.sqrt %2 : (tensor<2x5x1xf16>) -> tensor<2x5x1xf16>
  %4 = nn.div %one, %3 : (tensor<f16>, tensor<2x5x1xf16>) -> tensor<2x5x1xf16>
  %5 = nn.mul %x, %4 : (tensor<2x5x64xf16>, tensor<2x5x1xf16>) -> tensor<2x5x64xf16>
  %6 = nn.mul %w, %5 : (tensor<64xf16>, tensor<2x5x64xf16>) -> tensor<2x5x64xf16>
  return %6 : tensor<2x5x64xf16>
}

// -----

// CHECK-LABEL: func @centred
// CHECK: nn.layer_norm
// STRICT-LABEL: func @centred
// STRICT: nn.div
func.func @centred(%x: tensor<2x5x64xbf16>, %w: tensor<64xbf16>, %b: tensor<64xbf16>) -> tensor<2x5x64xbf16> {
  %eps = nn.constant {value = dense<1.0e-3> : tensor<bf16>} : () -> tensor<bf16>
  %mean = nn.reduce %x {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x5x64xbf16>) -> tensor<2x5x1xbf16>
  %c = nn.sub %x, %mean : (tensor<2x5x64xbf16>, tensor<2x5x1xbf16>) -> tensor<2x5x64xbf16>
  %0 = nn.square %c : (tensor<2x5x64xbf16>) -> tensor<2x5x64xbf16>
  %1 = nn.reduce %0 {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x5x64xbf16>) -> tensor<2x5x1xbf16>
  %2 = nn.add %1, %eps : (tensor<2x5x1xbf16>, tensor<bf16>) -> tensor<2x5x1xbf16>
  %3 = nn.sqrt %2 : (tensor<2x5x1xbf16>) -> tensor<2x5x1xbf16>
  %4 = nn.div %c, %3 : (tensor<2x5x64xbf16>, tensor<2x5x1xbf16>) -> tensor<2x5x64xbf16>
  %5 = nn.mul %4, %w : (tensor<2x5x64xbf16>, tensor<64xbf16>) -> tensor<2x5x64xbf16>
  %6 = nn.add %5, %b : (tensor<2x5x64xbf16>, tensor<64xbf16>) -> tensor<2x5x64xbf16>
  return %6 : tensor<2x5x64xbf16>
}

// -----

// The inverse deviation is the reciprocal of a root, as dynamo's exports have it when they are converted.
// CHECK-LABEL: func @reciprocal
// CHECK: nn.rms_norm
// CHECK-NOT: nn.reduce
// CHECK: return
func.func @reciprocal(%x: tensor<2x5x64xf16>, %w: tensor<64xf16>) -> tensor<2x5x64xf16> {
  %eps = nn.constant {value = dense<1.0e-3> : tensor<f16>} : () -> tensor<f16>
  %0 = nn.square %x : (tensor<2x5x64xf16>) -> tensor<2x5x64xf16>
  %1 = nn.reduce %0 {kind = "mean", axes = array<i64: 2>, keepdims = true} : (tensor<2x5x64xf16>) -> tensor<2x5x1xf16>
  %2 = nn.add %1, %eps : (tensor<2x5x1xf16>, tensor<f16>) -> tensor<2x5x1xf16>
  %3 = nn.sqrt %2 : (tensor<2x5x1xf16>) -> tensor<2x5x1xf16>
  %4 = nn.reciprocal %3 : (tensor<2x5x1xf16>) -> tensor<2x5x1xf16>
  %5 = nn.mul %x, %4 : (tensor<2x5x64xf16>, tensor<2x5x1xf16>) -> tensor<2x5x64xf16>
  %6 = nn.mul %w, %5 : (tensor<64xf16>, tensor<2x5x64xf16>) -> tensor<2x5x64xf16>
  return %6 : tensor<2x5x64xf16>
}
