// RUN: fusion-opt %s --quiet --fuse --profit=model | FileCheck %s
// RUN: fusion-opt %s --quiet --fuse --profit=model --emit=plan | FileCheck %s --check-prefix=PLAN
// RUN: fusion-opt %s --quiet --fuse --profit=model --fuse-disable=latent_attention | FileCheck %s --check-prefix=APART
// RUN: fusion-opt %s --quiet --fuse --profit=model --target=sm_80 --report=%t.md | FileCheck %s --check-prefix=APART
// RUN: FileCheck %s --check-prefix=MISS < %t.md
// RUN: sed 's/bf16/f32/g' %s > %t.mlir
// RUN: fusion-opt %t.mlir --quiet --fuse --profit=model --report=%t.md | FileCheck %s --check-prefix=APART
// RUN: FileCheck %s --check-prefix=F32 < %t.md

// The number of pairs decides how many share the keys of one; up to seven of them have several clusters.
// PLAN: attention_latent_bf16_d576
// PLAN: attention_latent_merge_bf16_d576

// Without a kernel the caches are not copied: a matmul for each, which adds the other's.
// APART-NOT: nn.attention
// APART: nn.matmul {{.*}}x64x{{[a-z0-9]+}}>) -> {{.*}}f32>
// APART: nn.matmul {{.*}}x512x{{[a-z0-9]+}}>) -> {{.*}}f32>
// APART-NOT: nn.attention

// MISS: latent_attention
// MISS: heads of 576 and 512 columns, more than 256, have kernels on sm_90a only |
// F32: latent_attention
// F32: f32 has no matrix products

// CHECK-NOT: nn.concat
// CHECK: fusion.group "latent_attention" schedule "attention" (%{{.*}} = %arg0, %{{.*}} = %arg1, %{{.*}} = %arg2, %{{.*}} = %arg3)
// CHECK: nn.concat
// CHECK: nn.concat
// CHECK: nn.attention
// CHECK: fusion.yield
func.func @two_caches(%qn: tensor<?x16x1x512xbf16> {nn.dims = ["b", 16, 1, 512]}, %qr: tensor<?x16x1x64xbf16> {nn.dims = ["b", 16, 1, 64]},
                      %kv: tensor<?x1x?x512xbf16> {nn.dims = ["b", 1, "t", 512]}, %kr: tensor<?x1x?x64xbf16> {nn.dims = ["b", 1, "t", 64]}) -> tensor<?x16x1x512xbf16> {
  %q = nn.concat %qn, %qr {axis = 3 : i64} : (tensor<?x16x1x512xbf16>, tensor<?x16x1x64xbf16>) -> tensor<?x16x1x576xbf16>
  %k = nn.concat %kv, %kr {axis = 3 : i64} : (tensor<?x1x?x512xbf16>, tensor<?x1x?x64xbf16>) -> tensor<?x1x?x576xbf16>
  %y = nn.attention %q, %k, %kv {scale = 0.1 : f32} : (tensor<?x16x1x576xbf16>, tensor<?x1x?x576xbf16>, tensor<?x1x?x512xbf16>) -> tensor<?x16x1x512xbf16>
  return %y : tensor<?x16x1x512xbf16>
}
