// RUN: fusion-opt %s --fuse-qkv-rope --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-qkv-rope --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// All up to the attention: the residual add, whose sum leaves, the norm, three matmuls, a bias, rotations, caches.
// CHECK-LABEL: @decode
// CHECK: fusion.group "qkv_rope" schedule "matmul_chain"
// CHECK-NEXT: nn.add
// CHECK: nn.rms_norm
// CHECK-COUNT-3: nn.matmul
// CHECK: nn.rope
// CHECK: nn.rope
// CHECK: nn.concat
// CHECK: nn.concat
// CHECK-NEXT: fusion.yield
// CHECK-NEXT: }
// CHECK-NEXT: nn.attention
func.func @decode(%x: tensor<1x1x128xbf16>, %pk: tensor<1x1x?x64xbf16> {nn.dims = [1, 1, "p", 64], nn.storage = [1, 1, 64, 64]}, %pv: tensor<1x1x?x64xbf16> {nn.dims = [1, 1, "p", 64], nn.storage = [1, 1, 64, 64]},
    %cos: tensor<1x1x1x64xbf16>, %sin: tensor<1x1x1x64xbf16>, %g: tensor<128xbf16>, %bias: tensor<64xbf16>)
    -> (tensor<1x2x1x64xbf16>, tensor<1x1x?x64xbf16> {nn.alias = 1 : i64}, tensor<1x1x?x64xbf16> {nn.alias = 2 : i64}, tensor<1x1x128xbf16>) {
  %wq = nn.constant {value = dense<0.1> : tensor<128x128xbf16>} : () -> tensor<128x128xbf16>
  %wk = nn.constant {value = dense<0.2> : tensor<128x64xbf16>} : () -> tensor<128x64xbf16>
  %r = nn.add %x, %x : (tensor<1x1x128xbf16>, tensor<1x1x128xbf16>) -> tensor<1x1x128xbf16>
  %n = nn.rms_norm %r, %g {eps = 1.0e-6 : f32} : (tensor<1x1x128xbf16>, tensor<128xbf16>) -> tensor<1x1x128xbf16>
  %q = nn.matmul %n, %wq : (tensor<1x1x128xbf16>, tensor<128x128xbf16>) -> tensor<1x1x128xbf16>
  %k0 = nn.matmul %n, %wk : (tensor<1x1x128xbf16>, tensor<128x64xbf16>) -> tensor<1x1x64xbf16>
  %k = nn.add %k0, %bias : (tensor<1x1x64xbf16>, tensor<64xbf16>) -> tensor<1x1x64xbf16>
  %v = nn.matmul %n, %wk : (tensor<1x1x128xbf16>, tensor<128x64xbf16>) -> tensor<1x1x64xbf16>
  %qh = nn.reshape %q {shape = [1, 1, 2, 64]} : (tensor<1x1x128xbf16>) -> tensor<1x1x2x64xbf16>
  %kh = nn.reshape %k {shape = [1, 1, 1, 64]} : (tensor<1x1x64xbf16>) -> tensor<1x1x1x64xbf16>
  %vh = nn.reshape %v {shape = [1, 1, 1, 64]} : (tensor<1x1x64xbf16>) -> tensor<1x1x1x64xbf16>
  %qt = nn.transpose %qh {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x2x64xbf16>) -> tensor<1x2x1x64xbf16>
  %kt = nn.transpose %kh {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x1x64xbf16>) -> tensor<1x1x1x64xbf16>
  %vt = nn.transpose %vh {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x1x64xbf16>) -> tensor<1x1x1x64xbf16>
  %qr = nn.rope %qt, %cos, %sin {interleaved = false, rotary_dim = 64 : i64} : (tensor<1x2x1x64xbf16>, tensor<1x1x1x64xbf16>, tensor<1x1x1x64xbf16>) -> tensor<1x2x1x64xbf16>
  %kr = nn.rope %kt, %cos, %sin {interleaved = false, rotary_dim = 64 : i64} : (tensor<1x1x1x64xbf16>, tensor<1x1x1x64xbf16>, tensor<1x1x1x64xbf16>) -> tensor<1x1x1x64xbf16>
  %keys = nn.concat %pk, %kr {axis = 2 : i64} : (tensor<1x1x?x64xbf16>, tensor<1x1x1x64xbf16>) -> tensor<1x1x?x64xbf16>
  %values = nn.concat %pv, %vt {axis = 2 : i64} : (tensor<1x1x?x64xbf16>, tensor<1x1x1x64xbf16>) -> tensor<1x1x?x64xbf16>
  %a = nn.attention %qr, %keys, %values {scale = 0.125 : f32} : (tensor<1x2x1x64xbf16>, tensor<1x1x?x64xbf16>, tensor<1x1x?x64xbf16>) -> tensor<1x2x1x64xbf16>
  return %a, %keys, %values, %r : tensor<1x2x1x64xbf16>, tensor<1x1x?x64xbf16>, tensor<1x1x?x64xbf16>, tensor<1x1x128xbf16>
}

