// RUN: fusion-opt %s --nn-fold-positions --split-input-file | FileCheck %s

// What transformers print to find packed sequences: consecutive positions differ by one, so there is one sequence.
// CHECK-LABEL: func @packed_sequences
// CHECK: %[[T:.*]] = nn.constant {value = dense<true> : tensor<i1>}
// CHECK: %[[E:.*]] = nn.expand %[[T]] {shape = ["b", 1, "s", "s"]}
// CHECK: return %[[E]]
func.func @packed_sequences(%x: tensor<?x?xi64> {nn.dims = ["b", "s"]}, %rows: tensor<?x1x?x1x2xi64> {nn.dims = ["b", 1, "s", 1, 2]},
                            %cols: tensor<?x1x1x?x2xi64> {nn.dims = ["b", 1, 1, "s", 2]}) -> tensor<?x1x?x?xi1> {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %r = nn.iota %zero, %one {size = ["s"]} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
  %u = nn.reshape %r {shape = [1, "s"]} : (tensor<?xi64>) -> tensor<1x?xi64>
  %e = nn.expand %u {shape = ["b", "s"]} : (tensor<1x?xi64>) -> tensor<?x?xi64>
  %f = nn.slice %e {starts = [0, 0], sizes = ["b", 1], steps = array<i64: 1, 1>} : (tensor<?x?xi64>) -> tensor<?x1xi64>
  %p = nn.sub %f, %one : (tensor<?x1xi64>, tensor<i64>) -> tensor<?x1xi64>
  %c = nn.concat %p, %e {axis = -1 : i64} : (tensor<?x1xi64>, tensor<?x?xi64>) -> tensor<?x?xi64>
  %a = nn.slice %c {starts = [0, 0], sizes = ["b", "s"], steps = array<i64: 1, 1>} : (tensor<?x?xi64>) -> tensor<?x?xi64>
  %d = nn.sub %e, %a : (tensor<?x?xi64>, tensor<?x?xi64>) -> tensor<?x?xi64>
  %eq = nn.equal %d, %one : (tensor<?x?xi64>, tensor<i64>) -> tensor<?x?xi1>
  %ne = nn.not %eq : (tensor<?x?xi1>) -> tensor<?x?xi1>
  %i = nn.cast %ne : (tensor<?x?xi1>) -> tensor<?x?xi64>
  %s = nn.cumsum %i {axis = -1 : i64, exclusive = false, reverse = false} : (tensor<?x?xi64>) -> tensor<?x?xi64>
  %g = nn.gather_nd %s, %rows {batch_dims = 0 : i64} : (tensor<?x?xi64>, tensor<?x1x?x1x2xi64>) -> tensor<?x1x?x1xi64>
  %h = nn.gather_nd %s, %cols {batch_dims = 0 : i64} : (tensor<?x?xi64>, tensor<?x1x1x?x2xi64>) -> tensor<?x1x1x?xi64>
  %m = nn.equal %g, %h : (tensor<?x1x?x1xi64>, tensor<?x1x1x?xi64>) -> tensor<?x1x?x?xi1>
  return %m : tensor<?x1x?x?xi1>
}

// -----

// A new token sees its whole past, and nothing beyond it.
// CHECK-LABEL: func @decode
// CHECK-DAG: %[[T:.*]] = nn.constant {value = dense<true>
// CHECK-DAG: %[[F:.*]] = nn.constant {value = dense<false>
// CHECK-DAG: nn.expand %[[T]] {shape = ["past + 1"]}
// CHECK-DAG: nn.expand %[[F]] {shape = ["past + 1"]}
func.func @decode(%x: tensor<?xf32> {nn.dims = ["past"]}) -> (tensor<?xi1>, tensor<?xi1>) {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %p = nn.dim_constant {values = ["past"]} : () -> tensor<i64>
  %r = nn.iota %zero, %one {size = ["past + 1"]} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
  %0 = nn.less_equal %r, %p : (tensor<?xi64>, tensor<i64>) -> tensor<?xi1>
  %1 = nn.greater %r, %p : (tensor<?xi64>, tensor<i64>) -> tensor<?xi1>
  return %0, %1 : tensor<?xi1>, tensor<?xi1>
}

// -----

