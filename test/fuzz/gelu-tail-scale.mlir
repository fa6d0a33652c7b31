// Rows that are nothing but GELU's tail: 0 in the kernel, and 1e-26 in the reference. The scale of such a row is 1
// or tiny.
// RUN: fusion-fuzz %s --seed=605263 --device=emulate

func.func @main(%v1: tensor<?x?x40xf32> {nn.dims = ["b", "s", 40], nn.name = "v1"})
    -> (tensor<?x?x40xf8E5M2>, tensor<?x?x1xf32>) {
  %v2 = nn.reduce %v1 {kind = "sum", axes = array<i64: -1>, keepdims = true} : (tensor<?x?x40xf32>) -> (tensor<?x?x1xf32>)
  %v3 = nn.add %v1, %v2 : (tensor<?x?x40xf32>, tensor<?x?x1xf32>) -> (tensor<?x?x40xf32>)
  %v4 = nn.gelu %v3 : (tensor<?x?x40xf32>) -> (tensor<?x?x40xf32>)
  %v6, %v7 = nn.dynamic_quantize %v4 : (tensor<?x?x40xf32>) -> (tensor<?x?x40xf8E5M2>, tensor<?x?x1xf32>)
  return %v6, %v7 : tensor<?x?x40xf8E5M2>, tensor<?x?x1xf32>
}