// -----

// The past is copied, by no block of the matmuls.
// CHECK-LABEL: @copied
// CHECK-NOT: fusion.group
// CHECK: return
// MISS: qkv_rope missed at {{.*}}rows that no matmul makes, such as a past that is not in place
func.func @copied(%x: tensor<1x1x128xbf16>, %pk: tensor<1x1x?x64xbf16> {nn.dims = [1, 1, "p", 64]}, %pv: tensor<1x1x?x64xbf16> {nn.dims = [1, 1, "p", 64]},
    %cos: tensor<1x1x1x64xbf16>, %sin: tensor<1x1x1x64xbf16>, %g: tensor<128xbf16>, %bias: tensor<64xbf16>)
    -> (tensor<1x2x1x64xbf16>, tensor<1x1x?x64xbf16>, tensor<1x1x?x64xbf16>, tensor<1x1x128xbf16>) {
  %wq = nn.constant {value = dense<0.1> : tensor<128x128xbf16>} : () -> tensor<128x128xbf16>
  %wk = nn.constant {value = dense<0.2> : tensor<128x64xbf16>} : () -> tensor<128x64xbf16>
  %r = nn.add %x, %x : (tensor<1x1x128xbf16>, tensor<1x1x128xbf16>) -> tensor<1x1x128xbf16>
  %n = nn.rms_norm %r, %g {eps = 1.0e-6 : f32} : (tensor<1x1x128xbf16>, tensor<128xbf16>) -> tensor<1x1x128xbf16>
  %q = nn.matmul %n, %wq : (tensor<1x1x128xbf16>, tensor<128x128xbf16>) -> tensor<1x1x128xbf16>
  %k0 = nn.matmul %n, %wk : (tensor<1x1x128xbf16>, tensor<128x64xbf16>) -> tensor<1x1x64xbf16>
  %k = nn.add %k0, %bias : (tensor<1x1x64xbf16>, tensor<64xbf16>) -> tensor<1x1x64xbf16>
  %v = nn.matmul %n, %wk : (tensor<1x1x128xbf16>, tensor<128x64xbf16>) -> tensor<1x1x64xbf16>
  %qh = nn.reshape %q {shape = [1, 1, 2, 64]} : (tensor<1x1x128xbf16>) -> tensor<1x1x2x64xbf16>
  %kh = nn.reshape %k {shape = [1, 1, 1, 64]} : (tensor<1x1x64xbf16>) -> tensor<1x1x1x64xbf16>
  %vh = nn.reshape %v {shape = [1, 1, 1, 64]} : (tensor<1x1x64xbf16>) -> tensor<1x1x1x64xbf16>
  %qt = nn.transpose %qh {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x2x64xbf16>) -> tensor<1x2x1x64xbf16>
  %kt = nn.transpose %kh {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x1x64xbf16>) -> tensor<1x1x1x64xbf16>
  %vt = nn.transpose %vh {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x1x64xbf16>) -> tensor<1x1x1x64xbf16>
  %qr = nn.rope %qt, %cos, %sin {interleaved = false, rotary_dim = 64 : i64} : (tensor<1x2x1x64xbf16>, tensor<1x1x1x64xbf16>, tensor<1x1x1x64xbf16>) -> tensor<1x2x1x64xbf16>
  %kr = nn.rope %kt, %cos, %sin {interleaved = false, rotary_dim = 64 : i64} : (tensor<1x1x1x64xbf16>, tensor<1x1x1x64xbf16>, tensor<1x1x1x64xbf16>) -> tensor<1x1x1x64xbf16>
  %keys = nn.concat %pk, %kr {axis = 2 : i64} : (tensor<1x1x?x64xbf16>, tensor<1x1x1x64xbf16>) -> tensor<1x1x?x64xbf16>
  %values = nn.concat %pv, %vt {axis = 2 : i64} : (tensor<1x1x?x64xbf16>, tensor<1x1x1x64xbf16>) -> tensor<1x1x?x64xbf16>
  %a = nn.attention %qr, %keys, %values {scale = 0.125 : f32} : (tensor<1x2x1x64xbf16>, tensor<1x1x?x64xbf16>, tensor<1x1x?x64xbf16>) -> tensor<1x2x1x64xbf16>
  return %a, %keys, %values, %r : tensor<1x2x1x64xbf16>, tensor<1x1x?x64xbf16>, tensor<1x1x?x64xbf16>, tensor<1x1x128xbf16>
}

