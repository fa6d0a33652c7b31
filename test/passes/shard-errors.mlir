// RUN: not fusion-opt %s --nn-shard=ranks=2 --split-input-file 2>&1 | FileCheck %s
// RUN: not fusion-opt %s --nn-shard=ranks=0 --split-input-file 2>&1 | FileCheck %s --check-prefix=NONE

// CHECK: error: holds collectives already: it is one rank's graph; give the files of all ranks, with {rank} for the number in their names
// NONE: error: cannot be divided among 0 ranks
func.func @collective(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = nn.all_reduce %x : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// CHECK: error: holds groups of fused ops: divide a graph before it is fused
func.func @fused(%x: tensor<4x8xf32>, %r: tensor<4x8xf32>, %w: tensor<8xf32>) -> tensor<4x8xf32> {
  %0 = fusion.group "add_norm" schedule "row" (%a = %x, %b = %r, %c = %w) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32> {
    %1 = nn.add %a, %b : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    %2 = nn.rms_norm %1, %c {eps = 1.0e-6 : f32} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
    fusion.yield %2 : tensor<4x8xf32>
  }
  return %0 : tensor<4x8xf32>
}

// -----

// CHECK: error: result 1 is not the same on all ranks, and its dims do not say how it is divided
func.func @own_result(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) attributes {nn.mesh = {tp = 2 : i64}} {
  %w = nn.weight {name = "w", path = "0.bin", offset = 0 : i64, length = 16 : i64, rank_paths = ["0.bin", "1.bin"], rank_offsets = array<i64: 0, 0>} : () -> tensor<4xf32>
  %0 = nn.mul %x, %w : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = nn.all_reduce %0 : (tensor<4xf32>) -> tensor<4xf32>
  return %1, %0 : tensor<4xf32>, tensor<4xf32>
}
