// RUN: not fusion-opt %s --nn-shard=ranks=2 2>&1 | FileCheck %s
// RUN: not fusion-opt %s --nn-shard=ranks=0 2>&1 | FileCheck %s --check-prefix=NONE

// CHECK: error: holds collectives already: it is one rank's graph
// NONE: error: cannot be divided among 0 ranks
func.func @collective(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = nn.all_reduce %x : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
