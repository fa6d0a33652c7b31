// Rotary embeddings whose halves are stacked along a dim of their own, which a reshape merges with the last one.
// RUN: fusion-opt %s --nn-raise-rope --split-input-file | FileCheck %s

// CHECK-LABEL: func @keras_hub
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<2x4x8xf32>, %[[C:[a-z0-9]*]]: tensor<4x8xf32>, %[[S:[a-z0-9]*]]: tensor<4x8xf32>)
// CHECK-NEXT: %[[R:.*]] = nn.rope %[[X]], %[[C]], %[[S]] {interleaved = false, rotary_dim = 8 : i64}
// CHECK-NEXT: return %[[R]]
func.func @keras_hub(%x: tensor<2x4x8xf32>, %cos: tensor<4x8xf32>, %sin: tensor<4x8xf32>) -> tensor<2x4x8xf32> {
  %lo = nn.slice %x {starts = [0, 0, 0], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %hi = nn.slice %x {starts = [0, 0, 4], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %n = nn.neg %hi : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %a = nn.reshape %n {shape = [2, 4, 1, 4]} : (tensor<2x4x4xf32>) -> tensor<2x4x1x4xf32>
  %b = nn.reshape %lo {shape = [2, 4, 1, 4]} : (tensor<2x4x4xf32>) -> tensor<2x4x1x4xf32>
  %c = nn.concat %a, %b {axis = -2 : i64} : (tensor<2x4x1x4xf32>, tensor<2x4x1x4xf32>) -> tensor<2x4x2x4xf32>
  %f = nn.reshape %c {shape = [2, 4, 8]} : (tensor<2x4x2x4xf32>) -> tensor<2x4x8xf32>
  %0 = nn.mul %x, %cos : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %1 = nn.mul %f, %sin : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %2 = nn.add %0, %1 : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %2 : tensor<2x4x8xf32>
}

// -----

// CHECK-LABEL: func @axis_from_the_front
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<2x4x8xf32>, %[[C:[a-z0-9]*]]: tensor<4x8xf32>, %[[S:[a-z0-9]*]]: tensor<4x8xf32>)
// CHECK-NEXT: %[[R:.*]] = nn.rope %[[X]], %[[C]], %[[S]] {interleaved = false, rotary_dim = 8 : i64}
// CHECK-NEXT: return %[[R]]
func.func @axis_from_the_front(%x: tensor<2x4x8xf32>, %cos: tensor<4x8xf32>, %sin: tensor<4x8xf32>) -> tensor<2x4x8xf32> {
  %lo = nn.slice %x {starts = [0, 0, 0], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %hi = nn.slice %x {starts = [0, 0, 4], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %n = nn.neg %hi : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %a = nn.reshape %n {shape = [2, 4, 1, 4]} : (tensor<2x4x4xf32>) -> tensor<2x4x1x4xf32>
  %b = nn.reshape %lo {shape = [2, 4, 1, 4]} : (tensor<2x4x4xf32>) -> tensor<2x4x1x4xf32>
  %c = nn.concat %a, %b {axis = 2 : i64} : (tensor<2x4x1x4xf32>, tensor<2x4x1x4xf32>) -> tensor<2x4x2x4xf32>
  %f = nn.reshape %c {shape = [2, 4, 8]} : (tensor<2x4x2x4xf32>) -> tensor<2x4x8xf32>
  %0 = nn.mul %x, %cos : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %1 = nn.mul %f, %sin : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %2 = nn.add %0, %1 : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %2 : tensor<2x4x8xf32>
}

// -----

// The halves are the other way round.
// CHECK-LABEL: func @swapped
// CHECK-NOT: nn.rope
// CHECK: nn.concat
func.func @swapped(%x: tensor<2x4x8xf32>, %cos: tensor<4x8xf32>, %sin: tensor<4x8xf32>) -> tensor<2x4x8xf32> {
  %lo = nn.slice %x {starts = [0, 0, 0], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %hi = nn.slice %x {starts = [0, 0, 4], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %n = nn.neg %hi : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %a = nn.reshape %lo {shape = [2, 4, 1, 4]} : (tensor<2x4x4xf32>) -> tensor<2x4x1x4xf32>
  %b = nn.reshape %n {shape = [2, 4, 1, 4]} : (tensor<2x4x4xf32>) -> tensor<2x4x1x4xf32>
  %c = nn.concat %a, %b {axis = -2 : i64} : (tensor<2x4x1x4xf32>, tensor<2x4x1x4xf32>) -> tensor<2x4x2x4xf32>
  %f = nn.reshape %c {shape = [2, 4, 8]} : (tensor<2x4x2x4xf32>) -> tensor<2x4x8xf32>
  %0 = nn.mul %x, %cos : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %1 = nn.mul %f, %sin : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %2 = nn.add %0, %1 : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %2 : tensor<2x4x8xf32>
}

// -----

// Along the rows: the reshape does not put the halves of a row beside each other.
// CHECK-LABEL: func @rows
// CHECK-NOT: nn.rope
// CHECK: nn.concat
func.func @rows(%x: tensor<2x4x8xf32>, %cos: tensor<4x8xf32>, %sin: tensor<4x8xf32>) -> tensor<2x4x8xf32> {
  %lo = nn.slice %x {starts = [0, 0, 0], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %hi = nn.slice %x {starts = [0, 0, 4], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %n = nn.neg %hi : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %a = nn.reshape %n {shape = [2, 1, 4, 4]} : (tensor<2x4x4xf32>) -> tensor<2x1x4x4xf32>
  %b = nn.reshape %lo {shape = [2, 1, 4, 4]} : (tensor<2x4x4xf32>) -> tensor<2x1x4x4xf32>
  %c = nn.concat %a, %b {axis = 1 : i64} : (tensor<2x1x4x4xf32>, tensor<2x1x4x4xf32>) -> tensor<2x2x4x4xf32>
  %f = nn.reshape %c {shape = [2, 4, 8]} : (tensor<2x2x4x4xf32>) -> tensor<2x4x8xf32>
  %0 = nn.mul %x, %cos : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %1 = nn.mul %f, %sin : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %2 = nn.add %0, %1 : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %2 : tensor<2x4x8xf32>
}
