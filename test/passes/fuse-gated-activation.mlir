// RUN: fusion-opt %s --fuse-gated-activation --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-gated-activation --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// CHECK-LABEL: @silu
// CHECK: fusion.group "gated_activation" schedule "pointwise" (%[[G:.*]] = %arg0, %[[U:.*]] = %arg1)
// CHECK-NEXT: %[[A:.*]] = nn.silu %[[G]]
// CHECK-NEXT: nn.mul %[[A]], %[[U]]
func.func @silu(%g: tensor<?x256xbf16>, %u: tensor<?x256xbf16>) -> tensor<?x256xbf16> {
  %a = nn.silu %g : (tensor<?x256xbf16>) -> tensor<?x256xbf16>
  %m = nn.mul %a, %u : (tensor<?x256xbf16>, tensor<?x256xbf16>) -> tensor<?x256xbf16>
  return %m : tensor<?x256xbf16>
}

// -----

// Commuted; gate and up are slices of one packed product, which stay outside.
// CHECK-LABEL: @packed
// CHECK: nn.slice
// CHECK: nn.slice
// CHECK: fusion.group "gated_activation" schedule "pointwise"
// CHECK-NEXT: %[[A:.*]] = nn.gelu %{{.*}} {approximate = "tanh"}
// CHECK-NEXT: nn.mul %{{.*}}, %[[A]]
func.func @packed(%p: tensor<8x512xf16>) -> tensor<8x256xf16> {
  %g = nn.slice %p {sizes = [8, 256], starts = [0, 0], steps = array<i64: 1, 1>} : (tensor<8x512xf16>) -> tensor<8x256xf16>
  %u = nn.slice %p {sizes = [8, 256], starts = [0, 256], steps = array<i64: 1, 1>} : (tensor<8x512xf16>) -> tensor<8x256xf16>
  %a = nn.gelu %g {approximate = "tanh"} : (tensor<8x256xf16>) -> tensor<8x256xf16>
  %m = nn.mul %u, %a : (tensor<8x256xf16>, tensor<8x256xf16>) -> tensor<8x256xf16>
  return %m : tensor<8x256xf16>
}

// -----

// Up is a product of its own: the gating runs after it.
// CHECK-LABEL: @after_matmul
// CHECK: %[[G:.*]] = nn.matmul
// CHECK-NOT: nn.silu
// CHECK: fusion.group "gated_activation" schedule "matmul" (%{{.*}} = %[[G]]
// CHECK: nn.matmul
func.func @after_matmul(%x: tensor<?x128xf16>, %wg: tensor<128x256xf16>, %wu: tensor<128x256xf16>) -> tensor<?x256xf16> {
  %g = nn.matmul %x, %wg : (tensor<?x128xf16>, tensor<128x256xf16>) -> tensor<?x256xf16>
  %a = nn.silu %g : (tensor<?x256xf16>) -> tensor<?x256xf16>
  %u = nn.matmul %x, %wu : (tensor<?x128xf16>, tensor<128x256xf16>) -> tensor<?x256xf16>
  %m = nn.mul %a, %u : (tensor<?x256xf16>, tensor<?x256xf16>) -> tensor<?x256xf16>
  return %m : tensor<?x256xf16>
}

// -----

// GeGLU and a quantisation per token.
// CHECK-LABEL: @gelu_per_token
// CHECK: fusion.group "gated_activation" schedule "row"
// CHECK-NEXT: nn.gelu
// CHECK-NEXT: nn.mul
// CHECK-NEXT: nn.dynamic_quantize
func.func @gelu_per_token(%g: tensor<?x256xbf16>, %u: tensor<?x256xbf16>) -> (tensor<?x256xf8E4M3FN>, tensor<?x1xf32>) {
  %a = nn.gelu %g : (tensor<?x256xbf16>) -> tensor<?x256xbf16>
  %m = nn.mul %a, %u : (tensor<?x256xbf16>, tensor<?x256xbf16>) -> tensor<?x256xbf16>
  %q, %s = nn.dynamic_quantize %m : (tensor<?x256xbf16>) -> (tensor<?x256xf8E4M3FN>, tensor<?x1xf32>)
  return %q, %s : tensor<?x256xf8E4M3FN>, tensor<?x1xf32>
}

// -----

// ReGLU, one scale; the gated value is read elsewhere and leaves too.
// CHECK-LABEL: @relu_static
// CHECK: %{{.*}}:2 = fusion.group "gated_activation"
// CHECK: nn.relu
// CHECK: nn.quantize
func.func @relu_static(%g: tensor<?x256xf32>, %u: tensor<?x256xf32>, %s: tensor<f32>) -> (tensor<?x256xi8>, tensor<?x256xf32>) {
  %a = nn.relu %g : (tensor<?x256xf32>) -> tensor<?x256xf32>
  %m = nn.mul %u, %a : (tensor<?x256xf32>, tensor<?x256xf32>) -> tensor<?x256xf32>
  %q = nn.quantize %m, %s : (tensor<?x256xf32>, tensor<f32>) -> tensor<?x256xi8>
  return %q, %m : tensor<?x256xi8>, tensor<?x256xf32>
}

