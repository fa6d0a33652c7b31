// RUN: fusion-opt %s --nn-shard=ranks=2 --split-input-file | FileCheck %s
// RUN: not fusion-opt %s --nn-shard=ranks=4 --split-input-file 2>&1 | FileCheck %s --check-prefix=FOUR

// Cut before it came here: nothing is divided again. The keys differ between ranks, since their weight does: the cache
// and the result that extends it are divided by heads. What comes after the sum is the same everywhere.
// CHECK-LABEL: func @cut
// CHECK-SAME: %{{.*}}: tensor<?x1x?x4xf32> {nn.dims = ["b", 1, "p", 4], nn.shard = array<i64: 1, 2>}
// CHECK-SAME: -> (tensor<?x?x8xf32>, tensor<?x1x?x4xf32> {nn.shard = array<i64: 1, 2>})
// CHECK-COUNT-1: nn.all_reduce
// CHECK-NOT: nn.all_reduce
// CHECK: return
// FOUR: error: is cut for 2 ranks, not 4
func.func @cut(%x: tensor<?x?x8xf32> {nn.dims = ["b", "s", 8]}, %past: tensor<?x1x?x4xf32> {nn.dims = ["b", 1, "p", 4]})
    -> (tensor<?x?x8xf32>, tensor<?x1x?x4xf32>) attributes {nn.mesh = {tp = 2 : i64}} {
  %wq = nn.weight {name = "q", path = "0.bin", offset = 0 : i64, length = 128 : i64, rank_paths = ["0.bin", "1.bin"], rank_offsets = array<i64: 0, 0>} : () -> tensor<8x4xf32>
  %wk = nn.weight {name = "k", path = "0.bin", offset = 128 : i64, length = 128 : i64, rank_paths = ["0.bin", "1.bin"], rank_offsets = array<i64: 128, 128>} : () -> tensor<8x4xf32>
  %wo = nn.weight {name = "o", path = "0.bin", offset = 256 : i64, length = 128 : i64, rank_paths = ["0.bin", "1.bin"], rank_offsets = array<i64: 256, 256>} : () -> tensor<4x8xf32>
  %q = nn.matmul %x, %wq : (tensor<?x?x8xf32>, tensor<8x4xf32>) -> tensor<?x?x4xf32>
  %k = nn.matmul %x, %wk : (tensor<?x?x8xf32>, tensor<8x4xf32>) -> tensor<?x?x4xf32>
  %qh = nn.reshape %q {shape = ["b", "s", 1, 4]} : (tensor<?x?x4xf32>) -> tensor<?x?x1x4xf32>
  %kh = nn.reshape %k {shape = ["b", "s", 1, 4]} : (tensor<?x?x4xf32>) -> tensor<?x?x1x4xf32>
  %qt = nn.transpose %qh {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x1x4xf32>) -> tensor<?x1x?x4xf32>
  %kt = nn.transpose %kh {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x1x4xf32>) -> tensor<?x1x?x4xf32>
  %keys = nn.concat %past, %kt {axis = 2 : i64} : (tensor<?x1x?x4xf32>, tensor<?x1x?x4xf32>) -> tensor<?x1x?x4xf32>
  %a = nn.attention %qt, %keys, %keys {scale = 0.5 : f32} : (tensor<?x1x?x4xf32>, tensor<?x1x?x4xf32>, tensor<?x1x?x4xf32>) -> tensor<?x1x?x4xf32>
  %t = nn.transpose %a {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x1x?x4xf32>) -> tensor<?x?x1x4xf32>
  %r = nn.reshape %t {shape = ["b", "s", 4]} : (tensor<?x?x1x4xf32>) -> tensor<?x?x4xf32>
  %p = nn.matmul %r, %wo : (tensor<?x?x4xf32>, tensor<4x8xf32>) -> tensor<?x?x8xf32>
  %y = nn.all_reduce %p : (tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %y, %keys : tensor<?x?x8xf32>, tensor<?x1x?x4xf32>
}
