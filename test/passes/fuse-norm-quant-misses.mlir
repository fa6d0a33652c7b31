// RUN: fusion-opt %s --fuse-norm-quant --split-input-file 2>&1 >/dev/null | FileCheck %s

// CHECK: norm_quant missed at {{.*}}: operand 0 of nn.quantize is a graph input, pattern wants a norm (nn.layer_norm, nn.rms_norm) [norm_quant.pdll:
func.func @input(%x: tensor<?x128xf32>, %s: tensor<f32>) -> tensor<?x128xi8> {
  %q = nn.quantize %x, %s : (tensor<?x128xf32>, tensor<f32>) -> tensor<?x128xi8>
  return %q : tensor<?x128xi8>
}

// -----

// CHECK: norm_quant missed at {{.*}}: guard StaticLastDim: the last dim of {{.*}} is known only at run time
func.func @dynamic_width(%x: tensor<?x?xf32>, %w: tensor<?xf32>, %s: tensor<f32>) -> tensor<?x?xi8> {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
  %q = nn.quantize %n, %s : (tensor<?x?xf32>, tensor<f32>) -> tensor<?x?xi8>
  return %q : tensor<?x?xi8>
}

// -----

// CHECK: norm_quant missed at {{.*}}: no schedule: {{.*}}only powers of two
func.func @odd_groups(%x: tensor<?x96xf32>, %w: tensor<96xf32>) -> (tensor<?x96xi8>, tensor<?x4xf32>) {
  %n = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x96xf32>, tensor<96xf32>) -> tensor<?x96xf32>
  %q, %s = nn.dynamic_quantize %n {group_size = 24 : i64} : (tensor<?x96xf32>) -> (tensor<?x96xi8>, tensor<?x4xf32>)
  return %q, %s : tensor<?x96xi8>, tensor<?x4xf32>
}
