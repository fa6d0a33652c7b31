// RUN: fusion-opt %s --split-input-file --verify-diagnostics

func.func @yield_types(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{fusion.yield does not have the types of the results}}
  %r = fusion.group "p" schedule "pointwise" (%a = %x) : (tensor<4xf32>) -> tensor<4xf32> {
    %0 = nn.cast %a : (tensor<4xf32>) -> tensor<4xf16>
    fusion.yield %0 : tensor<4xf16>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @isolated(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  // expected-note @+1 {{required by region isolation constraints}}
  %r = fusion.group "p" schedule "pointwise" (%a = %x) : (tensor<4xf32>) -> tensor<4xf32> {
    // expected-error @+1 {{using value defined outside the region}}
    %0 = nn.add %a, %y : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    fusion.yield %0 : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @nested(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{holds fusion.group, which is not an op of a graph}}
  %r = fusion.group "p" schedule "pointwise" (%a = %x) : (tensor<4xf32>) -> tensor<4xf32> {
    %s = fusion.group "p" schedule "pointwise" (%b = %a) : (tensor<4xf32>) -> tensor<4xf32> {
      %0 = nn.neg %b : (tensor<4xf32>) -> tensor<4xf32>
      fusion.yield %0 : tensor<4xf32>
    }
    fusion.yield %s : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @operand_types(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{expected as many operand types as operands}}
  %r = fusion.group "p" schedule "pointwise" (%a = %x) : () -> tensor<4xf32> {
    fusion.yield %a : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
