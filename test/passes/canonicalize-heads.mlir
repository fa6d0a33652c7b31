// RUN: fusion-opt %s --nn-canonicalize --split-input-file | FileCheck %s

// Qwen3: the norm of each head stands before the transpose.
// CHECK-LABEL: @transpose_of_norm
// CHECK: %[[R:.*]] = nn.reshape
// CHECK: %[[T:.*]] = nn.transpose %[[R]]
// CHECK: %[[N:.*]] = nn.rms_norm %[[T]], {{.*}} -> tensor<1x4x8x32xf32>
// CHECK: return %[[N]]
func.func @transpose_of_norm(%x: tensor<1x8x128xf32>, %w: tensor<32xf32>) -> tensor<1x4x8x32xf32> {
  %0 = nn.reshape %x {shape = [1, 8, 4, 32]} : (tensor<1x8x128xf32>) -> tensor<1x8x4x32xf32>
  %1 = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<1x8x4x32xf32>, tensor<32xf32>) -> tensor<1x8x4x32xf32>
  %2 = nn.transpose %1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x8x4x32xf32>) -> tensor<1x4x8x32xf32>
  return %2 : tensor<1x4x8x32xf32>
}

// -----

// Norm, rotation, then the transpose: the tables turn along.
// CHECK-LABEL: @transpose_of_rope
// CHECK-SAME: (%{{.*}}: tensor<1x8x128xf32>, %{{.*}}: tensor<32xf32>, %[[C:.*]]: tensor<8x1x32xf32>, %[[S:.*]]: tensor<8x1x32xf32>)
// CHECK-DAG: %[[CR:.*]] = nn.reshape %[[C]] {{.*}} -> tensor<1x8x1x32xf32>
// CHECK-DAG: %[[CT:.*]] = nn.transpose %[[CR]] {{.*}} -> tensor<1x1x8x32xf32>
// CHECK-DAG: %[[N:.*]] = nn.rms_norm {{.*}} -> tensor<1x4x8x32xf32>
// CHECK: nn.rope %[[N]], %{{.*}}, %{{.*}} -> tensor<1x4x8x32xf32>
// CHECK-NEXT: return
func.func @transpose_of_rope(%x: tensor<1x8x128xf32>, %w: tensor<32xf32>, %c: tensor<8x1x32xf32>, %s: tensor<8x1x32xf32>) -> tensor<1x4x8x32xf32> {
  %0 = nn.reshape %x {shape = [1, 8, 4, 32]} : (tensor<1x8x128xf32>) -> tensor<1x8x4x32xf32>
  %1 = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<1x8x4x32xf32>, tensor<32xf32>) -> tensor<1x8x4x32xf32>
  %2 = nn.rope %1, %c, %s {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x8x4x32xf32>, tensor<8x1x32xf32>, tensor<8x1x32xf32>) -> tensor<1x8x4x32xf32>
  %3 = nn.transpose %2 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x8x4x32xf32>) -> tensor<1x4x8x32xf32>
  return %3 : tensor<1x4x8x32xf32>
}

// -----

// The norm of a computed value stays: its own producer may join it. So does a norm with a second reader, and one whose
// last dim moves.
// CHECK-LABEL: @left_alone
// CHECK: nn.rms_norm
// CHECK: nn.transpose
// CHECK: nn.rms_norm
// CHECK: nn.transpose
// CHECK: nn.rms_norm
// CHECK: nn.transpose
func.func @left_alone(%x: tensor<1x8x4x32xf32>, %y: tensor<1x8x128xf32>, %w: tensor<32xf32>)
    -> (tensor<1x4x8x32xf32>, tensor<1x8x4x32xf32>, tensor<1x4x8x32xf32>, tensor<1x8x32x4xf32>) {
  %0 = nn.add %x, %x : (tensor<1x8x4x32xf32>, tensor<1x8x4x32xf32>) -> tensor<1x8x4x32xf32>
  %1 = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<1x8x4x32xf32>, tensor<32xf32>) -> tensor<1x8x4x32xf32>
  %2 = nn.transpose %1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x8x4x32xf32>) -> tensor<1x4x8x32xf32>
  %3 = nn.reshape %y {shape = [1, 8, 4, 32]} : (tensor<1x8x128xf32>) -> tensor<1x8x4x32xf32>
  %4 = nn.rms_norm %3, %w {eps = 1.0e-6 : f32} : (tensor<1x8x4x32xf32>, tensor<32xf32>) -> tensor<1x8x4x32xf32>
  %5 = nn.transpose %4 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x8x4x32xf32>) -> tensor<1x4x8x32xf32>
  %6 = nn.rms_norm %3, %w {eps = 2.0e-6 : f32} : (tensor<1x8x4x32xf32>, tensor<32xf32>) -> tensor<1x8x4x32xf32>
  %7 = nn.transpose %6 {perm = array<i64: 0, 1, 3, 2>} : (tensor<1x8x4x32xf32>) -> tensor<1x8x32x4xf32>
  return %2, %4, %5, %7 : tensor<1x4x8x32xf32>, tensor<1x8x4x32xf32>, tensor<1x4x8x32xf32>, tensor<1x8x32x4xf32>
}

