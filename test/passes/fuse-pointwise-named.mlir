// RUN: fusion-opt %s --fuse 2>/dev/null | FileCheck %s

// Two gated activations of one shape share nothing: each is a fusion with a name, and they are not joined.
// CHECK-COUNT-2: fusion.group "gated_activation"
// CHECK-NOT: fusion.group
func.func @main(%a: tensor<3x256xf32>, %b: tensor<3x256xf32>, %c: tensor<3x256xf32>, %d: tensor<3x256xf32>)
    -> (tensor<3x256xf32>, tensor<3x256xf32>) {
  %0 = nn.silu %a : (tensor<3x256xf32>) -> tensor<3x256xf32>
  %1 = nn.mul %0, %b : (tensor<3x256xf32>, tensor<3x256xf32>) -> tensor<3x256xf32>
  %2 = nn.silu %c : (tensor<3x256xf32>) -> tensor<3x256xf32>
  %3 = nn.mul %2, %d : (tensor<3x256xf32>, tensor<3x256xf32>) -> tensor<3x256xf32>
  return %1, %3 : tensor<3x256xf32>, tensor<3x256xf32>
}
