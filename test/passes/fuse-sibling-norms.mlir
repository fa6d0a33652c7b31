// RUN: fusion-opt %s --fuse-sibling-norms --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-sibling-norms --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// The first layer of GPT-NeoX: two norms of the embedding, which is read once.
// CHECK-LABEL: @two
// CHECK: %[[G:.*]]:2 = fusion.group "sibling_norms" schedule "row" (%{{.*}} = %arg0,
// CHECK-NEXT: nn.layer_norm
// CHECK-NEXT: nn.layer_norm
// CHECK: return %[[G]]#0, %[[G]]#1
func.func @two(%x: tensor<?x128xf16>, %w: tensor<128xf16>, %b: tensor<128xf16>, %v: tensor<128xf16>) -> (tensor<?x128xf16>, tensor<?x128xf16>) {
  %n = nn.layer_norm %x, %w, %b {eps = 1.0e-5 : f32} : (tensor<?x128xf16>, tensor<128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
  %m = nn.layer_norm %x, %v, %b {eps = 1.0e-5 : f32} : (tensor<?x128xf16>, tensor<128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
  return %n, %m : tensor<?x128xf16>, tensor<?x128xf16>
}

// -----

// Nobody reads one of them.
// CHECK-LABEL: @dead
// CHECK-NOT: fusion.group
// CHECK: return
func.func @dead(%x: tensor<?x128xf16>, %w: tensor<128xf16>, %v: tensor<128xf16>) -> tensor<?x128xf16> {
  %n = nn.rms_norm %x, %w {eps = 1.0e-5 : f32} : (tensor<?x128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
  %m = nn.rms_norm %x, %v {eps = 1.0e-5 : f32} : (tensor<?x128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
  return %m : tensor<?x128xf16>
}

// -----

// CHECK-LABEL: @apart
// CHECK-NOT: fusion.group
// MISS: sibling_norms missed at {{.*}}: not convex: nn.rms_norm reads nn.reduce
func.func @apart(%x: tensor<128x128xf32>, %w: tensor<128xf32>) -> tensor<128x128xf32> {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<128x128xf32>, tensor<128xf32>) -> tensor<128x128xf32>
  %v = nn.reduce %n {kind = "mean", axes = array<i64: 0>, keepdims = false} : (tensor<128x128xf32>) -> tensor<128xf32>
  %m = nn.rms_norm %x, %v {eps = 1.0e-6 : f32} : (tensor<128x128xf32>, tensor<128xf32>) -> tensor<128x128xf32>
  return %m : tensor<128x128xf32>
}

// -----

// CHECK-LABEL: @too_many
// CHECK-NOT: fusion.group
// MISS: sibling_norms missed at {{.*}}: 5 norms of one value, at most 4 go together
func.func @too_many(%x: tensor<4x8xf32>, %a: tensor<8xf32>, %b: tensor<8xf32>, %c: tensor<8xf32>, %d: tensor<8xf32>, %e: tensor<8xf32>)
    -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %0 = nn.rms_norm %x, %a {eps = 1.0e-6 : f32} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %1 = nn.rms_norm %x, %b {eps = 1.0e-6 : f32} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %2 = nn.rms_norm %x, %c {eps = 1.0e-6 : f32} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %3 = nn.rms_norm %x, %d {eps = 1.0e-6 : f32} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %4 = nn.rms_norm %x, %e {eps = 1.0e-6 : f32} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  return %0, %1, %2, %3, %4 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}