// -----

// Heads side by side in a cache of a known length: what is written, and what attention reads, has them apart.
// CHECK-LABEL: @cache_of_heads
// CHECK: %[[P:.*]] = nn.reshape %arg0 {shape = ["b", 12, 2, 16]}
// CHECK: %[[R:.*]] = nn.reshape %arg2 {shape = ["b", "s", 1, 1]}
// CHECK: %[[W:.*]] = nn.cache_write %[[P]], %arg1, %[[R]] {axis = 1 : i64} {{.*}} -> tensor<?x12x2x16xf32>
// CHECK: %[[F:.*]] = nn.reshape %[[W]] {shape = ["b", 12, 32]}
// CHECK: %[[T:.*]] = nn.transpose %[[W]]
// CHECK: return %[[F]], %[[T]]
func.func @cache_of_heads(%cache: tensor<?x12x32xf32> {nn.dims = ["b", 12, 32]}, %new: tensor<?x?x2x16xf32> {nn.dims = ["b", "s", 2, 16]},
                          %rows: tensor<?x?x1xi64> {nn.dims = ["b", "s", 1]}) -> (tensor<?x12x32xf32>, tensor<?x2x12x16xf32>) {
  %0 = nn.reshape %new {shape = ["b", "s", 32]} : (tensor<?x?x2x16xf32>) -> tensor<?x?x32xf32>
  %1 = nn.cache_write %cache, %0, %rows {axis = 1 : i64} : (tensor<?x12x32xf32>, tensor<?x?x32xf32>, tensor<?x?x1xi64>) -> tensor<?x12x32xf32>
  %2 = nn.reshape %1 {shape = ["b", 12, 2, 16]} : (tensor<?x12x32xf32>) -> tensor<?x12x2x16xf32>
  %3 = nn.transpose %2 {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x12x2x16xf32>) -> tensor<?x2x12x16xf32>
  return %1, %3 : tensor<?x12x32xf32>, tensor<?x2x12x16xf32>
}

// -----