// Undecided: it depends on the index, on a size, or on data.
// CHECK-LABEL: func @undecided
// CHECK: nn.less_equal
// CHECK: nn.less
// CHECK: nn.equal
func.func @undecided(%x: tensor<?xi64> {nn.dims = ["s"]}) -> (tensor<?x?xi1>, tensor<?xi1>, tensor<?xi1>) {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %eight = nn.constant {value = dense<8> : tensor<i64>} : () -> tensor<i64>
  %r = nn.iota %zero, %one {size = ["s"]} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
  %q = nn.reshape %r {shape = ["s", 1]} : (tensor<?xi64>) -> tensor<?x1xi64>
  %0 = nn.less_equal %r, %q : (tensor<?xi64>, tensor<?x1xi64>) -> tensor<?x?xi1>
  %1 = nn.less %r, %eight : (tensor<?xi64>, tensor<i64>) -> tensor<?xi1>
  %2 = nn.equal %x, %r : (tensor<?xi64>, tensor<?xi64>) -> tensor<?xi1>
  return %0, %1, %2 : tensor<?x?xi1>, tensor<?xi1>, tensor<?xi1>
}

// -----

// In i8 127 + 1 is -128, and in ui8 0 - 1 is 255: positions that wrap around are no positions.
// CHECK-LABEL: func @wraps
// CHECK-DAG: nn.greater %{{.*}} : (tensor<4xi8>, tensor<i8>)
// CHECK-DAG: nn.less %{{.*}} : (tensor<4xui8>, tensor<ui8>)
// CHECK-DAG: nn.greater %{{.*}} : (tensor<?xi8>, tensor<i8>)
// CHECK-DAG: nn.less %{{.*}} : (tensor<4xui64>, tensor<ui64>)
func.func @wraps(%x: tensor<?xf32> {nn.dims = ["s"]}) -> (tensor<4xi1>, tensor<4xi1>, tensor<?xi1>, tensor<4xi1>) {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %r = nn.iota %zero, %one {size = [4]} : (tensor<i64>, tensor<i64>) -> tensor<4xi64>
  %most = nn.constant {value = dense<127> : tensor<i8>} : () -> tensor<i8>
  %low = nn.constant {value = dense<-1> : tensor<i8>} : () -> tensor<i8>
  %r8 = nn.cast %r : (tensor<4xi64>) -> tensor<4xi8>
  %s8 = nn.add %r8, %most : (tensor<4xi8>, tensor<i8>) -> tensor<4xi8>
  %0 = nn.greater %s8, %low : (tensor<4xi8>, tensor<i8>) -> tensor<4xi1>
  %u1 = nn.constant {value = dense<1> : tensor<ui8>} : () -> tensor<ui8>
  %u9 = nn.constant {value = dense<9> : tensor<ui8>} : () -> tensor<ui8>
  %ru = nn.cast %r : (tensor<4xi64>) -> tensor<4xui8>
  %d8 = nn.sub %ru, %u1 : (tensor<4xui8>, tensor<ui8>) -> tensor<4xui8>
  %1 = nn.less %d8, %u9 : (tensor<4xui8>, tensor<ui8>) -> tensor<4xi1>
  %n = nn.iota %zero, %one {size = ["s"]} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
  %n8 = nn.cast %n : (tensor<?xi64>) -> tensor<?xi8>
  %2 = nn.greater %n8, %low : (tensor<?xi8>, tensor<i8>) -> tensor<?xi1>
  %v1 = nn.constant {value = dense<1> : tensor<ui64>} : () -> tensor<ui64>
  %v9 = nn.constant {value = dense<9> : tensor<ui64>} : () -> tensor<ui64>
  %rv = nn.cast %r : (tensor<4xi64>) -> tensor<4xui64>
  %dv = nn.sub %rv, %v1 : (tensor<4xui64>, tensor<ui64>) -> tensor<4xui64>
  %3 = nn.less %dv, %v9 : (tensor<4xui64>, tensor<ui64>) -> tensor<4xi1>
  return %0, %1, %2, %3 : tensor<4xi1>, tensor<4xi1>, tensor<?xi1>, tensor<4xi1>
}

// -----

// What fits stays known: in i8 0 to 3 is above -1.
// CHECK-LABEL: func @fits
// CHECK-NOT: nn.greater
func.func @fits() -> tensor<4xi1> {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %r = nn.iota %zero, %one {size = [4]} : (tensor<i64>, tensor<i64>) -> tensor<4xi64>
  %low = nn.constant {value = dense<-1> : tensor<i8>} : () -> tensor<i8>
  %r8 = nn.cast %r : (tensor<4xi64>) -> tensor<4xi8>
  %0 = nn.greater %r8, %low : (tensor<4xi8>, tensor<i8>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}
