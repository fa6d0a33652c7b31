// RUN: fusion-opt %s --fuse-matmul-epilogue --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-matmul-epilogue --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// Bias, activation, residual and cast, in that order; the longest chain wins.
// CHECK-LABEL: @whole_chain
// CHECK: fusion.group "matmul_epilogue" schedule "matmul"
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.gelu
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.cast
// CHECK-NEXT: fusion.yield
func.func @whole_chain(%x: tensor<8x128xf16>, %w: tensor<128x256xf16>, %b: tensor<256xf16>, %r: tensor<8x256xf16>)
    -> tensor<8x256xf32> {
  %m = nn.matmul %x, %w : (tensor<8x128xf16>, tensor<128x256xf16>) -> tensor<8x256xf16>
  %0 = nn.add %m, %b : (tensor<8x256xf16>, tensor<256xf16>) -> tensor<8x256xf16>
  %1 = nn.gelu %0 : (tensor<8x256xf16>) -> tensor<8x256xf16>
  %2 = nn.add %r, %1 : (tensor<8x256xf16>, tensor<8x256xf16>) -> tensor<8x256xf16>
  %3 = nn.cast %2 : (tensor<8x256xf16>) -> tensor<8x256xf32>
  return %3 : tensor<8x256xf32>
}

// -----

// Commuted bias, ReLU², one scale for a quantisation.
// CHECK-LABEL: @squared_relu_quantized
// CHECK: fusion.group "matmul_epilogue" schedule "matmul"
// CHECK: nn.relu
// CHECK-NEXT: nn.square
// CHECK-NEXT: nn.quantize
// CHECK-NEXT: fusion.yield %{{[0-9]+}} : tensor<8x256xi8>
func.func @squared_relu_quantized(%x: tensor<8x128xbf16>, %w: tensor<256x128xbf16>, %b: tensor<256xbf16>, %s: tensor<f32>)
    -> tensor<8x256xi8> {
  %m = nn.matmul %x, %w {transpose_b = true} : (tensor<8x128xbf16>, tensor<256x128xbf16>) -> tensor<8x256xbf16>
  %0 = nn.add %b, %m : (tensor<256xbf16>, tensor<8x256xbf16>) -> tensor<8x256xbf16>
  %1 = nn.relu %0 : (tensor<8x256xbf16>) -> tensor<8x256xbf16>
  %2 = nn.square %1 : (tensor<8x256xbf16>) -> tensor<8x256xbf16>
  %3 = nn.quantize %2, %s : (tensor<8x256xbf16>, tensor<f32>) -> tensor<8x256xi8>
  return %3 : tensor<8x256xi8>
}

// -----

// Softcap: constants go into the body.
// CHECK-LABEL: @softcap
// CHECK: fusion.group "matmul_epilogue" schedule "matmul" (%{{.*}} = %arg0, %{{.*}} = %arg1)
// CHECK: nn.div
// CHECK: nn.tanh
// CHECK: nn.mul
func.func @softcap(%x: tensor<8x128xf32>, %w: tensor<128x256xf32>) -> tensor<8x256xf32> {
  %c = nn.constant {value = dense<30.0> : tensor<f32>} : () -> tensor<f32>
  %m = nn.matmul %x, %w : (tensor<8x128xf32>, tensor<128x256xf32>) -> tensor<8x256xf32>
  %0 = nn.div %m, %c : (tensor<8x256xf32>, tensor<f32>) -> tensor<8x256xf32>
  %1 = nn.tanh %0 : (tensor<8x256xf32>) -> tensor<8x256xf32>
  %2 = nn.mul %1, %c : (tensor<8x256xf32>, tensor<f32>) -> tensor<8x256xf32>
  return %2 : tensor<8x256xf32>
}

// -----

// A side branch that has another reader stays outside: the epilogue reads its result.
// CHECK-LABEL: @side_branch_with_another_reader
// CHECK: %[[S:.*]] = nn.silu
// CHECK: fusion.group "matmul_epilogue"
// CHECK-NOT: nn.silu
// CHECK: nn.mul
// CHECK-NOT: nn.silu
// CHECK: return %{{.*}}, %[[S]]
func.func @side_branch_with_another_reader(%x: tensor<8x128xf32>, %w: tensor<128x256xf32>,
                                           %r: tensor<8x256xf32>)
    -> (tensor<8x256xf32>, tensor<8x256xf32>) {
  %m = nn.matmul %x, %w : (tensor<8x128xf32>, tensor<128x256xf32>) -> tensor<8x256xf32>
  %0 = nn.silu %r : (tensor<8x256xf32>) -> tensor<8x256xf32>
  %1 = nn.mul %m, %0 : (tensor<8x256xf32>, tensor<8x256xf32>) -> tensor<8x256xf32>
  return %1, %0 : tensor<8x256xf32>, tensor<8x256xf32>
}