// The cache grows; its length is what a run says; it is computed; the reshape divides the positions.
// CHECK-LABEL: @caches_left_flat
// CHECK-COUNT-3: nn.cache_write {{.*}}x32xf32>
// CHECK: nn.cache_write {{.*}} -> tensor<2x12x32xf32>
func.func @caches_left_flat(%a: tensor<2x?x32xf32> {nn.dims = [2, "p", 32]}, %b: tensor<2x12x32xf32>, %new: tensor<2x1x32xf32>, %rows: tensor<2x1x1xi64>)
    -> (tensor<2x?x2x16xf32>, tensor<2x?x2x16xf32>, tensor<2x12x2x16xf32>, tensor<2x6x2x32xf32>) {
  %0 = nn.cache_write %a, %new, %rows {axis = 1 : i64, grows = true} : (tensor<2x?x32xf32>, tensor<2x1x32xf32>, tensor<2x1x1xi64>) -> tensor<2x?x32xf32>
  %1 = nn.reshape %0 {shape = [2, "p + 1", 2, 16]} : (tensor<2x?x32xf32>) -> tensor<2x?x2x16xf32>
  %2 = nn.cache_write %a, %new, %rows {axis = 1 : i64} : (tensor<2x?x32xf32>, tensor<2x1x32xf32>, tensor<2x1x1xi64>) -> tensor<2x?x32xf32>
  %3 = nn.reshape %2 {shape = [2, "p", 2, 16]} : (tensor<2x?x32xf32>) -> tensor<2x?x2x16xf32>
  %4 = nn.relu %b : (tensor<2x12x32xf32>) -> tensor<2x12x32xf32>
  %5 = nn.cache_write %4, %new, %rows {axis = 1 : i64} : (tensor<2x12x32xf32>, tensor<2x1x32xf32>, tensor<2x1x1xi64>) -> tensor<2x12x32xf32>
  %6 = nn.reshape %5 {shape = [2, 12, 2, 16]} : (tensor<2x12x32xf32>) -> tensor<2x12x2x16xf32>
  %7 = nn.cache_write %b, %new, %rows {axis = 1 : i64} : (tensor<2x12x32xf32>, tensor<2x1x32xf32>, tensor<2x1x1xi64>) -> tensor<2x12x32xf32>
  %8 = nn.reshape %7 {shape = [2, 6, 2, 32]} : (tensor<2x12x32xf32>) -> tensor<2x6x2x32xf32>
  return %1, %3, %6, %8 : tensor<2x?x2x16xf32>, tensor<2x?x2x16xf32>, tensor<2x12x2x16xf32>, tensor<2x6x2x32xf32>
}

// -----

// Meta's Llama repeats key and value heads before it puts them in front of the tokens: they are repeated behind that,
// as attention can leave it out. The keys' own swap of the last two dims stays outside.
// CHECK-LABEL: @repeated_heads
// CHECK-SAME: (%[[X:.*]]: tensor<?x?x64xf32>
// CHECK: %[[R:.*]] = nn.reshape %[[X]] {shape = ["b", "s", 2, 32]}
// CHECK: %[[T:.*]] = nn.transpose %[[R]] {perm = array<i64: 0, 2, 1, 3>}
// CHECK: %[[U:.*]] = nn.reshape %[[T]] {shape = ["b", 2, 1, "s", 32]}
// CHECK: %[[E:.*]] = nn.expand %[[U]] {shape = ["b", 2, 4, "s", 32]}
// CHECK: %[[V:.*]] = nn.reshape %[[E]] {shape = ["b", 8, "s", 32]}
// CHECK: %[[K:.*]] = nn.transpose %{{.*}} {perm = array<i64: 0, 1, 3, 2>}
// CHECK: return %[[V]], %[[K]]
func.func @repeated_heads(%x: tensor<?x?x64xf32> {nn.name = "x", nn.dims = ["b", "s", 64]})
    -> (tensor<?x8x?x32xf32>, tensor<?x8x32x?xf32>) {
  %0 = nn.reshape %x {shape = ["b", "s", 2, 1, 32]} : (tensor<?x?x64xf32>) -> tensor<?x?x2x1x32xf32>
  %1 = nn.expand %0 {shape = ["b", "s", 2, 4, 32]} : (tensor<?x?x2x1x32xf32>) -> tensor<?x?x2x4x32xf32>
  %2 = nn.reshape %1 {shape = ["b", "s", 8, 32]} : (tensor<?x?x2x4x32xf32>) -> tensor<?x?x8x32xf32>
  %3 = nn.transpose %2 {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x8x32xf32>) -> tensor<?x8x?x32xf32>
  %4 = nn.transpose %2 {perm = array<i64: 0, 2, 3, 1>} : (tensor<?x?x8x32xf32>) -> tensor<?x8x32x?xf32>
  return %3, %4 : tensor<?x8x?x32xf32>, tensor<?x8x32x?xf32>
}

// -----

