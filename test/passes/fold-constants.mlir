// RUN: fusion-opt %s --nn-fold-constants --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-fold-constants=max-elements=2 --split-input-file | FileCheck %s --check-prefix=SMALL

// CHECK-LABEL: func @chain
// CHECK-NEXT: %[[C:.*]] = nn.constant {value = dense<[3.000000e+00, 5.000000e+00, 7.000000e+00]> : tensor<3xf32>}
// CHECK-NEXT: return %[[C]]
// SMALL-LABEL: func @chain
// SMALL: nn.add
func.func @chain() -> tensor<3xf32> {
  %a = nn.constant {value = dense<[1.0, 2.0, 3.0]> : tensor<3xf32>} : () -> tensor<3xf32>
  %b = nn.constant {value = dense<2.0> : tensor<f32>} : () -> tensor<f32>
  %c = nn.constant {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.mul %a, %b : (tensor<3xf32>, tensor<f32>) -> tensor<3xf32>
  %1 = nn.add %0, %c : (tensor<3xf32>, tensor<f32>) -> tensor<3xf32>
  return %1 : tensor<3xf32>
}

// -----

// Each step rounds to its type: 1 + 2^-9 is 1 in bf16.
// CHECK-LABEL: func @rounds
// CHECK: dense<0.000000e+00> : tensor<bf16>
func.func @rounds() -> tensor<bf16> {
  %one = nn.constant {value = dense<1.0> : tensor<bf16>} : () -> tensor<bf16>
  %small = nn.constant {value = dense<0.001953125> : tensor<bf16>} : () -> tensor<bf16>
  %0 = nn.add %one, %small : (tensor<bf16>, tensor<bf16>) -> tensor<bf16>
  %1 = nn.sub %0, %one : (tensor<bf16>, tensor<bf16>) -> tensor<bf16>
  return %1 : tensor<bf16>
}

// -----

// Weights stay in their file, symbolic sizes and growing expands on the device.
// CHECK-LABEL: func @stays
// CHECK: nn.add
// CHECK: nn.iota
// CHECK: nn.expand
func.func @stays(%x: tensor<?xi64> {nn.dims = ["s"]}) -> (tensor<4xf32>, tensor<?xi64>, tensor<8x4xf32>) {
  %w = nn.weight {name = "w", path = "m.onnx", offset = 0 : i64, length = 16 : i64} : () -> tensor<4xf32>
  %one = nn.constant {value = dense<1.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %0 = nn.add %w, %one : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %step = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %1 = nn.iota %zero, %step {size = ["s"]} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
  %2 = nn.expand %one {shape = [8, 4]} : (tensor<4xf32>) -> tensor<8x4xf32>
  return %0, %1, %2 : tensor<4xf32>, tensor<?xi64>, tensor<8x4xf32>
}