// -----

// A side branch that only the epilogue reads comes along.
// CHECK-LABEL: @side_branch
// CHECK: fusion.group "matmul_epilogue" schedule "matmul"
// CHECK: nn.tanh
// CHECK: nn.add
// CHECK: fusion.yield
// CHECK-NOT: nn.tanh
func.func @side_branch(%x: tensor<8x128xf32>, %w: tensor<128x256xf32>, %r: tensor<8x256xf32>) -> tensor<8x256xf32> {
  %t = nn.tanh %r : (tensor<8x256xf32>) -> tensor<8x256xf32>
  %m = nn.matmul %x, %w : (tensor<8x128xf32>, tensor<128x256xf32>) -> tensor<8x256xf32>
  %0 = nn.add %m, %t : (tensor<8x256xf32>, tensor<8x256xf32>) -> tensor<8x256xf32>
  return %0 : tensor<8x256xf32>
}

// -----

// The biased product has two readers: the chain ends there, and it leaves once.
// CHECK-LABEL: @extra_use
// CHECK: %[[G:.*]] = fusion.group "matmul_epilogue"
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.add
// CHECK-NEXT: fusion.yield
// CHECK: nn.relu %[[G]]
func.func @extra_use(%x: tensor<8x128xf32>, %w: tensor<128x256xf32>, %b: tensor<256xf32>)
    -> (tensor<8x256xf32>, tensor<8x256xf32>) {
  %m = nn.matmul %x, %w : (tensor<8x128xf32>, tensor<128x256xf32>) -> tensor<8x256xf32>
  %0 = nn.add %m, %b : (tensor<8x256xf32>, tensor<256xf32>) -> tensor<8x256xf32>
  %1 = nn.relu %0 : (tensor<8x256xf32>) -> tensor<8x256xf32>
  return %0, %1 : tensor<8x256xf32>, tensor<8x256xf32>
}

// -----

// The sum of two products is the epilogue of one of them.
// CHECK-LABEL: @two_products
// CHECK-COUNT-1: fusion.group "matmul_epilogue"
// CHECK-NOT: fusion.group
// MISS: matmul_epilogue missed at {{.*}}: dropped: overlaps matmul_epilogue
func.func @two_products(%x: tensor<8x128xf32>, %w: tensor<128x256xf32>, %v: tensor<128x256xf32>) -> tensor<8x256xf32> {
  %m = nn.matmul %x, %w : (tensor<8x128xf32>, tensor<128x256xf32>) -> tensor<8x256xf32>
  %n = nn.matmul %x, %v : (tensor<8x128xf32>, tensor<128x256xf32>) -> tensor<8x256xf32>
  %0 = nn.add %m, %n : (tensor<8x256xf32>, tensor<8x256xf32>) -> tensor<8x256xf32>
  return %0 : tensor<8x256xf32>
}

// -----

// CHECK-LABEL: @misses
// CHECK-NOT: fusion.group
// MISS: matmul_epilogue missed at {{.*}}: the result is read by nn.softmax, which is no scalar op
// MISS: matmul_epilogue missed at {{.*}}: the result has 2 readers
// MISS: matmul_epilogue missed at {{.*}}: nn.add broadcasts the result
// MISS: matmul_epilogue missed at {{.*}}: the result is one of the function's
func.func @misses(%x: tensor<1x128xf32>, %w: tensor<128x256xf32>, %r: tensor<8x256xf32>)
    -> (tensor<1x256xf32>, tensor<1x256xf32>, tensor<1x256xf32>, tensor<8x256xf32>, tensor<1x256xf32>) {
  %a = nn.matmul %x, %w : (tensor<1x128xf32>, tensor<128x256xf32>) -> tensor<1x256xf32>
  %s = nn.softmax %a {axis = 1 : i64} : (tensor<1x256xf32>) -> tensor<1x256xf32>
  %b = nn.matmul %x, %w : (tensor<1x128xf32>, tensor<128x256xf32>) -> tensor<1x256xf32>
  %t = nn.relu %b : (tensor<1x256xf32>) -> tensor<1x256xf32>
  %u = nn.silu %b : (tensor<1x256xf32>) -> tensor<1x256xf32>
  %c = nn.matmul %x, %w : (tensor<1x128xf32>, tensor<128x256xf32>) -> tensor<1x256xf32>
  %v = nn.add %c, %r : (tensor<1x256xf32>, tensor<8x256xf32>) -> tensor<8x256xf32>
  %d = nn.matmul %x, %w : (tensor<1x128xf32>, tensor<128x256xf32>) -> tensor<1x256xf32>
  return %s, %t, %u, %v, %d : tensor<1x256xf32>, tensor<1x256xf32>, tensor<1x256xf32>, tensor<8x256xf32>, tensor<1x256xf32>
}

