// RUN: fusion-opt %s --fuse-pointwise --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-pointwise --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS
// Small groups and ops of one shape that share nothing go together if they can run at one time.

// A counter of each layer. Which counter comes through a view does not matter.
// CHECK-LABEL: @counters
// CHECK: %[[V:.*]] = nn.reshape %arg1
// CHECK: %[[G:.*]]:3 = fusion.group "pointwise" schedule "pointwise" (%{{.*}} = %arg0, %{{.*}} = %[[V]], %{{.*}} = %arg2)
// CHECK: nn.add
// CHECK: nn.mul
// CHECK: nn.relu
// CHECK: nn.sub
// CHECK: fusion.yield
// CHECK: return %[[G]]#0, %[[G]]#1, %[[G]]#2
func.func @counters(%a: tensor<1xi64>, %b: tensor<i64>, %c: tensor<1xi64>, %x: tensor<4x8xf32>)
    -> (tensor<1xi64>, tensor<1xi64>, tensor<1xi64>, tensor<4x8xf32>) {
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %0 = nn.add %a, %one : (tensor<1xi64>, tensor<i64>) -> tensor<1xi64>
  %y = nn.softmax %x {axis = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %v = nn.reshape %b {shape = [1]} : (tensor<i64>) -> tensor<1xi64>
  %m = nn.mul %v, %one : (tensor<1xi64>, tensor<i64>) -> tensor<1xi64>
  %1 = nn.relu %m : (tensor<1xi64>) -> tensor<1xi64>
  %2 = nn.sub %c, %one : (tensor<1xi64>, tensor<i64>) -> tensor<1xi64>
  return %0, %1, %2, %y : tensor<1xi64>, tensor<1xi64>, tensor<1xi64>, tensor<4x8xf32>
}

// -----

// What comes after the group's first place and reads it is moved behind it.
// CHECK-LABEL: @readers_follow
// CHECK: %[[G:.*]]:2 = fusion.group "pointwise"
// CHECK: %[[S:.*]] = nn.softmax %[[G]]#0
// CHECK: return %[[S]], %[[G]]#1
func.func @readers_follow(%a: tensor<8xf32>, %b: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = nn.exp %a : (tensor<8xf32>) -> tensor<8xf32>
  %s = nn.softmax %0 {axis = 0 : i64} : (tensor<8xf32>) -> tensor<8xf32>
  %1 = nn.exp %b : (tensor<8xf32>) -> tensor<8xf32>
  return %s, %1 : tensor<8xf32>, tensor<8xf32>
}

// -----

// Other shapes, and more than a launch is worth.
// CHECK-LABEL: @apart
// CHECK-NOT: fusion.group
// MISS: pointwise missed at {{.*}}: nn.add stays alone: it reads nothing but inputs, weights and constants
func.func @apart(%a: tensor<i64>, %b: tensor<1xi64>, %x: tensor<70000xf32>, %y: tensor<70000xf32>)
    -> (tensor<i64>, tensor<1xi64>, tensor<70000xf32>, tensor<70000xf32>) {
  %0 = nn.add %a, %a : (tensor<i64>, tensor<i64>) -> tensor<i64>
  %1 = nn.add %b, %b : (tensor<1xi64>, tensor<1xi64>) -> tensor<1xi64>
  %2 = nn.relu %x : (tensor<70000xf32>) -> tensor<70000xf32>
  %3 = nn.relu %y : (tensor<70000xf32>) -> tensor<70000xf32>
  return %0, %1, %2, %3 : tensor<i64>, tensor<1xi64>, tensor<70000xf32>, tensor<70000xf32>
}

// -----

// What follows from weights alone is computed at load, and what reads the result of a later kernel has to wait
// for it.
// CHECK-LABEL: @not_at_once
// CHECK-NOT: fusion.group
// CHECK: return
func.func @not_at_once(%a: tensor<2xf32>, %x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
  %w = nn.constant {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  %0 = nn.exp %a : (tensor<2xf32>) -> tensor<2xf32>
  %s = nn.softmax %x {axis = 0 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  %1 = nn.exp %w : (tensor<2xf32>) -> tensor<2xf32>
  %2 = nn.exp %s : (tensor<2xf32>) -> tensor<2xf32>
  return %0, %1, %2 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
}

// -----

// Decay and rate of a linear attention: both matmuls are there. The next layer's are a group of their own.
// CHECK-LABEL: @layers
// CHECK-COUNT-2: nn.matmul
// CHECK: %[[G:.*]]:2 = fusion.group "pointwise"
// CHECK-NEXT: nn.exp
// CHECK-NEXT: nn.sigmoid
// CHECK: nn.softmax
// CHECK-COUNT-2: nn.matmul
// CHECK: %[[H:.*]]:2 = fusion.group "pointwise"
// CHECK-NEXT: nn.exp
// CHECK-NEXT: nn.sigmoid
// CHECK: return %[[G]]#1, %[[H]]#0, %[[H]]#1
func.func @layers(%x: tensor<1x8xf32>, %v: tensor<8x4xf32>, %w: tensor<8x4xf32>, %u: tensor<4x4xf32>)
    -> (tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>) {
  %0 = nn.matmul %x, %v : (tensor<1x8xf32>, tensor<8x4xf32>) -> tensor<1x4xf32>
  %1 = nn.matmul %x, %w : (tensor<1x8xf32>, tensor<8x4xf32>) -> tensor<1x4xf32>
  %2 = nn.exp %0 : (tensor<1x4xf32>) -> tensor<1x4xf32>
  %s = nn.softmax %2 {axis = 1 : i64} : (tensor<1x4xf32>) -> tensor<1x4xf32>
  %3 = nn.sigmoid %1 : (tensor<1x4xf32>) -> tensor<1x4xf32>
  %4 = nn.matmul %s, %u : (tensor<1x4xf32>, tensor<4x4xf32>) -> tensor<1x4xf32>
  %5 = nn.matmul %3, %u : (tensor<1x4xf32>, tensor<4x4xf32>) -> tensor<1x4xf32>
  %6 = nn.exp %4 : (tensor<1x4xf32>) -> tensor<1x4xf32>
  %7 = nn.sigmoid %5 : (tensor<1x4xf32>) -> tensor<1x4xf32>
  return %3, %6, %7 : tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>
}

// -----

// A small cast of an input is computed again by each reader, though it reads more bytes than it writes: memory
// moves by sectors of 32 bytes.
// CHECK-LABEL: @cast_again
// CHECK-NOT: nn.cast
// CHECK: fusion.group "pointwise"
// CHECK: nn.cast
// CHECK: fusion.group "pointwise"
// CHECK: nn.cast
// CHECK-NOT: nn.cast
func.func @cast_again(%p: tensor<1xi64>, %x: tensor<8xf32>, %y: tensor<16xf32>) -> (tensor<8xf32>, tensor<16xf32>) {
  %f = nn.cast %p : (tensor<1xi64>) -> tensor<1xf32>
  %0 = nn.mul %x, %f : (tensor<8xf32>, tensor<1xf32>) -> tensor<8xf32>
  %1 = nn.cos %0 : (tensor<8xf32>) -> tensor<8xf32>
  %2 = nn.mul %y, %f : (tensor<16xf32>, tensor<1xf32>) -> tensor<16xf32>
  %3 = nn.cos %2 : (tensor<16xf32>) -> tensor<16xf32>
  return %1, %3 : tensor<8xf32>, tensor<16xf32>
}
