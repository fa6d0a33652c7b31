// Every fired and every missed root is an MLIR remark, in the fuse phase and in a family's own pass.
// RUN: fusion-opt %s --fuse --remarks-filter=fuse -o %t.mlir 2>&1 | FileCheck %s
// RUN: fusion-opt %s --fuse --remarks-filter-missed=fuse -o %t.mlir 2>&1 | FileCheck %s --check-prefix=MISSED
// RUN: fusion-opt %s --fuse-add-norm --remarks-filter-passed=fuse 2>&1 >/dev/null | FileCheck %s --check-prefix=PASS
// RUN: fusion-opt %s --fuse --remarks-filter-passed=raise -o %t.mlir 2>&1 | FileCheck %s --check-prefix=RAISE
// RUN: fusion-opt %s --fuse --remarks-filter=fuse --remark-format=yaml --remarks-output-file=%t.yaml -o %t.mlir
// RUN: FileCheck %s --check-prefix=YAML < %t.yaml

// CHECK-DAG: [Analysis] add_norm | Category:fuse {{.*}}candidate at {{.*}} for schedule row
// CHECK-DAG: [Passed] add_norm | Category:fuse {{.*}}fused at {{.*}}: nn.silu, nn.add, nn.rms_norm
// CHECK-DAG: [Missed] norm_quant | Category:fuse {{.*}}nn.quantize is a graph input, pattern wants a norm

// MISSED-NOT: [Passed]
// MISSED: [Missed] norm_quant | Category:fuse
// MISSED-NOT: [Passed]

// PASS: [Passed] add_norm | Category:fuse {{.*}}nn.add, nn.rms_norm

// RAISE: [Passed] silu | Category:raise {{.*}}nn.mul

// YAML-DAG: --- !Missed
// YAML-DAG: --- !Passed
func.func @main(%x: tensor<?x128xf32> {nn.dims = ["s", 128]}, %r: tensor<?x128xf32> {nn.dims = ["s", 128]},
                %w: tensor<128xf32>, %s: tensor<f32>)
    -> (tensor<?x128xf32>, tensor<?x128xi8>) {
  %0 = nn.sigmoid %x : (tensor<?x128xf32>) -> tensor<?x128xf32>
  %1 = nn.mul %x, %0 : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %2 = nn.add %1, %r : (tensor<?x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  %3 = nn.rms_norm %2, %w {eps = 1.0e-6 : f32} : (tensor<?x128xf32>, tensor<128xf32>) -> tensor<?x128xf32>
  %4 = nn.quantize %r, %s : (tensor<?x128xf32>, tensor<f32>) -> tensor<?x128xi8>
  return %3, %4 : tensor<?x128xf32>, tensor<?x128xi8>
}