// -----

// CHECK-LABEL: @wide_types
// CHECK-NOT: fusion.group
// CHECK: return
// MISS: qkv_rope missed at {{.*}}gemm_swap_ab does not take the matmuls
func.func @wide_types(%x: tensor<1x1x128xf32>, %pk: tensor<1x1x?x64xf32> {nn.dims = [1, 1, "p", 64], nn.storage = [1, 1, 64, 64]}, %pv: tensor<1x1x?x64xf32> {nn.dims = [1, 1, "p", 64], nn.storage = [1, 1, 64, 64]},
    %cos: tensor<1x1x1x64xf32>, %sin: tensor<1x1x1x64xf32>, %g: tensor<128xf32>, %bias: tensor<64xf32>)
    -> (tensor<1x2x1x64xf32>, tensor<1x1x?x64xf32> {nn.alias = 1 : i64}, tensor<1x1x?x64xf32> {nn.alias = 2 : i64}, tensor<1x1x128xf32>) {
  %wq = nn.constant {value = dense<0.1> : tensor<128x128xf32>} : () -> tensor<128x128xf32>
  %wk = nn.constant {value = dense<0.2> : tensor<128x64xf32>} : () -> tensor<128x64xf32>
  %r = nn.add %x, %x : (tensor<1x1x128xf32>, tensor<1x1x128xf32>) -> tensor<1x1x128xf32>
  %n = nn.rms_norm %r, %g {eps = 1.0e-6 : f32} : (tensor<1x1x128xf32>, tensor<128xf32>) -> tensor<1x1x128xf32>
  %q = nn.matmul %n, %wq : (tensor<1x1x128xf32>, tensor<128x128xf32>) -> tensor<1x1x128xf32>
  %k0 = nn.matmul %n, %wk : (tensor<1x1x128xf32>, tensor<128x64xf32>) -> tensor<1x1x64xf32>
  %k = nn.add %k0, %bias : (tensor<1x1x64xf32>, tensor<64xf32>) -> tensor<1x1x64xf32>
  %v = nn.matmul %n, %wk : (tensor<1x1x128xf32>, tensor<128x64xf32>) -> tensor<1x1x64xf32>
  %qh = nn.reshape %q {shape = [1, 1, 2, 64]} : (tensor<1x1x128xf32>) -> tensor<1x1x2x64xf32>
  %kh = nn.reshape %k {shape = [1, 1, 1, 64]} : (tensor<1x1x64xf32>) -> tensor<1x1x1x64xf32>
  %vh = nn.reshape %v {shape = [1, 1, 1, 64]} : (tensor<1x1x64xf32>) -> tensor<1x1x1x64xf32>
  %qt = nn.transpose %qh {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x2x64xf32>) -> tensor<1x2x1x64xf32>
  %kt = nn.transpose %kh {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x1x64xf32>) -> tensor<1x1x1x64xf32>
  %vt = nn.transpose %vh {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x1x64xf32>) -> tensor<1x1x1x64xf32>
  %qr = nn.rope %qt, %cos, %sin {interleaved = false, rotary_dim = 64 : i64} : (tensor<1x2x1x64xf32>, tensor<1x1x1x64xf32>, tensor<1x1x1x64xf32>) -> tensor<1x2x1x64xf32>
  %kr = nn.rope %kt, %cos, %sin {interleaved = false, rotary_dim = 64 : i64} : (tensor<1x1x1x64xf32>, tensor<1x1x1x64xf32>, tensor<1x1x1x64xf32>) -> tensor<1x1x1x64xf32>
  %keys = nn.concat %pk, %kr {axis = 2 : i64} : (tensor<1x1x?x64xf32>, tensor<1x1x1x64xf32>) -> tensor<1x1x?x64xf32>
  %values = nn.concat %pv, %vt {axis = 2 : i64} : (tensor<1x1x?x64xf32>, tensor<1x1x1x64xf32>) -> tensor<1x1x?x64xf32>
  %a = nn.attention %qr, %keys, %values {scale = 0.125 : f32} : (tensor<1x2x1x64xf32>, tensor<1x1x?x64xf32>, tensor<1x1x?x64xf32>) -> tensor<1x2x1x64xf32>
  return %a, %keys, %values, %r : tensor<1x2x1x64xf32>, tensor<1x1x?x64xf32>, tensor<1x1x?x64xf32>, tensor<1x1x128xf32>
}