// -----

// A scale for each column.
// CHECK-LABEL: @per_channel
// CHECK: fusion.group "matmul_epilogue"
// CHECK: nn.quantize
// CHECK: return
func.func @per_channel(%x: tensor<8x128xf32>, %w: tensor<128x256xf32>, %s: tensor<256xf32>) -> tensor<8x256xi8> {
  %m = nn.matmul %x, %w : (tensor<8x128xf32>, tensor<128x256xf32>) -> tensor<8x256xf32>
  %0 = nn.quantize %m, %s {axis = 1 : i64} : (tensor<8x256xf32>, tensor<256xf32>) -> tensor<8x256xi8>
  return %0 : tensor<8x256xi8>
}

// -----

// The scales of an integer product are multiplied in its epilogue.
// CHECK-LABEL: @integer_scales
// CHECK: fusion.group "matmul_epilogue"
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.mul
// CHECK-NEXT: nn.cast
// CHECK-NEXT: nn.mul
// CHECK-NEXT: fusion.yield
func.func @integer_scales(%x: tensor<8x128xi8>, %w: tensor<128x256xi8>, %s: tensor<f32>, %t: tensor<256xf32>) -> tensor<8x256xf32> {
  %m = nn.matmul %x, %w : (tensor<8x128xi8>, tensor<128x256xi8>) -> tensor<8x256xi32>
  %f = nn.mul %s, %t : (tensor<f32>, tensor<256xf32>) -> tensor<256xf32>
  %0 = nn.cast %m : (tensor<8x256xi32>) -> tensor<8x256xf32>
  %1 = nn.mul %0, %f : (tensor<8x256xf32>, tensor<256xf32>) -> tensor<8x256xf32>
  return %1 : tensor<8x256xf32>
}

// -----

// CHECK-LABEL: @per_token
// CHECK-NOT: fusion.group
// CHECK: return
// MISS: matmul_epilogue missed at {{.*}}: nn.dynamic_quantize needs the largest element of whole rows
func.func @per_token(%x: tensor<8x128xf32>, %w: tensor<128x256xf32>) -> (tensor<8x256xi8>, tensor<8x1xf32>) {
  %m = nn.matmul %x, %w : (tensor<8x128xf32>, tensor<128x256xf32>) -> tensor<8x256xf32>
  %0, %1 = nn.dynamic_quantize %m : (tensor<8x256xf32>) -> (tensor<8x256xi8>, tensor<8x1xf32>)
  return %0, %1 : tensor<8x256xi8>, tensor<8x1xf32>
}

// -----

// CHECK-LABEL: @commuted_bias
// CHECK: fusion.group "matmul_epilogue" schedule "matmul"
// CHECK-NEXT: %[[P:.*]] = nn.matmul
// CHECK-NEXT: nn.add %{{.*}}, %[[P]]
// CHECK-NEXT: fusion.yield
func.func @commuted_bias(%x: tensor<?x64xf16>, %w: tensor<64x96xf16>, %b: tensor<96xf16>) -> tensor<?x96xf16> {
  %0 = nn.matmul %x, %w : (tensor<?x64xf16>, tensor<64x96xf16>) -> tensor<?x96xf16>
  %1 = nn.add %b, %0 : (tensor<96xf16>, tensor<?x96xf16>) -> tensor<?x96xf16>
  return %1 : tensor<?x96xf16>
}

// -----

// CHECK-LABEL: @dead_tail
// CHECK: fusion.group "matmul_epilogue" schedule "matmul"
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.add
// CHECK-NEXT: fusion.yield
// CHECK-NOT: nn.silu
func.func @dead_tail(%x: tensor<?x64xf16>, %w: tensor<64x96xf16>, %b: tensor<96xf16>) -> tensor<?x96xf16> {
  %0 = nn.matmul %x, %w : (tensor<?x64xf16>, tensor<64x96xf16>) -> tensor<?x96xf16>
  %1 = nn.add %b, %0 : (tensor<96xf16>, tensor<?x96xf16>) -> tensor<?x96xf16>
  %2 = nn.silu %1 : (tensor<?x96xf16>) -> tensor<?x96xf16>
  return %1 : tensor<?x96xf16>
}

