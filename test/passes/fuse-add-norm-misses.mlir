// RUN: fusion-opt %s --fuse-add-norm --split-input-file 2>&1 >/dev/null | FileCheck %s

// CHECK: add_norm missed at {{.*}}: operand 0 of nn.rms_norm is produced by nn.silu, pattern wants nn.add [add_norm.pdll:
func.func @structure(%x: tensor<?x128xf32>, %w: tensor<128xf32>) -> tensor<?x128xf32> {
  %s = nn.silu %x : (tensor<?x128xf32>) -> tensor<?x128xf32>
  %n = nn.rms_norm %s, %w {eps = 1.0e-6 : f32} : (tensor<?x128xf32>, tensor<128xf32>) -> tensor<?x128xf32>
  return %n : tensor<?x128xf32>
}

// -----

// CHECK: add_norm missed at {{.*}}: operand 0 of nn.rms_norm is a graph input, pattern wants nn.add
func.func @input(%x: tensor<?x128xf32>, %w: tensor<128xf32>) -> tensor<?x128xf32> {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x128xf32>, tensor<128xf32>) -> tensor<?x128xf32>
  return %n : tensor<?x128xf32>
}

// -----

// CHECK: add_norm missed at {{.*}}: guard StaticLastDim: the last dim of {{.*}} is known only at run time
func.func @guard(%x: tensor<?x?xf32>, %w: tensor<?xf32>) -> tensor<?x?xf32> {
  %s = nn.add %x, %x : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %n = nn.rms_norm %s, %w {eps = 1.0e-6 : f32} : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
  return %n : tensor<?x?xf32>
}

// -----

// CHECK: add_norm missed at {{.*}}: not convex: nn.rms_norm reads nn.reduce
func.func @convexity(%x: tensor<128x128xf32>, %r: tensor<128x128xf32>) -> tensor<128x128xf32> {
  %s = nn.add %x, %r : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %w = nn.reduce %s {kind = "mean", axes = array<i64: 0>, keepdims = false} : (tensor<128x128xf32>) -> tensor<128xf32>
  %n = nn.rms_norm %s, %w {eps = 1.0e-6 : f32} : (tensor<128x128xf32>, tensor<128xf32>) -> tensor<128x128xf32>
  return %n : tensor<128x128xf32>
}