// -----

// CHECK-LABEL: @two_inputs
// CHECK-NOT: fusion.group
// CHECK: return
// MISS: qkv_rope missed at {{.*}}matmuls of different first operands make what is rotated
func.func @two_inputs(%x: tensor<1x1x128xbf16>, %pk: tensor<1x1x?x64xbf16> {nn.dims = [1, 1, "p", 64], nn.storage = [1, 1, 64, 64]}, %pv: tensor<1x1x?x64xbf16> {nn.dims = [1, 1, "p", 64], nn.storage = [1, 1, 64, 64]},
    %cos: tensor<1x1x1x64xbf16>, %sin: tensor<1x1x1x64xbf16>, %g: tensor<128xbf16>, %bias: tensor<64xbf16>)
    -> (tensor<1x2x1x64xbf16>, tensor<1x1x?x64xbf16> {nn.alias = 1 : i64}, tensor<1x1x?x64xbf16> {nn.alias = 2 : i64}, tensor<1x1x128xbf16>) {
  %wq = nn.constant {value = dense<0.1> : tensor<128x128xbf16>} : () -> tensor<128x128xbf16>
  %wk = nn.constant {value = dense<0.2> : tensor<128x64xbf16>} : () -> tensor<128x64xbf16>
  %r = nn.add %x, %x : (tensor<1x1x128xbf16>, tensor<1x1x128xbf16>) -> tensor<1x1x128xbf16>
  %n = nn.rms_norm %r, %g {eps = 1.0e-6 : f32} : (tensor<1x1x128xbf16>, tensor<128xbf16>) -> tensor<1x1x128xbf16>
  %q = nn.matmul %x, %wq : (tensor<1x1x128xbf16>, tensor<128x128xbf16>) -> tensor<1x1x128xbf16>
  %k0 = nn.matmul %n, %wk : (tensor<1x1x128xbf16>, tensor<128x64xbf16>) -> tensor<1x1x64xbf16>
  %k = nn.add %k0, %bias : (tensor<1x1x64xbf16>, tensor<64xbf16>) -> tensor<1x1x64xbf16>
  %v = nn.matmul %n, %wk : (tensor<1x1x128xbf16>, tensor<128x64xbf16>) -> tensor<1x1x64xbf16>
  %qh = nn.reshape %q {shape = [1, 1, 2, 64]} : (tensor<1x1x128xbf16>) -> tensor<1x1x2x64xbf16>
  %kh = nn.reshape %k {shape = [1, 1, 1, 64]} : (tensor<1x1x64xbf16>) -> tensor<1x1x1x64xbf16>
  %vh = nn.reshape %v {shape = [1, 1, 1, 64]} : (tensor<1x1x64xbf16>) -> tensor<1x1x1x64xbf16>
  %qt = nn.transpose %qh {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x2x64xbf16>) -> tensor<1x2x1x64xbf16>
  %kt = nn.transpose %kh {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x1x64xbf16>) -> tensor<1x1x1x64xbf16>
  %vt = nn.transpose %vh {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x1x64xbf16>) -> tensor<1x1x1x64xbf16>
  %qr = nn.rope %qt, %cos, %sin {interleaved = false, rotary_dim = 64 : i64} : (tensor<1x2x1x64xbf16>, tensor<1x1x1x64xbf16>, tensor<1x1x1x64xbf16>) -> tensor<1x2x1x64xbf16>
  %kr = nn.rope %kt, %cos, %sin {interleaved = false, rotary_dim = 64 : i64} : (tensor<1x1x1x64xbf16>, tensor<1x1x1x64xbf16>, tensor<1x1x1x64xbf16>) -> tensor<1x1x1x64xbf16>
  %keys = nn.concat %pk, %kr {axis = 2 : i64} : (tensor<1x1x?x64xbf16>, tensor<1x1x1x64xbf16>) -> tensor<1x1x?x64xbf16>
  %values = nn.concat %pv, %vt {axis = 2 : i64} : (tensor<1x1x?x64xbf16>, tensor<1x1x1x64xbf16>) -> tensor<1x1x?x64xbf16>
  %a = nn.attention %qr, %keys, %values {scale = 0.125 : f32} : (tensor<1x2x1x64xbf16>, tensor<1x1x?x64xbf16>, tensor<1x1x?x64xbf16>) -> tensor<1x2x1x64xbf16>
  return %a, %keys, %values, %r : tensor<1x2x1x64xbf16>, tensor<1x1x?x64xbf16>, tensor<1x1x?x64xbf16>, tensor<1x1x128xbf16>
}
