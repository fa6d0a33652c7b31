// RUN: fusion-opt %s --split-input-file --verify-diagnostics

func.func @broadcast(%a: tensor<3xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{cannot broadcast sizes 3 and 4}}
  %0 = nn.add %a, %b : (tensor<3xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @element_types(%a: tensor<4xf32>, %b: tensor<4xf16>) -> tensor<4xf32> {
  // expected-error @+1 {{operands have different element types}}
  %0 = nn.add %a, %b : (tensor<4xf32>, tensor<4xf16>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @result(%a: tensor<4xf32>) -> tensor<5xf32> {
  // expected-error @+1 {{result 0 is 'tensor<5xf32>' but the operands give 'tensor<4xf32>'}}
  %0 = nn.neg %a : (tensor<4xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// -----

func.func @inner(%a: tensor<2x3xf32>, %b: tensor<4x5xf32>) -> tensor<2x5xf32> {
  // expected-error @+1 {{inner sizes 3 and 4 differ}}
  %0 = nn.matmul %a, %b : (tensor<2x3xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>
  return %0 : tensor<2x5xf32>
}

// -----

func.func @norm_weight(%a: tensor<2x3xf32>, %w: tensor<4xf32>) -> tensor<2x3xf32> {
  // expected-error @+1 {{sizes 4 and 3 differ}}
  %0 = nn.rms_norm %a, %w {eps = 1.0e-6 : f32} : (tensor<2x3xf32>, tensor<4xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

func.func @reshape(%a: tensor<2x3xf32>) -> tensor<5xf32> {
  // expected-error @+1 {{reshape of 6 elements to 5}}
  %0 = nn.reshape %a {shape = [5]} : (tensor<2x3xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// -----

func.func @slice_of_impossible_size(%a: tensor<4xf32>) -> tensor<3xf32> {
  // expected-error @+1 {{dim 0 of size 4 sliced out of range}}
  %0 = nn.slice %a {starts = [0], sizes = [-9223372036854775808], steps = array<i64: 1>} : (tensor<4xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// -----

func.func @slice(%a: tensor<4xf32>) -> tensor<3xf32> {
  // expected-error @+1 {{dim 0 of size 4 sliced out of range}}
  %0 = nn.slice %a {starts = [2], sizes = [3], steps = array<i64: 1>} : (tensor<4xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// -----

func.func @axis(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{axis 1 is out of range for rank 1}}
  %0 = nn.softmax %a {axis = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @heads(%q: tensor<1x4x2x8xf32>, %k: tensor<1x3x2x8xf32>) -> tensor<1x4x2x8xf32> {
  // expected-error @+1 {{the number of heads is not a multiple of the number of key/value heads}}
  %0 = nn.attention %q, %k, %k {scale = 1.0 : f32} : (tensor<1x4x2x8xf32>, tensor<1x3x2x8xf32>, tensor<1x3x2x8xf32>) -> tensor<1x4x2x8xf32>
  return %0 : tensor<1x4x2x8xf32>
}

// -----

func.func @weight() -> tensor<128xbf16> {
  // expected-error @+1 {{length is 255 bytes but the type needs 256}}
  %w = nn.weight {name = "w", path = "model.onnx", offset = 0 : i64, length = 255 : i64} : () -> tensor<128xbf16>
  return %w : tensor<128xbf16>
}

// -----

func.func @dims(%a: tensor<?x4xf32>) -> tensor<?xf32> {
  // expected-error @+1 {{array of integers and symbolic dims}}
  %0 = nn.reshape %a {shape = ["4*("]} : (tensor<?x4xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

func.func @empty_table(%a: tensor<0x2xf32>, %i: tensor<1xi64>) -> tensor<1x2xf32> {
  // expected-error @+1 {{reads an empty dim}}
  %0 = nn.gather %a, %i {axis = 0 : i64} : (tensor<0x2xf32>, tensor<1xi64>) -> tensor<1x2xf32>
  return %0 : tensor<1x2xf32>
}

// -----

func.func @more_indices_than_elements(%a: tensor<4x2xf32>, %i: tensor<1x3xi64>) -> tensor<1x3xf32> {
  // expected-error @+1 {{dim 1 of the indices is longer than that of x}}
  %0 = nn.gather_elements %a, %i {axis = 0 : i64} : (tensor<4x2xf32>, tensor<1x3xi64>) -> tensor<1x3xf32>
  return %0 : tensor<1x3xf32>
}

// -----

func.func @slice_from_behind_the_end(%a: tensor<4x?xf32>) -> tensor<0x2xf32> {
  // expected-error @+1 {{dim 0 sliced out of range}}
  %0 = nn.slice %a {starts = [6, 0], sizes = [0, 2], steps = array<i64: 1, 1>} : (tensor<4x?xf32>) -> tensor<0x2xf32>
  return %0 : tensor<0x2xf32>
}

// -----

// Both ends of a slice are within the dim, whichever way it goes.
func.func @slice_backwards_from_behind_the_end(%a: tensor<4x?xf32>) -> tensor<0x2xf32> {
  // expected-error @+1 {{dim 0 sliced out of range}}
  %0 = nn.slice %a {starts = [6, 0], sizes = [0, 2], steps = array<i64: -1, 1>} : (tensor<4x?xf32>) -> tensor<0x2xf32>
  return %0 : tensor<0x2xf32>
}

// -----

func.func @slice_from_before_the_start(%a: tensor<4x?xf32>) -> tensor<0x2xf32> {
  // expected-error @+1 {{dim 0 sliced out of range}}
  %0 = nn.slice %a {starts = [-1, 0], sizes = [0, 2], steps = array<i64: 1, 1>} : (tensor<4x?xf32>) -> tensor<0x2xf32>
  return %0 : tensor<0x2xf32>
}

// -----

func.func @uncountable(%a: tensor<0xf32>) {
  // expected-error @+1 {{result 0 has the impossible type 'tensor<4294967296x4294967296xf32>'}}
  %0 = nn.reshape %a {shape = [4294967296, 4294967296]} : (tensor<0xf32>) -> tensor<4294967296x4294967296xf32>
  return
}

// -----

func.func @pads_that_wrap(%a: tensor<4xf32>, %v: tensor<f32>) -> tensor<2xf32> {
  // expected-error @+1 {{low or high is out of range}}
  %0 = nn.pad %a, %v {low = [9223372036854775807], high = [9223372036854775807]} : (tensor<4xf32>, tensor<f32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

func.func @bits_of_another_width(%a: tensor<4xf32>) -> tensor<4xi64> {
  // expected-error @+1 {{the bits of f32 are not those of a i64}}
  %0 = nn.bitcast %a : (tensor<4xf32>) -> tensor<4xi64>
  return %0 : tensor<4xi64>
}

// -----

func.func @bits_that_registers_lose(%a: tensor<4xf8E5M2>) -> tensor<4xi8> {
  // expected-error @+1 {{the bits of f8E5M2 are not those of a i8}}
  %0 = nn.bitcast %a : (tensor<4xf8E5M2>) -> tensor<4xi8>
  return %0 : tensor<4xi8>
}

// -----

func.func @groups_of_equal_size(%a: tensor<4x12xf32>) -> tensor<4x12xf32> {
  // expected-error @+1 {{5 groups of equal size in 12}}
  %0 = nn.limit_groups %a {groups = 5 : i64, kept = 2 : i64, summed = 1 : i64, other = 0.0 : f32} : (tensor<4x12xf32>) -> tensor<4x12xf32>
  return %0 : tensor<4x12xf32>
}

// -----

func.func @groups_kept(%a: tensor<4x12xf32>) -> tensor<4x12xf32> {
  // expected-error @+1 {{5 groups of 4 are kept}}
  %0 = nn.limit_groups %a {groups = 4 : i64, kept = 5 : i64, summed = 1 : i64, other = 0.0 : f32} : (tensor<4x12xf32>) -> tensor<4x12xf32>
  return %0 : tensor<4x12xf32>
}

// -----

func.func @groups_scored(%a: tensor<4x12xf32>) -> tensor<4x12xf32> {
  // expected-error @+1 {{the largest 4 elements of a group of 3}}
  %0 = nn.limit_groups %a {groups = 4 : i64, kept = 2 : i64, summed = 4 : i64, other = 0.0 : f32} : (tensor<4x12xf32>) -> tensor<4x12xf32>
  return %0 : tensor<4x12xf32>
}

// -----

func.func @groups_of_a_run(%a: tensor<4x?xf32>) -> tensor<4x?xf32> {
  // expected-error @+1 {{4 groups of equal size in}}
  %0 = nn.limit_groups %a {groups = 4 : i64, kept = 2 : i64, summed = 1 : i64, other = 0.0 : f32} : (tensor<4x?xf32>) -> tensor<4x?xf32>
  return %0 : tensor<4x?xf32>
}
