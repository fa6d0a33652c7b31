// RUN: fusion-opt %s --quiet --fuse --profit=model | FileCheck %s
// RUN: fusion-opt %s --quiet --fuse --profit=model --target=sm_100a | FileCheck %s --check-prefix=APART

// Of one cache the values are a view: the op is a kernel by itself.
// CHECK: nn.slice
// CHECK-NEXT: nn.attention
// CHECK-NOT: nn.matmul
// APART: nn.matmul
// APART: nn.matmul
func.func @one_cache(%q: tensor<?x16x1x576xbf16> {nn.dims = ["b", 16, 1, 576]}, %k: tensor<?x1x?x576xbf16> {nn.dims = ["b", 1, "t", 576]}) -> tensor<?x16x1x512xbf16> {
  %v = nn.slice %k {starts = [0, 0, 0, 0], sizes = ["b", 1, "t", 512], steps = array<i64: 1, 1, 1, 1>} : (tensor<?x1x?x576xbf16>) -> tensor<?x1x?x512xbf16>
  %y = nn.attention %q, %k, %v {scale = 0.1 : f32} : (tensor<?x16x1x576xbf16>, tensor<?x1x?x576xbf16>, tensor<?x1x?x512xbf16>) -> tensor<?x16x1x512xbf16>
  return %y : tensor<?x16x1x512xbf16>
}
