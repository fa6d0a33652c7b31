// RUN: fusion-opt %s --split-input-file --verify-diagnostics

// expected-error @+1 {{nn.mesh is for functions and gives each axis a positive size: {tp = 4 : i64}}}
func.func @no_dictionary(%x: tensor<4xf32>) -> tensor<4xf32> attributes {nn.mesh = 2 : i64} {
  return %x : tensor<4xf32>
}

// -----

// expected-error @+1 {{nn.mesh is for functions and gives each axis a positive size}}
func.func @no_ranks(%x: tensor<4xf32>) -> tensor<4xf32> attributes {nn.mesh = {tp = 0 : i64}} {
  return %x : tensor<4xf32>
}

// -----

// expected-error @+1 {{nn.mesh is for functions and gives each axis a positive size}}
func.func @no_axis(%x: tensor<4xf32>) -> tensor<4xf32> attributes {nn.mesh = {}} {
  return %x : tensor<4xf32>
}

// -----

func.func @good(%x: tensor<4xf32>) -> tensor<4xf32> attributes {nn.mesh = {ep = 2 : i64, tp = 4 : i64}} {
  return %x : tensor<4xf32>
}