// -----

// The product is read elsewhere as well: it stays outside the group.
// CHECK-LABEL: @up_has_two_readers
// CHECK: %[[U:.*]] = nn.matmul
// CHECK: fusion.group "gated_activation" schedule "pointwise"
func.func @up_has_two_readers(%g: tensor<?x256xf16>, %x: tensor<?x128xf16>, %w: tensor<128x256xf16>)
    -> (tensor<?x256xf16>, tensor<?x256xf16>) {
  %u = nn.matmul %x, %w : (tensor<?x128xf16>, tensor<128x256xf16>) -> tensor<?x256xf16>
  %a = nn.silu %g : (tensor<?x256xf16>) -> tensor<?x256xf16>
  %m = nn.mul %a, %u : (tensor<?x256xf16>, tensor<?x256xf16>) -> tensor<?x256xf16>
  return %m, %u : tensor<?x256xf16>, tensor<?x256xf16>
}

// -----

// CHECK-LABEL: @broadcast
// CHECK-NOT: fusion.group
// MISS: gated_activation missed at {{.*}}: guard SameShape: {{.*}} vs
func.func @broadcast(%g: tensor<?x256xf32>, %u: tensor<256xf32>) -> tensor<?x256xf32> {
  %a = nn.silu %g : (tensor<?x256xf32>) -> tensor<?x256xf32>
  %m = nn.mul %a, %u : (tensor<?x256xf32>, tensor<256xf32>) -> tensor<?x256xf32>
  return %m : tensor<?x256xf32>
}

// -----

// CHECK-LABEL: @integers
// CHECK-NOT: fusion.group
// MISS: gated_activation missed at {{.*}}: guard IsFloat: i32 is no float
func.func @integers(%g: tensor<?x256xi32>, %u: tensor<?x256xi32>) -> tensor<?x256xi32> {
  %a = nn.relu %g : (tensor<?x256xi32>) -> tensor<?x256xi32>
  %m = nn.mul %a, %u : (tensor<?x256xi32>, tensor<?x256xi32>) -> tensor<?x256xi32>
  return %m : tensor<?x256xi32>
}

// -----

// CHECK-LABEL: @no_activation
// CHECK-NOT: fusion.group
// MISS: gated_activation missed at {{.*}}: operand {{[01]}} of nn.mul is a graph input, pattern wants an activation (nn.gelu, nn.relu, nn.sigmoid, nn.silu, nn.tanh)
func.func @no_activation(%g: tensor<?x256xf32>, %u: tensor<?x256xf32>) -> tensor<?x256xf32> {
  %m = nn.mul %g, %u : (tensor<?x256xf32>, tensor<?x256xf32>) -> tensor<?x256xf32>
  return %m : tensor<?x256xf32>
}

// -----

// Commuted; the activation is read by others too, and leaves the kernel.
// CHECK-LABEL: @activation_used
// CHECK: %[[R:.*]]:2 = fusion.group "gated_activation" schedule "pointwise"
// CHECK-NEXT: %[[A:.*]] = nn.silu
// CHECK-NEXT: %[[M:.*]] = nn.mul %{{.*}}, %[[A]]
// CHECK-NEXT: fusion.yield %[[A]], %[[M]]
// CHECK: return %[[R]]#0, %[[R]]#1
func.func @activation_used(%g: tensor<?x256xf16> {nn.dims = ["rows", 256]}, %u: tensor<?x256xf16> {nn.dims = ["rows", 256]}) -> (tensor<?x256xf16>, tensor<?x256xf16>) {
  %a = nn.silu %g : (tensor<?x256xf16>) -> tensor<?x256xf16>
  %m = nn.mul %u, %a : (tensor<?x256xf16>, tensor<?x256xf16>) -> tensor<?x256xf16>
  return %a, %m : tensor<?x256xf16>, tensor<?x256xf16>
}

// -----

// Nobody reads the gated value: there is none.
// CHECK-LABEL: @dead
// CHECK-NOT: fusion.group
// CHECK-NOT: nn.mul
// CHECK: return
func.func @dead(%g: tensor<?x256xf16>, %u: tensor<?x256xf16>) -> tensor<?x256xf16> {
  %a = nn.silu %g : (tensor<?x256xf16>) -> tensor<?x256xf16>
  %m = nn.mul %a, %u : (tensor<?x256xf16>, tensor<?x256xf16>) -> tensor<?x256xf16>
  return %a : tensor<?x256xf16>
}
