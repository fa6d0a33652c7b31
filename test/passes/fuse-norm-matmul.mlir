// RUN: fusion-opt %s --fuse-norm-matmul --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-norm-matmul --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// CHECK-LABEL: @one
// CHECK: fusion.group "norm_matmul" schedule "matmul_chain"
// CHECK-NEXT: nn.rms_norm
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: fusion.yield
func.func @one(%x: tensor<1x128xf16>, %g: tensor<128xf16>, %w: tensor<64x128xf16>) -> tensor<1x64xf16> {
  %n = nn.rms_norm %x, %g {eps = 1.0e-6 : f32} : (tensor<1x128xf16>, tensor<128xf16>) -> tensor<1x128xf16>
  %0 = nn.matmul %n, %w {transpose_b = true} : (tensor<1x128xf16>, tensor<64x128xf16>) -> tensor<1x64xf16>
  return %0 : tensor<1x64xf16>
}

// -----

// The residual add goes ahead too, and the sum leaves for the next one; three products with one bias.
// CHECK-LABEL: @qkv
// CHECK: %[[G:.*]]:4 = fusion.group "norm_matmul" schedule "matmul"
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.layer_norm
// CHECK-COUNT-3: nn.matmul
// CHECK: fusion.yield
// CHECK-NOT: nn.add
func.func @qkv(%x: tensor<2x1x128xbf16>, %r: tensor<2x1x128xbf16>, %g: tensor<128xbf16>, %q: tensor<128x64xbf16>, %k: tensor<128x32xbf16>, %v: tensor<128x32xbf16>,
               %c: tensor<64xbf16>) -> (tensor<2x1x128xbf16>, tensor<2x1x64xbf16>, tensor<2x1x32xbf16>, tensor<2x1x32xbf16>) {
  %s = nn.add %x, %r : (tensor<2x1x128xbf16>, tensor<2x1x128xbf16>) -> tensor<2x1x128xbf16>
  %n = nn.layer_norm %s, %g {eps = 1.0e-5 : f32} : (tensor<2x1x128xbf16>, tensor<128xbf16>) -> tensor<2x1x128xbf16>
  %0 = nn.matmul %n, %q : (tensor<2x1x128xbf16>, tensor<128x64xbf16>) -> tensor<2x1x64xbf16>
  %1 = nn.add %c, %0 : (tensor<64xbf16>, tensor<2x1x64xbf16>) -> tensor<2x1x64xbf16>
  %2 = nn.matmul %n, %k : (tensor<2x1x128xbf16>, tensor<128x32xbf16>) -> tensor<2x1x32xbf16>
  %3 = nn.matmul %n, %v : (tensor<2x1x128xbf16>, tensor<128x32xbf16>) -> tensor<2x1x32xbf16>
  return %s, %1, %2, %3 : tensor<2x1x128xbf16>, tensor<2x1x64xbf16>, tensor<2x1x32xbf16>, tensor<2x1x32xbf16>
}

// -----

// Gemma, with what follows the product: the longest chain.
// CHECK-LABEL: @epilogue
// CHECK: fusion.group "norm_matmul" schedule "matmul_chain"
// CHECK-NEXT: nn.rms_norm {{.*}}weight_bias = 1.000000e+00
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.gelu
// CHECK-NEXT: fusion.yield
func.func @epilogue(%x: tensor<4x128xbf16>, %g: tensor<128xf32>, %w: tensor<128x64xbf16>) -> tensor<4x64xbf16> {
  %n = nn.rms_norm %x, %g {eps = 1.0e-6 : f32, weight_bias = 1.0 : f32} : (tensor<4x128xbf16>, tensor<128xf32>) -> tensor<4x128xbf16>
  %0 = nn.matmul %n, %w : (tensor<4x128xbf16>, tensor<128x64xbf16>) -> tensor<4x64xbf16>
  %1 = nn.gelu %0 {approximate = "tanh"} : (tensor<4x64xbf16>) -> tensor<4x64xbf16>
  return %1 : tensor<4x64xbf16>
}

// -----