// All heads one after the other, four times: none of them stands beside its copies.
// CHECK-LABEL: @tiled_heads
// CHECK: nn.expand
// CHECK: nn.reshape
// CHECK-NEXT: nn.transpose
// CHECK-NEXT: return
func.func @tiled_heads(%x: tensor<1x5x64xf32>) -> tensor<1x8x5x32xf32> {
  %0 = nn.reshape %x {shape = [1, 5, 1, 64]} : (tensor<1x5x64xf32>) -> tensor<1x5x1x64xf32>
  %1 = nn.expand %0 {shape = [1, 5, 4, 64]} : (tensor<1x5x1x64xf32>) -> tensor<1x5x4x64xf32>
  %2 = nn.reshape %1 {shape = [1, 5, 8, 32]} : (tensor<1x5x4x64xf32>) -> tensor<1x5x8x32xf32>
  %3 = nn.transpose %2 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x5x8x32xf32>) -> tensor<1x8x5x32xf32>
  return %3 : tensor<1x8x5x32xf32>
}

// -----

// Scores of [batch, queries, heads, keys] with a mask of [queries, 1, keys], as DeepSeek's einsums have them.
// CHECK-LABEL: @queries_before_heads
// CHECK-SAME: (%[[X:.*]]: tensor<2x4x5x7xf32>, %[[M:.*]]: tensor<5x1x7xf32>)
// CHECK-DAG: %[[S:.*]] = nn.mul %[[X]], %{{.*}} : (tensor<2x4x5x7xf32>, tensor<f32>)
// CHECK-DAG: %[[R:.*]] = nn.reshape %[[M]] {shape = [1, 5, 1, 7]}
// CHECK-DAG: %[[T:.*]] = nn.transpose %[[R]] {perm = array<i64: 0, 2, 1, 3>}
// CHECK: %[[A:.*]] = nn.add %[[S]], %[[T]]
// CHECK-NEXT: %[[P:.*]] = nn.softmax %[[A]] {axis = 3 : i64}
// CHECK-NEXT: return %[[P]]
func.func @queries_before_heads(%x: tensor<2x4x5x7xf32>, %mask: tensor<5x1x7xf32>) -> tensor<2x4x5x7xf32> {
  %scale = nn.constant {value = dense<0.25> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.transpose %x {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x4x5x7xf32>) -> tensor<2x5x4x7xf32>
  %1 = nn.mul %0, %scale : (tensor<2x5x4x7xf32>, tensor<f32>) -> tensor<2x5x4x7xf32>
  %2 = nn.add %1, %mask : (tensor<2x5x4x7xf32>, tensor<5x1x7xf32>) -> tensor<2x5x4x7xf32>
  %3 = nn.softmax %2 {axis = 3 : i64} : (tensor<2x5x4x7xf32>) -> tensor<2x5x4x7xf32>
  %4 = nn.transpose %3 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x5x4x7xf32>) -> tensor<2x4x5x7xf32>
  return %4 : tensor<2x4x5x7xf32>
}

// -----

// The transposes do not undo each other, or the scores are read elsewhere, too.
// CHECK-LABEL: @other_transposes
// CHECK: nn.transpose
// CHECK: nn.softmax
// CHECK: nn.transpose
// CHECK: nn.softmax
// CHECK: nn.transpose
// CHECK: return
func.func @other_transposes(%x: tensor<2x4x5x7xf32>) -> (tensor<5x2x4x7xf32>, tensor<2x4x5x7xf32>, tensor<2x5x4x7xf32>) {
  %0 = nn.transpose %x {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x4x5x7xf32>) -> tensor<2x5x4x7xf32>
  %1 = nn.softmax %0 {axis = 3 : i64} : (tensor<2x5x4x7xf32>) -> tensor<2x5x4x7xf32>
  %2 = nn.transpose %1 {perm = array<i64: 1, 0, 2, 3>} : (tensor<2x5x4x7xf32>) -> tensor<5x2x4x7xf32>
  %3 = nn.neg %0 : (tensor<2x5x4x7xf32>) -> tensor<2x5x4x7xf32>
  %4 = nn.softmax %3 {axis = 3 : i64} : (tensor<2x5x4x7xf32>) -> tensor<2x5x4x7xf32>
  %5 = nn.transpose %4 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x5x4x7xf32>) -> tensor<2x4x5x7xf32>
  return %2, %5, %3 : tensor<5x2x4x7xf32>, tensor<2x4x5x7xf32>, tensor<2x5x4x7xf32>
}
