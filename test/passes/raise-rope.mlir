// RUN: fusion-opt %s --nn-raise-rope --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-raise-rope --split-input-file --remarks-filter-missed=raise 2>&1 | FileCheck %s --check-prefix=MISS

// CHECK-LABEL: func @half
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x4x?x32xf16> {{.*}}, %[[C:[a-z0-9]*]]: tensor<1x1x?x32xf16> {{.*}}, %[[S:[a-z0-9]*]]: tensor<1x1x?x32xf16>
// CHECK-NEXT: %[[R:.*]] = nn.rope %[[X]], %[[C]], %[[S]] {interleaved = false, rotary_dim = 32 : i64}
// CHECK-NEXT: return %[[R]]
func.func @half(%x: tensor<?x4x?x32xf16> {nn.dims = ["b", 4, "s", 32]}, %cos: tensor<1x1x?x32xf16> {nn.dims = [1, 1, "s", 32]},
                %sin: tensor<1x1x?x32xf16> {nn.dims = [1, 1, "s", 32]}) -> tensor<?x4x?x32xf16> {
  %0 = nn.mul %x, %cos : (tensor<?x4x?x32xf16>, tensor<1x1x?x32xf16>) -> tensor<?x4x?x32xf16>
  %lo = nn.slice %x {starts = [0, 0, 0, 0], sizes = ["b", 4, "s", 16], steps = array<i64: 1, 1, 1, 1>} : (tensor<?x4x?x32xf16>) -> tensor<?x4x?x16xf16>
  %hi = nn.slice %x {starts = [0, 0, 0, 16], sizes = ["b", 4, "s", 16], steps = array<i64: 1, 1, 1, 1>} : (tensor<?x4x?x32xf16>) -> tensor<?x4x?x16xf16>
  %n = nn.neg %hi : (tensor<?x4x?x16xf16>) -> tensor<?x4x?x16xf16>
  %c = nn.concat %n, %lo {axis = -1 : i64} : (tensor<?x4x?x16xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x32xf16>
  %1 = nn.mul %c, %sin : (tensor<?x4x?x32xf16>, tensor<1x1x?x32xf16>) -> tensor<?x4x?x32xf16>
  %2 = nn.add %0, %1 : (tensor<?x4x?x32xf16>, tensor<?x4x?x32xf16>) -> tensor<?x4x?x32xf16>
  return %2 : tensor<?x4x?x32xf16>
}

// -----

// Every product and sum commuted.
// CHECK-LABEL: func @commuted
// CHECK-NEXT: nn.rope
// CHECK-NEXT: return
func.func @commuted(%x: tensor<2x4x8xf32>, %cos: tensor<4x8xf32>, %sin: tensor<4x8xf32>) -> tensor<2x4x8xf32> {
  %0 = nn.mul %cos, %x : (tensor<4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %lo = nn.slice %x {starts = [0, 0, 0], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %hi = nn.slice %x {starts = [0, 0, 4], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %n = nn.neg %hi : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %c = nn.concat %n, %lo {axis = 2 : i64} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x8xf32>
  %1 = nn.mul %sin, %c : (tensor<4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %2 = nn.add %1, %0 : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %2 : tensor<2x4x8xf32>
}

// -----

// a cos - b sin beside b cos + a sin, one table entry a pair.
// CHECK-LABEL: func @two_halves
// CHECK-NEXT: nn.rope %{{.*}} {interleaved = false, rotary_dim = 8 : i64} : (tensor<2x4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x8xf32>
// CHECK-NEXT: return
func.func @two_halves(%x: tensor<2x4x8xf32>, %cos: tensor<4x4xf32>, %sin: tensor<4x4xf32>) -> tensor<2x4x8xf32> {
  %a = nn.slice %x {starts = [0, 0, 0], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %b = nn.slice %x {starts = [0, 0, 4], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %0 = nn.mul %a, %cos : (tensor<2x4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x4xf32>
  %1 = nn.mul %sin, %b : (tensor<4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %2 = nn.sub %0, %1 : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %3 = nn.mul %b, %cos : (tensor<2x4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x4xf32>
  %4 = nn.mul %a, %sin : (tensor<2x4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x4xf32>
  %5 = nn.add %4, %3 : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %6 = nn.concat %2, %5 {axis = 2 : i64} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x8xf32>
  return %6 : tensor<2x4x8xf32>
}

// -----

// GPT-J and GLM: strided slices, stacked and flattened.
// CHECK-LABEL: func @interleaved
// CHECK-NEXT: nn.rope %{{.*}} {interleaved = true, rotary_dim = 8 : i64}
// CHECK-NEXT: return
func.func @interleaved(%x: tensor<2x4x8xf32>, %cos: tensor<4x8xf32>, %sin: tensor<4x8xf32>) -> tensor<2x4x8xf32> {
  %even = nn.slice %x {starts = [0, 0, 0], sizes = [2, 4, 4], steps = array<i64: 1, 1, 2>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %odd = nn.slice %x {starts = [0, 0, 1], sizes = [2, 4, 4], steps = array<i64: 1, 1, 2>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %n = nn.neg %odd : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %nu = nn.reshape %n {shape = [2, 4, 4, 1]} : (tensor<2x4x4xf32>) -> tensor<2x4x4x1xf32>
  %eu = nn.reshape %even {shape = [2, 4, 4, 1]} : (tensor<2x4x4xf32>) -> tensor<2x4x4x1xf32>
  %s = nn.concat %nu, %eu {axis = -1 : i64} : (tensor<2x4x4x1xf32>, tensor<2x4x4x1xf32>) -> tensor<2x4x4x2xf32>
  %f = nn.reshape %s {shape = [2, 4, 8]} : (tensor<2x4x4x2xf32>) -> tensor<2x4x8xf32>
  %0 = nn.mul %x, %cos : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %1 = nn.mul %f, %sin : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %2 = nn.add %0, %1 : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %2 : tensor<2x4x8xf32>
}

// -----

// DeepSeek's MLA: pairs rotate, and lie as halves afterwards.
// CHECK-LABEL: func @pairs_to_halves
// CHECK-NEXT: %[[P:.*]] = nn.reshape %{{.*}} {shape = [2, 4, 4, 2]} : (tensor<2x4x8xf32>) -> tensor<2x4x4x2xf32>
// CHECK-NEXT: %[[T:.*]] = nn.transpose %[[P]] {perm = array<i64: 0, 1, 3, 2>} : (tensor<2x4x4x2xf32>) -> tensor<2x4x2x4xf32>
// CHECK-NEXT: %[[H:.*]] = nn.reshape %[[T]] {shape = [2, 4, 8]} : (tensor<2x4x2x4xf32>) -> tensor<2x4x8xf32>
// CHECK-NEXT: nn.rope %[[H]], %{{.*}} {interleaved = false, rotary_dim = 8 : i64} : (tensor<2x4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
// CHECK-NEXT: return
func.func @pairs_to_halves(%x: tensor<2x4x8xf32>, %cos: tensor<4x4xf32>, %sin: tensor<4x4xf32>) -> tensor<2x4x8xf32> {
  %a = nn.slice %x {starts = [0, 0, 0], sizes = [2, 4, 4], steps = array<i64: 1, 1, 2>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %b = nn.slice %x {starts = [0, 0, 1], sizes = [2, 4, 4], steps = array<i64: 1, 1, 2>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %0 = nn.mul %a, %cos : (tensor<2x4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x4xf32>
  %1 = nn.mul %b, %sin : (tensor<2x4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x4xf32>
  %2 = nn.sub %0, %1 : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %3 = nn.mul %b, %cos : (tensor<2x4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x4xf32>
  %4 = nn.mul %a, %sin : (tensor<2x4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x4xf32>
  %5 = nn.add %3, %4 : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %6 = nn.concat %2, %5 {axis = 2 : i64} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x8xf32>
  return %6 : tensor<2x4x8xf32>
}

// -----

// The other way round nobody writes it: halves rotate and lie as pairs afterwards.
// CHECK-LABEL: func @halves_to_pairs
// CHECK-NOT: nn.rope
func.func @halves_to_pairs(%x: tensor<2x4x8xf32>, %cos: tensor<4x4xf32>, %sin: tensor<4x4xf32>) -> tensor<2x4x8xf32> {
  %a = nn.slice %x {starts = [0, 0, 0], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %b = nn.slice %x {starts = [0, 0, 4], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %0 = nn.mul %a, %cos : (tensor<2x4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x4xf32>
  %1 = nn.mul %b, %sin : (tensor<2x4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x4xf32>
  %2 = nn.sub %0, %1 : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %3 = nn.mul %b, %cos : (tensor<2x4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x4xf32>
  %4 = nn.mul %a, %sin : (tensor<2x4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x4xf32>
  %5 = nn.add %3, %4 : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %6 = nn.reshape %2 {shape = [2, 4, 4, 1]} : (tensor<2x4x4xf32>) -> tensor<2x4x4x1xf32>
  %7 = nn.reshape %5 {shape = [2, 4, 4, 1]} : (tensor<2x4x4xf32>) -> tensor<2x4x4x1xf32>
  %8 = nn.concat %6, %7 {axis = 3 : i64} : (tensor<2x4x4x1xf32>, tensor<2x4x4x1xf32>) -> tensor<2x4x4x2xf32>
  %9 = nn.reshape %8 {shape = [2, 4, 8]} : (tensor<2x4x4x2xf32>) -> tensor<2x4x8xf32>
  return %9 : tensor<2x4x8xf32>
}

// -----

// Pairs in a dim of their own, products of each element.
// CHECK-LABEL: func @paired
// CHECK-NEXT: nn.rope %{{.*}} {interleaved = true, rotary_dim = 8 : i64} : (tensor<2x4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
// CHECK-NEXT: return
func.func @paired(%x: tensor<2x4x8xf32>, %cos: tensor<4x4xf32>, %sin: tensor<4x4xf32>) -> tensor<2x4x8xf32> {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %last = nn.constant {value = dense<-1> : tensor<i64>} : () -> tensor<i64>
  %p = nn.reshape %x {shape = [2, 4, 4, 2]} : (tensor<2x4x8xf32>) -> tensor<2x4x4x2xf32>
  %a = nn.gather %p, %zero {axis = 3 : i64} : (tensor<2x4x4x2xf32>, tensor<i64>) -> tensor<2x4x4xf32>
  %b = nn.gather %p, %last {axis = 3 : i64} : (tensor<2x4x4x2xf32>, tensor<i64>) -> tensor<2x4x4xf32>
  %0 = nn.mul %a, %cos : (tensor<2x4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x4xf32>
  %1 = nn.mul %b, %sin : (tensor<2x4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x4xf32>
  %2 = nn.sub %0, %1 : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %3 = nn.mul %b, %cos : (tensor<2x4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x4xf32>
  %4 = nn.mul %a, %sin : (tensor<2x4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x4xf32>
  %5 = nn.add %3, %4 : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %6 = nn.reshape %2 {shape = [2, 4, 4, 1]} : (tensor<2x4x4xf32>) -> tensor<2x4x4x1xf32>
  %7 = nn.reshape %5 {shape = [2, 4, 4, 1]} : (tensor<2x4x4xf32>) -> tensor<2x4x4x1xf32>
  %8 = nn.concat %6, %7 {axis = 3 : i64} : (tensor<2x4x4x1xf32>, tensor<2x4x4x1xf32>) -> tensor<2x4x4x2xf32>
  %9 = nn.reshape %8 {shape = [2, 4, 8]} : (tensor<2x4x4x2xf32>) -> tensor<2x4x8xf32>
  return %9 : tensor<2x4x8xf32>
}

// -----

// Phi, StableLM: the first 4 of 8 elements rotate; slices are composed already.
// CHECK-LABEL: func @partial
// CHECK-SAME: (%[[X:[a-z0-9]*]]:
// CHECK-NEXT: nn.rope %[[X]], %{{.*}} {interleaved = false, rotary_dim = 4 : i64} : (tensor<2x4x8xf16>, tensor<4x4xf16>, tensor<4x4xf16>) -> tensor<2x4x8xf16>
// CHECK-NEXT: return
func.func @partial(%x: tensor<2x4x8xf16>, %cos: tensor<4x4xf16>, %sin: tensor<4x4xf16>) -> tensor<2x4x8xf16> {
  %r = nn.slice %x {starts = [0, 0, 0], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf16>) -> tensor<2x4x4xf16>
  %p = nn.slice %x {starts = [0, 0, 4], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf16>) -> tensor<2x4x4xf16>
  %0 = nn.mul %r, %cos : (tensor<2x4x4xf16>, tensor<4x4xf16>) -> tensor<2x4x4xf16>
  %lo = nn.slice %x {starts = [0, 0, 0], sizes = [2, 4, 2], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf16>) -> tensor<2x4x2xf16>
  %hi = nn.slice %x {starts = [0, 0, 2], sizes = [2, 4, 2], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf16>) -> tensor<2x4x2xf16>
  %n = nn.neg %hi : (tensor<2x4x2xf16>) -> tensor<2x4x2xf16>
  %c = nn.concat %n, %lo {axis = -1 : i64} : (tensor<2x4x2xf16>, tensor<2x4x2xf16>) -> tensor<2x4x4xf16>
  %1 = nn.mul %c, %sin : (tensor<2x4x4xf16>, tensor<4x4xf16>) -> tensor<2x4x4xf16>
  %2 = nn.add %0, %1 : (tensor<2x4x4xf16>, tensor<2x4x4xf16>) -> tensor<2x4x4xf16>
  %3 = nn.concat %2, %p {axis = -1 : i64} : (tensor<2x4x4xf16>, tensor<2x4x4xf16>) -> tensor<2x4x8xf16>
  return %3 : tensor<2x4x8xf16>
}

// -----

// OLMo 2: rotated in f32 between casts.
// CHECK-LABEL: func @wide
// CHECK-NEXT: nn.rope %{{.*}} {compute = f32, interleaved = false, rotary_dim = 8 : i64} : (tensor<2x4x8xbf16>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xbf16>
// CHECK-NEXT: return
func.func @wide(%h: tensor<2x4x8xbf16>, %cos: tensor<4x8xf32>, %sin: tensor<4x8xf32>) -> tensor<2x4x8xbf16> {
  %x = nn.cast %h : (tensor<2x4x8xbf16>) -> tensor<2x4x8xf32>
  %0 = nn.mul %x, %cos : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %lo = nn.slice %x {starts = [0, 0, 0], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %hi = nn.slice %x {starts = [0, 0, 4], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %n = nn.neg %hi : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %c = nn.concat %n, %lo {axis = -1 : i64} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x8xf32>
  %1 = nn.mul %c, %sin : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %2 = nn.add %0, %1 : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %3 = nn.cast %2 : (tensor<2x4x8xf32>) -> tensor<2x4x8xbf16>
  return %3 : tensor<2x4x8xbf16>
}

// -----

// Another tensor is multiplied by cos.
// CHECK-LABEL: func @other_tensor
// CHECK-NOT: nn.rope
// MISS: are not those that are rotated
func.func @other_tensor(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>, %cos: tensor<4x8xf32>, %sin: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = nn.mul %y, %cos : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %lo = nn.slice %x {starts = [0, 0], sizes = [4, 4], steps = array<i64: 1, 1>} : (tensor<4x8xf32>) -> tensor<4x4xf32>
  %hi = nn.slice %x {starts = [0, 4], sizes = [4, 4], steps = array<i64: 1, 1>} : (tensor<4x8xf32>) -> tensor<4x4xf32>
  %n = nn.neg %hi : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = nn.concat %n, %lo {axis = 1 : i64} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x8xf32>
  %1 = nn.mul %c, %sin : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = nn.add %0, %1 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}

// -----

// One entry for the whole row, and no sum: not a rotation that nn.rope means.
// CHECK-LABEL: func @scalar_table
// CHECK-NOT: nn.rope
// MISS: cos or sin does not hold one entry for each of the 8 rotated elements
// MISS: do not meet x * cos in a sum with sin
func.func @scalar_table(%x: tensor<4x8xf32>, %cos: tensor<4x1xf32>, %sin: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %0 = nn.mul %x, %cos : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %lo = nn.slice %x {starts = [0, 0], sizes = [4, 4], steps = array<i64: 1, 1>} : (tensor<4x8xf32>) -> tensor<4x4xf32>
  %hi = nn.slice %x {starts = [0, 4], sizes = [4, 4], steps = array<i64: 1, 1>} : (tensor<4x8xf32>) -> tensor<4x4xf32>
  %n = nn.neg %hi : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = nn.concat %n, %lo {axis = 1 : i64} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x8xf32>
  %3 = nn.exp %c : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = nn.mul %c, %sin : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = nn.add %0, %1 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %2, %3 : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// The second half is not negated: a reflection, not a rotation.
// CHECK-LABEL: func @not_negated
// CHECK-NOT: nn.rope
func.func @not_negated(%x: tensor<4x8xf32>, %cos: tensor<4x8xf32>, %sin: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = nn.mul %x, %cos : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %lo = nn.slice %x {starts = [0, 0], sizes = [4, 4], steps = array<i64: 1, 1>} : (tensor<4x8xf32>) -> tensor<4x4xf32>
  %hi = nn.slice %x {starts = [0, 4], sizes = [4, 4], steps = array<i64: 1, 1>} : (tensor<4x8xf32>) -> tensor<4x4xf32>
  %c = nn.concat %hi, %lo {axis = 1 : i64} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x8xf32>
  %1 = nn.mul %c, %sin : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = nn.add %0, %1 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}

// -----

// OLMo: the values and their rotation are cast to f32 for the tables, and the sum is cast back.
// CHECK-LABEL: func @cast_after_rotation
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<2x4x8xf16>, %[[C:[a-z0-9]*]]: tensor<4x8xf32>, %[[S:[a-z0-9]*]]: tensor<4x8xf32>)
// CHECK-NEXT: %[[R:.*]] = nn.rope %[[X]], %[[C]], %[[S]] {compute = f32, interleaved = false, rotary_dim = 8 : i64} : {{.*}} -> tensor<2x4x8xf16>
// CHECK-NEXT: return %[[R]]
func.func @cast_after_rotation(%x: tensor<2x4x8xf16>, %cos: tensor<4x8xf32>, %sin: tensor<4x8xf32>) -> tensor<2x4x8xf16> {
  %wide = nn.cast %x : (tensor<2x4x8xf16>) -> tensor<2x4x8xf32>
  %0 = nn.mul %wide, %cos : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %lo = nn.slice %x {starts = [0, 0, 0], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf16>) -> tensor<2x4x4xf16>
  %hi = nn.slice %x {starts = [0, 0, 4], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf16>) -> tensor<2x4x4xf16>
  %n = nn.neg %hi : (tensor<2x4x4xf16>) -> tensor<2x4x4xf16>
  %c = nn.concat %n, %lo {axis = 2 : i64} : (tensor<2x4x4xf16>, tensor<2x4x4xf16>) -> tensor<2x4x8xf16>
  %turned = nn.cast %c : (tensor<2x4x8xf16>) -> tensor<2x4x8xf32>
  %1 = nn.mul %turned, %sin : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %2 = nn.add %0, %1 : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %3 = nn.cast %2 : (tensor<2x4x8xf32>) -> tensor<2x4x8xf16>
  return %3 : tensor<2x4x8xf16>
}

// -----

// The sum is read in f32 too: its cast stays.
// CHECK-LABEL: func @wide_sum_used
// CHECK-NEXT: %[[R:.*]] = nn.rope %{{.*}} {compute = f32, interleaved = false, rotary_dim = 8 : i64} : (tensor<4x8xbf16>, {{.*}} -> tensor<4x8xf32>
// CHECK-NEXT: nn.cast %[[R]]
func.func @wide_sum_used(%x: tensor<4x8xbf16>, %cos: tensor<4x8xf32>, %sin: tensor<4x8xf32>) -> (tensor<4x8xbf16>, tensor<4x8xf32>) {
  %wide = nn.cast %x : (tensor<4x8xbf16>) -> tensor<4x8xf32>
  %0 = nn.mul %cos, %wide : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %lo = nn.slice %x {starts = [0, 0], sizes = [4, 4], steps = array<i64: 1, 1>} : (tensor<4x8xbf16>) -> tensor<4x4xbf16>
  %hi = nn.slice %x {starts = [0, 4], sizes = [4, 4], steps = array<i64: 1, 1>} : (tensor<4x8xbf16>) -> tensor<4x4xbf16>
  %n = nn.neg %hi : (tensor<4x4xbf16>) -> tensor<4x4xbf16>
  %c = nn.concat %n, %lo {axis = 1 : i64} : (tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x8xbf16>
  %turned = nn.cast %c : (tensor<4x8xbf16>) -> tensor<4x8xf32>
  %1 = nn.mul %sin, %turned : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = nn.add %1, %0 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %3 = nn.cast %2 : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  return %3, %2 : tensor<4x8xbf16>, tensor<4x8xf32>
}

// -----

// What rotates was rounded to f16, what meets cos was not.
// CHECK-LABEL: func @rounded_before_rotation
// CHECK-NOT: nn.rope
// MISS: {{.*}}raise-rope.mlir{{.*}}Missed{{.*}}are not those that are rotated
func.func @rounded_before_rotation(%x: tensor<4x8xf32>, %cos: tensor<4x8xf32>, %sin: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %narrow = nn.cast %x : (tensor<4x8xf32>) -> tensor<4x8xf16>
  %0 = nn.mul %x, %cos : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %lo = nn.slice %narrow {starts = [0, 0], sizes = [4, 4], steps = array<i64: 1, 1>} : (tensor<4x8xf16>) -> tensor<4x4xf16>
  %hi = nn.slice %narrow {starts = [0, 4], sizes = [4, 4], steps = array<i64: 1, 1>} : (tensor<4x8xf16>) -> tensor<4x4xf16>
  %n = nn.neg %hi : (tensor<4x4xf16>) -> tensor<4x4xf16>
  %c = nn.concat %n, %lo {axis = 1 : i64} : (tensor<4x4xf16>, tensor<4x4xf16>) -> tensor<4x8xf16>
  %turned = nn.cast %c : (tensor<4x8xf16>) -> tensor<4x8xf32>
  %1 = nn.mul %turned, %sin : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = nn.add %0, %1 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}

// -----

// GPT-NeoX: q, k and v of a head lie side by side; 4 of the 8 elements of k rotate.
// CHECK-LABEL: func @partial_of_packed
// CHECK-NEXT: %[[K:.*]] = nn.slice %{{.*}} {sizes = [4, 8], starts = [0, 8], steps = array<i64: 1, 1>}
// CHECK-NEXT: nn.rope %[[K]], %{{.*}} {interleaved = false, rotary_dim = 4 : i64} : (tensor<4x8xf32>, {{.*}} -> tensor<4x8xf32>
// CHECK-NEXT: return
func.func @partial_of_packed(%x: tensor<4x24xf32>, %cos: tensor<4x4xf32>, %sin: tensor<4x4xf32>) -> tensor<4x8xf32> {
  %r = nn.slice %x {starts = [0, 8], sizes = [4, 4], steps = array<i64: 1, 1>} : (tensor<4x24xf32>) -> tensor<4x4xf32>
  %p = nn.slice %x {starts = [0, 12], sizes = [4, 4], steps = array<i64: 1, 1>} : (tensor<4x24xf32>) -> tensor<4x4xf32>
  %0 = nn.mul %r, %cos : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %lo = nn.slice %x {starts = [0, 8], sizes = [4, 2], steps = array<i64: 1, 1>} : (tensor<4x24xf32>) -> tensor<4x2xf32>
  %hi = nn.slice %x {starts = [0, 10], sizes = [4, 2], steps = array<i64: 1, 1>} : (tensor<4x24xf32>) -> tensor<4x2xf32>
  %n = nn.neg %hi : (tensor<4x2xf32>) -> tensor<4x2xf32>
  %c = nn.concat %n, %lo {axis = -1 : i64} : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x4xf32>
  %1 = nn.mul %c, %sin : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = nn.add %0, %1 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %3 = nn.concat %2, %p {axis = -1 : i64} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x8xf32>
  return %3 : tensor<4x8xf32>
}

// -----

// Elements 16 to 20 do not follow elements 8 to 12.
// CHECK-LABEL: func @parts_apart
// CHECK: nn.rope
// CHECK: nn.concat
// MISS: {{.*}}raise-rope.mlir{{.*}}Missed{{.*}}do not follow them in the same tensor
func.func @parts_apart(%x: tensor<4x24xf32>, %cos: tensor<4x4xf32>, %sin: tensor<4x4xf32>) -> tensor<4x8xf32> {
  %r = nn.slice %x {starts = [0, 8], sizes = [4, 4], steps = array<i64: 1, 1>} : (tensor<4x24xf32>) -> tensor<4x4xf32>
  %p = nn.slice %x {starts = [0, 16], sizes = [4, 4], steps = array<i64: 1, 1>} : (tensor<4x24xf32>) -> tensor<4x4xf32>
  %0 = nn.rope %r, %cos, %sin {interleaved = false, rotary_dim = 4 : i64} : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = nn.concat %0, %p {axis = -1 : i64} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

// -----

// GLM: pairs side by side, and only the first 8 of 12 elements rotate.
// CHECK-LABEL: func @interleaved_partial
// CHECK-SAME: (%[[X:[a-z0-9]*]]:
// CHECK-NEXT: nn.rope %[[X]], %{{.*}} {interleaved = true, rotary_dim = 8 : i64} : (tensor<2x4x12xf32>, {{.*}} -> tensor<2x4x12xf32>
// CHECK-NEXT: return
func.func @interleaved_partial(%x: tensor<2x4x12xf32>, %cos: tensor<4x8xf32>, %sin: tensor<4x8xf32>) -> tensor<2x4x12xf32> {
  %r = nn.slice %x {starts = [0, 0, 0], sizes = [2, 4, 8], steps = array<i64: 1, 1, 1>} : (tensor<2x4x12xf32>) -> tensor<2x4x8xf32>
  %p = nn.slice %x {starts = [0, 0, 8], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x12xf32>) -> tensor<2x4x4xf32>
  %e = nn.slice %x {starts = [0, 0, 0], sizes = [2, 4, 4], steps = array<i64: 1, 1, 2>} : (tensor<2x4x12xf32>) -> tensor<2x4x4xf32>
  %o = nn.slice %x {starts = [0, 0, 1], sizes = [2, 4, 4], steps = array<i64: 1, 1, 2>} : (tensor<2x4x12xf32>) -> tensor<2x4x4xf32>
  %n = nn.neg %o : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %nu = nn.reshape %n {shape = [2, 4, 4, 1]} : (tensor<2x4x4xf32>) -> tensor<2x4x4x1xf32>
  %eu = nn.reshape %e {shape = [2, 4, 4, 1]} : (tensor<2x4x4xf32>) -> tensor<2x4x4x1xf32>
  %c = nn.concat %nu, %eu {axis = -1 : i64} : (tensor<2x4x4x1xf32>, tensor<2x4x4x1xf32>) -> tensor<2x4x4x2xf32>
  %m = nn.reshape %c {shape = [2, 4, 8]} : (tensor<2x4x4x2xf32>) -> tensor<2x4x8xf32>
  %0 = nn.mul %r, %cos : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %1 = nn.mul %m, %sin : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %2 = nn.add %0, %1 : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %3 = nn.concat %2, %p {axis = 2 : i64} : (tensor<2x4x8xf32>, tensor<2x4x4xf32>) -> tensor<2x4x12xf32>
  return %3 : tensor<2x4x12xf32>
}

// -----

// The rotated halves leave the function too.
// CHECK-LABEL: func @rotation_used_too
// CHECK: %[[C:.*]] = nn.concat
// CHECK-NEXT: %[[R:.*]] = nn.rope
// CHECK-NEXT: return %[[R]], %[[C]]
func.func @rotation_used_too(%x: tensor<2x4x8xf32>, %cos: tensor<4x8xf32>, %sin: tensor<4x8xf32>) -> (tensor<2x4x8xf32>, tensor<2x4x8xf32>) {
  %lo = nn.slice %x {starts = [0, 0, 0], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %hi = nn.slice %x {starts = [0, 0, 4], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %n = nn.neg %hi : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %c = nn.concat %n, %lo {axis = 2 : i64} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x8xf32>
  %0 = nn.mul %x, %cos : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %1 = nn.mul %c, %sin : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %2 = nn.add %0, %1 : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %2, %c : tensor<2x4x8xf32>, tensor<2x4x8xf32>
}

// -----

// And their product with sin.
// CHECK-LABEL: func @sine_product_used
// CHECK: %[[S:.*]] = nn.mul
// CHECK-NEXT: %[[R:.*]] = nn.rope
// CHECK-NEXT: return %[[R]], %[[S]]
func.func @sine_product_used(%x: tensor<2x4x8xf32>, %cos: tensor<4x8xf32>, %sin: tensor<4x8xf32>) -> (tensor<2x4x8xf32>, tensor<2x4x8xf32>) {
  %lo = nn.slice %x {starts = [0, 0, 0], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %hi = nn.slice %x {starts = [0, 0, 4], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %n = nn.neg %hi : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %c = nn.concat %n, %lo {axis = 2 : i64} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x8xf32>
  %0 = nn.mul %x, %cos : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %1 = nn.mul %c, %sin : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %2 = nn.add %0, %1 : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %2, %1 : tensor<2x4x8xf32>, tensor<2x4x8xf32>
}

// -----

// Nobody reads the sum.
// CHECK-LABEL: func @dead_sum
// CHECK-NOT: nn.rope
// CHECK: nn.concat
// CHECK-NEXT: return
func.func @dead_sum(%x: tensor<2x4x8xf32>, %cos: tensor<4x8xf32>, %sin: tensor<4x8xf32>) -> tensor<2x4x8xf32> {
  %lo = nn.slice %x {starts = [0, 0, 0], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %hi = nn.slice %x {starts = [0, 0, 4], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %n = nn.neg %hi : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %c = nn.concat %n, %lo {axis = 2 : i64} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x8xf32>
  %0 = nn.mul %x, %cos : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %1 = nn.mul %c, %sin : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %2 = nn.add %0, %1 : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %c : tensor<2x4x8xf32>
}

// -----

// Heads are split between the casts and the rotation.
// CHECK-LABEL: @casts_around_split_heads
// CHECK-NEXT: %[[H:.*]] = nn.reshape %{{.*}} -> tensor<1x5x4x8xbf16>
// CHECK-NEXT: %[[R:.*]] = nn.rope %[[H]], %{{.*}} {compute = f32, interleaved = false, rotary_dim = 8 : i64} : {{.*}} -> tensor<1x5x4x8xbf16>
// CHECK-NEXT: %[[Y:.*]] = nn.reshape %[[R]]
// CHECK-NEXT: return %[[Y]]
func.func @casts_around_split_heads(%x: tensor<1x5x32xbf16>, %c: tensor<1x5x1x4xf32>, %s: tensor<1x5x1x4xf32>) -> tensor<1x5x32xbf16> {
  %0 = nn.cast %x : (tensor<1x5x32xbf16>) -> tensor<1x5x32xf32>
  %1 = nn.reshape %0 {shape = [1, 5, 4, 8]} : (tensor<1x5x32xf32>) -> tensor<1x5x4x8xf32>
  %2 = nn.rope %1, %c, %s {interleaved = false, rotary_dim = 8 : i64} : (tensor<1x5x4x8xf32>, tensor<1x5x1x4xf32>, tensor<1x5x1x4xf32>) -> tensor<1x5x4x8xf32>
  %3 = nn.reshape %2 {shape = [1, 5, 32]} : (tensor<1x5x4x8xf32>) -> tensor<1x5x32xf32>
  %4 = nn.cast %3 : (tensor<1x5x32xf32>) -> tensor<1x5x32xbf16>
  return %4 : tensor<1x5x32xbf16>
}

// -----

// The rotated values in f32 are read by somebody else too, who gets them as they are.
// CHECK-LABEL: @wide_result_is_read
// CHECK: nn.rope %{{.*}} -> tensor<1x5x4x8xf32>
// CHECK: nn.cast
func.func @wide_result_is_read(%x: tensor<1x5x32xbf16>, %c: tensor<1x5x1x4xf32>, %s: tensor<1x5x1x4xf32>) -> (tensor<1x5x32xbf16>, tensor<1x5x32xf32>) {
  %0 = nn.cast %x : (tensor<1x5x32xbf16>) -> tensor<1x5x32xf32>
  %1 = nn.reshape %0 {shape = [1, 5, 4, 8]} : (tensor<1x5x32xf32>) -> tensor<1x5x4x8xf32>
  %2 = nn.rope %1, %c, %s {interleaved = false, rotary_dim = 8 : i64} : (tensor<1x5x4x8xf32>, tensor<1x5x1x4xf32>, tensor<1x5x1x4xf32>) -> tensor<1x5x4x8xf32>
  %3 = nn.reshape %2 {shape = [1, 5, 32]} : (tensor<1x5x4x8xf32>) -> tensor<1x5x32xf32>
  %4 = nn.cast %3 : (tensor<1x5x32xf32>) -> tensor<1x5x32xbf16>
  return %4, %3 : tensor<1x5x32xbf16>, tensor<1x5x32xf32>
}