// Somebody else reads the normalised rows: they leave too.
// CHECK-LABEL: @norm_used
// CHECK: %[[G:.*]]:2 = fusion.group "norm_matmul"
// CHECK: nn.silu %[[G]]#0
func.func @norm_used(%x: tensor<1x128xf32>, %g: tensor<128xf32>, %w: tensor<128x64xf32>) -> (tensor<1x64xf32>, tensor<1x128xf32>) {
  %n = nn.rms_norm %x, %g {eps = 1.0e-6 : f32} : (tensor<1x128xf32>, tensor<128xf32>) -> tensor<1x128xf32>
  %0 = nn.matmul %n, %w : (tensor<1x128xf32>, tensor<128x64xf32>) -> tensor<1x64xf32>
  %1 = nn.silu %n : (tensor<1x128xf32>) -> tensor<1x128xf32>
  return %0, %1 : tensor<1x64xf32>, tensor<1x128xf32>
}

// -----

// Rows that only a run knows.
// CHECK-LABEL: @run_time_rows
// CHECK-NOT: fusion.group
// CHECK: return
// MISS: norm_matmul missed at {{.*}}: the number of rows of the input is known in a run only (tokens): whether it gains something depends on it
func.func @run_time_rows(%x: tensor<?x128xf32> {nn.dims = ["tokens", 128]}, %g: tensor<128xf32>, %w: tensor<128x64xf32>) -> tensor<?x64xf32> {
  %n = nn.rms_norm %x, %g {eps = 1.0e-6 : f32} : (tensor<?x128xf32>, tensor<128xf32>) -> tensor<?x128xf32>
  %0 = nn.matmul %n, %w : (tensor<?x128xf32>, tensor<128x64xf32>) -> tensor<?x64xf32>
  return %0 : tensor<?x64xf32>
}

// -----

// In types that gemm_swap_ab takes, the plan has kernels for each number of rows.
// CHECK-LABEL: @any_rows
// CHECK: fusion.group "norm_matmul" schedule "matmul_chain"
func.func @any_rows(%x: tensor<?x128xf16> {nn.dims = ["tokens", 128]}, %g: tensor<128xf16>, %w: tensor<128x64xf16>) -> tensor<?x64xf16> {
  %n = nn.rms_norm %x, %g {eps = 1.0e-6 : f32} : (tensor<?x128xf16>, tensor<128xf16>) -> tensor<?x128xf16>
  %0 = nn.matmul %n, %w : (tensor<?x128xf16>, tensor<128x64xf16>) -> tensor<?x64xf16>
  return %0 : tensor<?x64xf16>
}

// -----

// CHECK-LABEL: @many_rows
// CHECK-NOT: fusion.group
// MISS: norm_matmul missed at {{.*}}a norm in the prologue of nn.matmul of rows of 256 bytes is for 1 to 8 rows: here there are 64
func.func @many_rows(%x: tensor<64x128xf16>, %g: tensor<128xf16>, %w: tensor<64x128xf16>) -> tensor<64x64xf16> {
  %n = nn.rms_norm %x, %g {eps = 1.0e-6 : f32} : (tensor<64x128xf16>, tensor<128xf16>) -> tensor<64x128xf16>
  %0 = nn.matmul %n, %w {transpose_b = true} : (tensor<64x128xf16>, tensor<64x128xf16>) -> tensor<64x64xf16>
  return %0 : tensor<64x64xf16>
}

// -----

// CHECK-LABEL: @long_rows
// CHECK-NOT: fusion.group
// MISS: norm_matmul missed at {{.*}}a norm in the prologue of nn.matmul of rows of 16384 bytes is for 1 to 2 rows: here there are 4
func.func @long_rows(%x: tensor<4x4096xf32>, %g: tensor<4096xf32>, %w: tensor<64x4096xf32>) -> tensor<4x64xf32> {
  %n = nn.rms_norm %x, %g {eps = 1.0e-6 : f32} : (tensor<4x4096xf32>, tensor<4096xf32>) -> tensor<4x4096xf32>
  %0 = nn.matmul %n, %w {transpose_b = true} : (tensor<4x4096xf32>, tensor<64x4096xf32>) -> tensor<4x64xf32>
  return %0 : tensor<4x64xf32>
}

// -----

