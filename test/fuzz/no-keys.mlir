// Attention over no keys at all, at p = 0: zeros, as a product of no terms is, not NaN.
// RUN: fusion-fuzz %s --seed=1 --device=emulate

func.func @main(%q: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "s", 16], nn.name = "q"},
    %k: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "p", 16], nn.name = "k"},
    %v: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "p", 16], nn.name = "v"})
    -> (tensor<?x4x?x16xf16>) {
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xf16>, tensor<?x4x?x16xf16>) -> (tensor<?x4x?x?xf16>)
  %1 = nn.softmax %0 {axis = -1 : i64} : (tensor<?x4x?x?xf16>) -> (tensor<?x4x?x?xf16>)
  %2 = nn.matmul %1, %v : (tensor<?x4x?x?xf16>, tensor<?x4x?x16xf16>) -> (tensor<?x4x?x16xf16>)
  return %2 : tensor<?x4x?x16xf16>
}