// -----

// The residual before the activation, or after it.
// CHECK-LABEL: @residual_then_activation
// CHECK: fusion.group "matmul_epilogue" schedule "matmul"
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.gelu
// CHECK-NEXT: fusion.yield
func.func @residual_then_activation(%x: tensor<?x64xf16> {nn.dims = ["n", 64]}, %w: tensor<64x96xf16>, %r: tensor<?x96xf16> {nn.dims = ["n", 96]}) -> tensor<?x96xf16> {
  %0 = nn.matmul %x, %w : (tensor<?x64xf16>, tensor<64x96xf16>) -> tensor<?x96xf16>
  %1 = nn.add %r, %0 : (tensor<?x96xf16>, tensor<?x96xf16>) -> tensor<?x96xf16>
  %2 = nn.gelu %1 {approximate = "tanh"} : (tensor<?x96xf16>) -> tensor<?x96xf16>
  return %2 : tensor<?x96xf16>
}

// -----

// CHECK-LABEL: @activation_then_residual
// CHECK: fusion.group "matmul_epilogue" schedule "matmul"
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.silu
// CHECK-NEXT: nn.add
// CHECK-NEXT: fusion.yield
func.func @activation_then_residual(%x: tensor<5x64xf16>, %w: tensor<64x96xf16>, %b: tensor<96xf16>, %r: tensor<5x96xf16>) -> tensor<5x96xf16> {
  %0 = nn.matmul %x, %w : (tensor<5x64xf16>, tensor<64x96xf16>) -> tensor<5x96xf16>
  %1 = nn.add %0, %b : (tensor<5x96xf16>, tensor<96xf16>) -> tensor<5x96xf16>
  %2 = nn.silu %1 : (tensor<5x96xf16>) -> tensor<5x96xf16>
  %3 = nn.add %2, %r : (tensor<5x96xf16>, tensor<5x96xf16>) -> tensor<5x96xf16>
  return %3 : tensor<5x96xf16>
}

// -----

// Somebody else reads the sum: the activation stays outside.
// CHECK-LABEL: @residual_that_leaves
// CHECK: %[[S:.*]] = fusion.group "matmul_epilogue" schedule "matmul"
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.add
// CHECK-NEXT: fusion.yield
// CHECK: nn.gelu %[[S]]
func.func @residual_that_leaves(%x: tensor<5x64xf16>, %w: tensor<64x96xf16>, %r: tensor<5x96xf16>) -> (tensor<5x96xf16>, tensor<5x96xf16>) {
  %0 = nn.matmul %x, %w : (tensor<5x64xf16>, tensor<64x96xf16>) -> tensor<5x96xf16>
  %1 = nn.add %0, %r : (tensor<5x96xf16>, tensor<5x96xf16>) -> tensor<5x96xf16>
  %2 = nn.gelu %1 {approximate = "tanh"} : (tensor<5x96xf16>) -> tensor<5x96xf16>
  return %1, %2 : tensor<5x96xf16>, tensor<5x96xf16>
}

// -----

// An activation that is spelled: its readers meet again.
// CHECK-LABEL: @spelled
// CHECK: fusion.group "matmul_epilogue"
// CHECK-NEXT: nn.matmul
// CHECK: nn.max
// CHECK: nn.mul
// CHECK-NEXT: fusion.yield
// CHECK-NOT: nn.mul
// CHECK: return
func.func @spelled(%x: tensor<8x128xf32>, %w: tensor<128x256xf32>) -> tensor<8x256xf32> {
  %half = nn.constant {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %m = nn.matmul %x, %w : (tensor<8x128xf32>, tensor<128x256xf32>) -> tensor<8x256xf32>
  %0 = nn.add %m, %half : (tensor<8x256xf32>, tensor<f32>) -> tensor<8x256xf32>
  %1 = nn.max %0, %zero : (tensor<8x256xf32>, tensor<f32>) -> tensor<8x256xf32>
  %2 = nn.mul %m, %1 : (tensor<8x256xf32>, tensor<8x256xf32>) -> tensor<8x256xf32>
  return %2 : tensor<8x256xf32>
}