// CHECK-LABEL: @longest_rows
// CHECK-NOT: fusion.group
// MISS: norm_matmul missed at {{.*}}a normalised row of 40960 bytes, shared memory has room for 32768
func.func @longest_rows(%x: tensor<1x20480xf16>, %g: tensor<20480xf16>, %w: tensor<64x20480xf16>) -> tensor<1x64xf16> {
  %n = nn.rms_norm %x, %g {eps = 1.0e-6 : f32} : (tensor<1x20480xf16>, tensor<20480xf16>) -> tensor<1x20480xf16>
  %0 = nn.matmul %n, %w {transpose_b = true} : (tensor<1x20480xf16>, tensor<64x20480xf16>) -> tensor<1x64xf16>
  return %0 : tensor<1x64xf16>
}

// -----

// The normalised rows are the second operand, or no product reads them: no root.
// CHECK-LABEL: @no_first_operand
// CHECK-NOT: fusion.group
// CHECK: return
// MISS-NOT: norm_matmul missed at {{.*}}no_first_operand
func.func @no_first_operand(%x: tensor<64x128xf16>, %g: tensor<128xf16>, %w: tensor<1x64xf16>) -> tensor<1x128xf16> {
  %n = nn.rms_norm %x, %g {eps = 1.0e-6 : f32} : (tensor<64x128xf16>, tensor<128xf16>) -> tensor<64x128xf16>
  %0 = nn.matmul %w, %n : (tensor<1x64xf16>, tensor<64x128xf16>) -> tensor<1x128xf16>
  return %0 : tensor<1x128xf16>
}

// -----

// A bias and an activation after a layer norm.
// CHECK-LABEL: @layer_norm_bias_gelu
// CHECK: fusion.group "norm_matmul" schedule "matmul_chain"
// CHECK-NEXT: nn.layer_norm
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.gelu
// CHECK-NEXT: fusion.yield
func.func @layer_norm_bias_gelu(%x: tensor<1x1x768xf16>, %g: tensor<768xf16>, %h: tensor<768xf16>, %w: tensor<768x3072xf16>, %b: tensor<3072xf16>) -> tensor<1x1x3072xf16> {
  %n = nn.layer_norm %x, %g, %h {eps = 1.0e-5 : f32} : (tensor<1x1x768xf16>, tensor<768xf16>, tensor<768xf16>) -> tensor<1x1x768xf16>
  %0 = nn.matmul %n, %w : (tensor<1x1x768xf16>, tensor<768x3072xf16>) -> tensor<1x1x3072xf16>
  %1 = nn.add %0, %b : (tensor<1x1x3072xf16>, tensor<3072xf16>) -> tensor<1x1x3072xf16>
  %2 = nn.gelu %1 {approximate = "tanh"} : (tensor<1x1x3072xf16>) -> tensor<1x1x3072xf16>
  return %2 : tensor<1x1x3072xf16>
}

// -----

// The kernel that adds up over ranks takes the norm.
// CHECK-LABEL: @of_a_sum_over_ranks
// CHECK-NOT: fusion.group
// CHECK: return
// MISS: norm_matmul missed at {{.*}}: the norm belongs to the sum over ranks before it
func.func @of_a_sum_over_ranks(%x: tensor<1x128xbf16>, %r: tensor<1x128xbf16>, %g: tensor<128xbf16>, %w: tensor<64x128xbf16>) -> (tensor<1x128xbf16>, tensor<1x64xbf16>) attributes {nn.mesh = {tp = 2 : i64}} {
  %a = nn.all_reduce %x {axis = "tp"} : (tensor<1x128xbf16>) -> tensor<1x128xbf16>
  %s = nn.add %a, %r : (tensor<1x128xbf16>, tensor<1x128xbf16>) -> tensor<1x128xbf16>
  %n = nn.rms_norm %s, %g {eps = 1.0e-6 : f32} : (tensor<1x128xbf16>, tensor<128xbf16>) -> tensor<1x128xbf16>
  %0 = nn.matmul %n, %w {transpose_b = true} : (tensor<1x128xbf16>, tensor<64x128xbf16>) -> tensor<1x64xbf16>
  return %s, %0 : tensor<1x128xbf16>, tensor<1x64xbf16>
}
