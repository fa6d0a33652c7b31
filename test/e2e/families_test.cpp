// Each fusion family in bf16, f16 and f32: it fires, and its kernel computes what the unfused reference
// computes.
#include "GraphCase.h"
#include "TestDevice.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace fusion;
using namespace fusion::test;

namespace {
struct Case {
  const char *name, *pattern;
  int kernels;          ///< that remain
  const char *function; ///< T stands for the element type
  int fired = 1;        ///< roots of the pattern
};

const Case cases[] = {
    {"AddRmsNorm", "add_norm", 1,
     R"(%x: tensor<?x128xT>, %r: tensor<?x128xT>, %w: tensor<128xT>) -> (tensor<?x128xT>, tensor<?x128xT>) {
  %0 = nn.add %x, %r : (tensor<?x128xT>, tensor<?x128xT>) -> tensor<?x128xT>
  %1 = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<?x128xT>, tensor<128xT>) -> tensor<?x128xT>
  return %0, %1 : tensor<?x128xT>, tensor<?x128xT> })"},
    {"ThreeTermSumRmsNorm", "add_norm", 1,
     R"(%x: tensor<?x128xT>, %a: tensor<?x128xT>, %m: tensor<?x128xT>, %w: tensor<128xT>) -> (tensor<?x128xT>, tensor<?x128xT>) {
  %0 = nn.add %a, %m : (tensor<?x128xT>, tensor<?x128xT>) -> tensor<?x128xT>
  %1 = nn.add %x, %0 : (tensor<?x128xT>, tensor<?x128xT>) -> tensor<?x128xT>
  %2 = nn.rms_norm %1, %w {eps = 1.0e-6 : f32} : (tensor<?x128xT>, tensor<128xT>) -> tensor<?x128xT>
  return %1, %2 : tensor<?x128xT>, tensor<?x128xT> })"},
    // Both norms of one sum fire, in one kernel.
    {"TwoLayerNormsOfASum", "add_norm", 1,
     R"(%x: tensor<?x96xT>, %r: tensor<?x96xT>, %w: tensor<96xT>, %b: tensor<96xT>, %v: tensor<96xT>) -> (tensor<?x96xT>, tensor<?x96xT>, tensor<?x96xT>) {
  %0 = nn.add %x, %r : (tensor<?x96xT>, tensor<?x96xT>) -> tensor<?x96xT>
  %1 = nn.layer_norm %0, %w, %b {eps = 1.0e-5 : f32} : (tensor<?x96xT>, tensor<96xT>, tensor<96xT>) -> tensor<?x96xT>
  %2 = nn.layer_norm %0, %v, %b {eps = 1.0e-5 : f32} : (tensor<?x96xT>, tensor<96xT>, tensor<96xT>) -> tensor<?x96xT>
  return %0, %1, %2 : tensor<?x96xT>, tensor<?x96xT>, tensor<?x96xT> })",
     2},
    {"TwoNormsOfAnInput", "sibling_norms", 1,
     R"(%x: tensor<?x96xT>, %w: tensor<96xT>, %v: tensor<96xT>) -> (tensor<?x96xT>, tensor<?x96xT>) {
  %1 = nn.rms_norm %x, %w {eps = 1.0e-5 : f32} : (tensor<?x96xT>, tensor<96xT>) -> tensor<?x96xT>
  %2 = nn.layer_norm %x, %v {eps = 1.0e-5 : f32} : (tensor<?x96xT>, tensor<96xT>) -> tensor<?x96xT>
  return %1, %2 : tensor<?x96xT>, tensor<?x96xT> })"},
    // The norm of the branch fires with the norm of the sum.
    {"SandwichGemmaNorms", "add_norm", 1,
     R"(%x: tensor<?x128xT>, %a: tensor<?x128xT>, %w: tensor<128xT>, %v: tensor<128xT>) -> (tensor<?x128xT>, tensor<?x128xT>) {
  %0 = nn.rms_norm %a, %w {eps = 1.0e-6 : f32, weight_bias = 1.0 : f32, scale_in = f32} : (tensor<?x128xT>, tensor<128xT>) -> tensor<?x128xT>
  %1 = nn.add %x, %0 : (tensor<?x128xT>, tensor<?x128xT>) -> tensor<?x128xT>
  %2 = nn.rms_norm %1, %v {eps = 1.0e-6 : f32, weight_bias = 1.0 : f32, scale_in = f32} : (tensor<?x128xT>, tensor<128xT>) -> tensor<?x128xT>
  return %1, %2 : tensor<?x128xT>, tensor<?x128xT> })",
     2},
    {"NormWithGate", "norm_epilogue", 1,
     R"(%x: tensor<?x48xT>, %z: tensor<?x48xT>, %w: tensor<48xT>) -> tensor<?x48xT> {
  %0 = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x48xT>, tensor<48xT>) -> tensor<?x48xf32>
  %1 = nn.cast %z : (tensor<?x48xT>) -> tensor<?x48xf32>
  %2 = nn.silu %1 : (tensor<?x48xf32>) -> tensor<?x48xf32>
  %3 = nn.mul %0, %2 : (tensor<?x48xf32>, tensor<?x48xf32>) -> tensor<?x48xf32>
  %4 = nn.cast %3 : (tensor<?x48xf32>) -> tensor<?x48xT>
  return %4 : tensor<?x48xT> })"},
    {"MaskedSoftmax", "row_reduction", 1,
     R"(%x: tensor<?x3x40xT>, %m: tensor<1x40xT>) -> tensor<?x3x40xT> {
  %c = nn.constant {value = dense<0.125> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.cast %x : (tensor<?x3x40xT>) -> tensor<?x3x40xf32>
  %1 = nn.mul %0, %c : (tensor<?x3x40xf32>, tensor<f32>) -> tensor<?x3x40xf32>
  %2 = nn.cast %m : (tensor<1x40xT>) -> tensor<1x40xf32>
  %3 = nn.add %1, %2 : (tensor<?x3x40xf32>, tensor<1x40xf32>) -> tensor<?x3x40xf32>
  %4 = nn.softmax %3 {axis = 2 : i64} : (tensor<?x3x40xf32>) -> tensor<?x3x40xf32>
  %5 = nn.cast %4 : (tensor<?x3x40xf32>) -> tensor<?x3x40xT>
  return %5 : tensor<?x3x40xT> })"},
    {"RowStatistics", "row_reduction", 1,
     R"(%x: tensor<?x96xT>, %w: tensor<96xf32>) -> (tensor<?x96xT>, tensor<?xf32>) {
  %0 = nn.cast %x : (tensor<?x96xT>) -> tensor<?x96xf32>
  %1 = nn.square %0 : (tensor<?x96xf32>) -> tensor<?x96xf32>
  %2 = nn.reduce %1 {kind = "sum", axes = array<i64: 1>, keepdims = true} : (tensor<?x96xf32>) -> tensor<?x1xf32>
  %3 = nn.div %0, %2 : (tensor<?x96xf32>, tensor<?x1xf32>) -> tensor<?x96xf32>
  %4 = nn.mul %3, %w : (tensor<?x96xf32>, tensor<96xf32>) -> tensor<?x96xf32>
  %5 = nn.reduce %4 {kind = "max", axes = array<i64: 1>, keepdims = false} : (tensor<?x96xf32>) -> tensor<?xf32>
  %6 = nn.cast %4 : (tensor<?x96xf32>) -> tensor<?x96xT>
  return %6, %5 : tensor<?x96xT>, tensor<?xf32> })"},
    {"ScaledResidual", "add_norm", 1,
     R"(%x: tensor<?x96xT>, %m: tensor<?x96xT>, %w: tensor<96xT>) -> (tensor<?x96xT>, tensor<?x96xT>) {
  %f = nn.constant {value = dense<0.22> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.cast %m : (tensor<?x96xT>) -> tensor<?x96xf32>
  %1 = nn.mul %0, %f : (tensor<?x96xf32>, tensor<f32>) -> tensor<?x96xf32>
  %2 = nn.cast %1 : (tensor<?x96xf32>) -> tensor<?x96xT>
  %3 = nn.add %x, %2 : (tensor<?x96xT>, tensor<?x96xT>) -> tensor<?x96xT>
  %4 = nn.rms_norm %3, %w {eps = 1.0e-6 : f32} : (tensor<?x96xT>, tensor<96xT>) -> tensor<?x96xT>
  return %3, %4 : tensor<?x96xT>, tensor<?x96xT> })"},
    // Two groups that share nothing, a kernel of two results.
    {"SmallGroups", "pointwise", 1,
     R"(%a: tensor<?x3xT>, %b: tensor<?x3xT>, %s: tensor<3xT>) -> (tensor<?x3xT>, tensor<?x3xT>) {
  %0 = nn.mul %a, %s : (tensor<?x3xT>, tensor<3xT>) -> tensor<?x3xT>
  %1 = nn.relu %0 : (tensor<?x3xT>) -> tensor<?x3xT>
  %2 = nn.tanh %b : (tensor<?x3xT>) -> tensor<?x3xT>
  return %1, %2 : tensor<?x3xT>, tensor<?x3xT> })"},
    {"NormOfAllHeadsRope", "qk_norm_rope", 2,
     R"(%q: tensor<1x6x128xT>, %k: tensor<1x6x64xT>, %v: tensor<1x2x6x32xT>, %a: tensor<128xT>, %b: tensor<64xT>, %cos: tensor<1x1x6x32xf32>, %sin: tensor<1x1x6x32xf32>) -> tensor<1x4x6x32xT> {
  %0 = nn.rms_norm %q, %a {eps = 1.0e-6 : f32, scale_in = f32} : (tensor<1x6x128xT>, tensor<128xT>) -> tensor<1x6x128xT>
  %1 = nn.rms_norm %k, %b {eps = 1.0e-6 : f32, scale_in = f32} : (tensor<1x6x64xT>, tensor<64xT>) -> tensor<1x6x64xT>
  %2 = nn.reshape %0 {shape = [1, 6, 4, 32]} : (tensor<1x6x128xT>) -> tensor<1x6x4x32xT>
  %3 = nn.reshape %1 {shape = [1, 6, 2, 32]} : (tensor<1x6x64xT>) -> tensor<1x6x2x32xT>
  %4 = nn.transpose %2 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x6x4x32xT>) -> tensor<1x4x6x32xT>
  %5 = nn.transpose %3 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x6x2x32xT>) -> tensor<1x2x6x32xT>
  %6 = nn.rope %4, %cos, %sin {compute = f32, interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x6x32xT>, tensor<1x1x6x32xf32>, tensor<1x1x6x32xf32>) -> tensor<1x4x6x32xT>
  %7 = nn.rope %5, %cos, %sin {compute = f32, interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x6x32xT>, tensor<1x1x6x32xf32>, tensor<1x1x6x32xf32>) -> tensor<1x2x6x32xT>
  %8 = nn.attention %6, %7, %v {scale = 0.17 : f32, causal = true} : (tensor<1x4x6x32xT>, tensor<1x2x6x32xT>, tensor<1x2x6x32xT>) -> tensor<1x4x6x32xT>
  return %8 : tensor<1x4x6x32xT> })"},
    {"GateWithBias", "gated_matmul", 1,
     R"(%x: tensor<?x64xT>, %w: tensor<64x48xT>, %v: tensor<64x48xT>, %b: tensor<48xT>) -> tensor<?x48xT> {
  %0 = nn.matmul %x, %w : (tensor<?x64xT>, tensor<64x48xT>) -> tensor<?x48xT>
  %1 = nn.matmul %x, %v : (tensor<?x64xT>, tensor<64x48xT>) -> tensor<?x48xT>
  %2 = nn.add %0, %b : (tensor<?x48xT>, tensor<48xT>) -> tensor<?x48xT>
  %3 = nn.silu %2 : (tensor<?x48xT>) -> tensor<?x48xT>
  %4 = nn.mul %3, %1 : (tensor<?x48xT>, tensor<?x48xT>) -> tensor<?x48xT>
  return %4 : tensor<?x48xT> })"},
    {"GatedUpWithBias", "gated_matmul", 1,
     R"(%x: tensor<?x64xT>, %w: tensor<48x64xT>, %v: tensor<48x64xT>, %b: tensor<48xT>) -> tensor<?x48xT> {
  %0 = nn.matmul %x, %w {transpose_b = true} : (tensor<?x64xT>, tensor<48x64xT>) -> tensor<?x48xT>
  %1 = nn.matmul %x, %v {transpose_b = true} : (tensor<?x64xT>, tensor<48x64xT>) -> tensor<?x48xT>
  %2 = nn.add %b, %1 : (tensor<48xT>, tensor<?x48xT>) -> tensor<?x48xT>
  %3 = nn.relu %0 : (tensor<?x48xT>) -> tensor<?x48xT>
  %4 = nn.mul %2, %3 : (tensor<?x48xT>, tensor<?x48xT>) -> tensor<?x48xT>
  return %4 : tensor<?x48xT> })"},
    {"ResidualThenActivation", "matmul_epilogue", 1,
     R"(%x: tensor<?x64xT>, %w: tensor<64x48xT>, %r: tensor<?x48xT>) -> tensor<?x48xT> {
  %0 = nn.matmul %x, %w : (tensor<?x64xT>, tensor<64x48xT>) -> tensor<?x48xT>
  %1 = nn.add %r, %0 : (tensor<?x48xT>, tensor<?x48xT>) -> tensor<?x48xT>
  %2 = nn.gelu %1 {approximate = "tanh"} : (tensor<?x48xT>) -> tensor<?x48xT>
  return %2 : tensor<?x48xT> })"},
    {"ActivationThenResidual", "matmul_epilogue", 1,
     R"(%x: tensor<?x64xT>, %w: tensor<48x64xT>, %b: tensor<48xT>, %r: tensor<?x48xT>) -> tensor<?x48xT> {
  %0 = nn.matmul %x, %w {transpose_b = true} : (tensor<?x64xT>, tensor<48x64xT>) -> tensor<?x48xT>
  %1 = nn.add %0, %b : (tensor<?x48xT>, tensor<48xT>) -> tensor<?x48xT>
  %2 = nn.silu %1 : (tensor<?x48xT>) -> tensor<?x48xT>
  %3 = nn.add %2, %r : (tensor<?x48xT>, tensor<?x48xT>) -> tensor<?x48xT>
  return %3 : tensor<?x48xT> })"},
    {"NormAfterRope", "qk_norm_rope", 2,
     R"(%q: tensor<1x4x6x32xT>, %k: tensor<1x2x6x32xT>, %v: tensor<1x2x6x32xT>, %a: tensor<32xT>, %b: tensor<32xT>, %cos: tensor<1x1x6x32xT>, %sin: tensor<1x1x6x32xT>) -> tensor<1x4x6x32xT> {
  %0 = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x4x6x32xT>, tensor<1x1x6x32xT>, tensor<1x1x6x32xT>) -> tensor<1x4x6x32xT>
  %1 = nn.rope %k, %cos, %sin {interleaved = false, rotary_dim = 32 : i64} : (tensor<1x2x6x32xT>, tensor<1x1x6x32xT>, tensor<1x1x6x32xT>) -> tensor<1x2x6x32xT>
  %2 = nn.rms_norm %0, %a {eps = 1.0e-6 : f32} : (tensor<1x4x6x32xT>, tensor<32xT>) -> tensor<1x4x6x32xT>
  %3 = nn.rms_norm %1, %b {eps = 1.0e-6 : f32} : (tensor<1x2x6x32xT>, tensor<32xT>) -> tensor<1x2x6x32xT>
  %4 = nn.attention %2, %3, %v {scale = 0.17 : f32, causal = true} : (tensor<1x4x6x32xT>, tensor<1x2x6x32xT>, tensor<1x2x6x32xT>) -> tensor<1x4x6x32xT>
  return %4 : tensor<1x4x6x32xT> })"},
    {"NormStaticF8", "norm_quant", 1,
     R"(%x: tensor<?x128xT>, %w: tensor<128xT>, %s: tensor<f32>) -> tensor<?x128xf8E4M3FN> {
  %0 = nn.rms_norm %x, %w {eps = 1.0e-6 : f32} : (tensor<?x128xT>, tensor<128xT>) -> tensor<?x128xT>
  %1 = nn.quantize %0, %s : (tensor<?x128xT>, tensor<f32>) -> tensor<?x128xf8E4M3FN>
  return %1 : tensor<?x128xf8E4M3FN> })"},
    {"LayerNormPerTokenI8", "norm_quant", 1,
     R"(%x: tensor<?x128xT>, %w: tensor<128xT>, %b: tensor<128xT>) -> (tensor<?x128xT>, tensor<?x128xi8>, tensor<?x1xf32>) {
  %0 = nn.layer_norm %x, %w, %b {eps = 1.0e-5 : f32} : (tensor<?x128xT>, tensor<128xT>, tensor<128xT>) -> tensor<?x128xT>
  %1, %s = nn.dynamic_quantize %0 : (tensor<?x128xT>) -> (tensor<?x128xi8>, tensor<?x1xf32>)
  return %0, %1, %s : tensor<?x128xT>, tensor<?x128xi8>, tensor<?x1xf32> })"},
    {"GemmaNormPerGroupF8", "norm_quant", 1,
     R"(%x: tensor<?x256xT>, %w: tensor<256xf32>) -> (tensor<?x256xf8E4M3FN>, tensor<?x4xf32>) {
  %0 = nn.rms_norm %x, %w {eps = 1.0e-6 : f32, weight_bias = 1.0 : f32, scale_in = f32} : (tensor<?x256xT>, tensor<256xf32>) -> tensor<?x256xT>
  %1, %s = nn.dynamic_quantize %0 {group_size = 64 : i64} : (tensor<?x256xT>) -> (tensor<?x256xf8E4M3FN>, tensor<?x4xf32>)
  return %1, %s : tensor<?x256xf8E4M3FN>, tensor<?x4xf32> })"},
    {"AddNormPerGroupF8", "add_norm_quant", 1,
     R"(%x: tensor<?x256xT>, %r: tensor<?x256xT>, %w: tensor<256xT>) -> (tensor<?x256xT>, tensor<?x256xf8E4M3FN>, tensor<?x2xf32>) {
  %0 = nn.add %x, %r : (tensor<?x256xT>, tensor<?x256xT>) -> tensor<?x256xT>
  %1 = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<?x256xT>, tensor<256xT>) -> tensor<?x256xT>
  %2, %s = nn.dynamic_quantize %1 {group_size = 128 : i64} : (tensor<?x256xT>) -> (tensor<?x256xf8E4M3FN>, tensor<?x2xf32>)
  return %0, %2, %s : tensor<?x256xT>, tensor<?x256xf8E4M3FN>, tensor<?x2xf32> })"},
    {"AddNormStaticI8", "add_norm_quant", 1,
     R"(%x: tensor<?x128xT>, %r: tensor<?x128xT>, %w: tensor<128xT>, %s: tensor<f32>, %z: tensor<i8>) -> (tensor<?x128xT>, tensor<?x128xi8>) {
  %0 = nn.add %x, %r : (tensor<?x128xT>, tensor<?x128xT>) -> tensor<?x128xT>
  %1 = nn.layer_norm %0, %w {eps = 1.0e-5 : f32} : (tensor<?x128xT>, tensor<128xT>) -> tensor<?x128xT>
  %2 = nn.quantize %1, %s, %z : (tensor<?x128xT>, tensor<f32>, tensor<i8>) -> tensor<?x128xi8>
  return %0, %2 : tensor<?x128xT>, tensor<?x128xi8> })"},
    {"HeadsOfLengthOne", "l2_norm", 1, R"(%x: tensor<?x3x64xT>) -> tensor<?x3x64xT> {
  %0 = nn.reduce %x {axes = array<i64: 2>, keepdims = true, kind = "sum_square"} : (tensor<?x3x64xT>) -> tensor<?x3x1xT>
  %1 = nn.sqrt %0 : (tensor<?x3x1xT>) -> tensor<?x3x1xT>
  %2 = nn.div %x, %1 : (tensor<?x3x64xT>, tensor<?x3x1xT>) -> tensor<?x3x64xT>
  return %2 : tensor<?x3x64xT> })"},
    {"HeadsWithEps", "l2_norm", 1, R"(%x: tensor<?x3x64xT>, %eps: tensor<T>) -> tensor<?x3x64xT> {
  %0 = nn.square %x : (tensor<?x3x64xT>) -> tensor<?x3x64xT>
  %1 = nn.reduce %0 {axes = array<i64: 2>, keepdims = true, kind = "sum"} : (tensor<?x3x64xT>) -> tensor<?x3x1xT>
  %2 = nn.add %1, %eps : (tensor<?x3x1xT>, tensor<T>) -> tensor<?x3x1xT>
  %3 = nn.rsqrt %2 : (tensor<?x3x1xT>) -> tensor<?x3x1xT>
  %4 = nn.mul %x, %3 : (tensor<?x3x64xT>, tensor<?x3x1xT>) -> tensor<?x3x64xT>
  return %4 : tensor<?x3x64xT> })"},
    {"HeadsOrZero", "l2_norm", 1, R"(%x: tensor<?x3x64xT>) -> tensor<?x3x64xT> {
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %w = nn.cast %x : (tensor<?x3x64xT>) -> tensor<?x3x64xf32>
  %0 = nn.square %w : (tensor<?x3x64xf32>) -> tensor<?x3x64xf32>
  %1 = nn.reduce %0 {axes = array<i64: 2>, keepdims = true, kind = "sum"} : (tensor<?x3x64xf32>) -> tensor<?x3x1xf32>
  %2 = nn.sqrt %1 : (tensor<?x3x1xf32>) -> tensor<?x3x1xf32>
  %3 = nn.equal %2, %zero : (tensor<?x3x1xf32>, tensor<f32>) -> tensor<?x3x1xi1>
  %4 = nn.div %w, %2 : (tensor<?x3x64xf32>, tensor<?x3x1xf32>) -> tensor<?x3x64xf32>
  %5 = nn.where %3, %zero, %4 : (tensor<?x3x1xi1>, tensor<f32>, tensor<?x3x64xf32>) -> tensor<?x3x64xf32>
  %6 = nn.cast %5 : (tensor<?x3x64xf32>) -> tensor<?x3x64xT>
  return %6 : tensor<?x3x64xT> })"},
    {"SwiGlu", "gated_activation", 1, R"(%g: tensor<?x256xT>, %u: tensor<?x256xT>) -> tensor<?x256xT> {
  %0 = nn.silu %g : (tensor<?x256xT>) -> tensor<?x256xT>
  %1 = nn.mul %u, %0 : (tensor<?x256xT>, tensor<?x256xT>) -> tensor<?x256xT>
  return %1 : tensor<?x256xT> })"},
    {"PackedGeGluPerTokenF8", "gated_activation", 1,
     R"(%p: tensor<6x512xT>) -> (tensor<6x256xf8E4M3FN>, tensor<6x1xf32>) {
  %g = nn.slice %p {sizes = [6, 256], starts = [0, 0], steps = array<i64: 1, 1>} : (tensor<6x512xT>) -> tensor<6x256xT>
  %u = nn.slice %p {sizes = [6, 256], starts = [0, 256], steps = array<i64: 1, 1>} : (tensor<6x512xT>) -> tensor<6x256xT>
  %0 = nn.gelu %g {approximate = "tanh"} : (tensor<6x256xT>) -> tensor<6x256xT>
  %1 = nn.mul %0, %u : (tensor<6x256xT>, tensor<6x256xT>) -> tensor<6x256xT>
  %2, %s = nn.dynamic_quantize %1 : (tensor<6x256xT>) -> (tensor<6x256xf8E4M3FN>, tensor<6x1xf32>)
  return %2, %s : tensor<6x256xf8E4M3FN>, tensor<6x1xf32> })"},
    {"GateAfterMatmul", "gated_activation", 1,
     R"(%g: tensor<9x96xT>, %x: tensor<9x64xT>, %w: tensor<64x96xT>, %s: tensor<f32>) -> tensor<9x96xi8> {
  %0 = nn.silu %g : (tensor<9x96xT>) -> tensor<9x96xT>
  %u = nn.matmul %x, %w : (tensor<9x64xT>, tensor<64x96xT>) -> tensor<9x96xT>
  %1 = nn.mul %0, %u : (tensor<9x96xT>, tensor<9x96xT>) -> tensor<9x96xT>
  %2 = nn.quantize %1, %s : (tensor<9x96xT>, tensor<f32>) -> tensor<9x96xi8>
  return %2 : tensor<9x96xi8> })"},
    {"BiasGeluResidual", "matmul_epilogue", 1,
     R"(%x: tensor<9x64xT>, %w: tensor<64x96xT>, %b: tensor<96xT>, %r: tensor<9x96xT>) -> tensor<9x96xT> {
  %0 = nn.matmul %x, %w : (tensor<9x64xT>, tensor<64x96xT>) -> tensor<9x96xT>
  %1 = nn.add %b, %0 : (tensor<96xT>, tensor<9x96xT>) -> tensor<9x96xT>
  %2 = nn.gelu %1 : (tensor<9x96xT>) -> tensor<9x96xT>
  %3 = nn.add %2, %r : (tensor<9x96xT>, tensor<9x96xT>) -> tensor<9x96xT>
  return %3 : tensor<9x96xT> })"},
    {"SquaredReluStaticF8", "matmul_epilogue", 1,
     R"(%x: tensor<70x64xT>, %w: tensor<96x64xT>, %s: tensor<f32>) -> tensor<70x96xf8E4M3FN> {
  %0 = nn.matmul %x, %w {transpose_b = true} : (tensor<70x64xT>, tensor<96x64xT>) -> tensor<70x96xT>
  %1 = nn.relu %0 : (tensor<70x96xT>) -> tensor<70x96xT>
  %2 = nn.square %1 : (tensor<70x96xT>) -> tensor<70x96xT>
  %3 = nn.quantize %2, %s : (tensor<70x96xT>, tensor<f32>) -> tensor<70x96xf8E4M3FN>
  return %3 : tensor<70x96xf8E4M3FN> })"},
    {"SoftcapSmallM", "matmul_epilogue", 1,
     R"(%x: tensor<1x64xT>, %w: tensor<64x96xT>, %c: tensor<T>) -> tensor<1x96xf32> {
  %0 = nn.matmul %x, %w : (tensor<1x64xT>, tensor<64x96xT>) -> tensor<1x96xT>
  %1 = nn.div %0, %c : (tensor<1x96xT>, tensor<T>) -> tensor<1x96xT>
  %2 = nn.tanh %1 : (tensor<1x96xT>) -> tensor<1x96xT>
  %3 = nn.mul %2, %c : (tensor<1x96xT>, tensor<T>) -> tensor<1x96xT>
  %4 = nn.cast %3 : (tensor<1x96xT>) -> tensor<1x96xf32>
  return %4 : tensor<1x96xf32> })"},
    // QDQ: the quantisation joins the norm, dequantisations the product; one that is a result is computed for
    // it alone.
    {"QdqLayer", "norm_quant", 3,
     R"(%x: tensor<5x64xT>, %g: tensor<64xT>, %s: tensor<f32>, %q: tensor<64x32xi8>) -> (tensor<5x32xT>, tensor<5x64xT>) {
  %0 = nn.rms_norm %x, %g {eps = 1.0e-6 : f32} : (tensor<5x64xT>, tensor<64xT>) -> tensor<5x64xT>
  %1 = nn.quantize %0, %s : (tensor<5x64xT>, tensor<f32>) -> tensor<5x64xi8>
  %2 = nn.dequantize %1, %s : (tensor<5x64xi8>, tensor<f32>) -> tensor<5x64xT>
  %3 = nn.dequantize %q, %s : (tensor<64x32xi8>, tensor<f32>) -> tensor<64x32xT>
  %4 = nn.matmul %2, %3 : (tensor<5x64xT>, tensor<64x32xT>) -> tensor<5x32xT>
  return %4, %2 : tensor<5x32xT>, tensor<5x64xT> })"},
    {"QdqF8Matmul", "scaled_matmul", 1,
     R"(%q: tensor<?x64xf8E4M3FN>, %s: tensor<f32>, %w: tensor<48x64xf8E4M3FN>, %t: tensor<48xf32>) -> tensor<?x48xT> {
  %0 = nn.dequantize %q, %s : (tensor<?x64xf8E4M3FN>, tensor<f32>) -> tensor<?x64xT>
  %1 = nn.dequantize %w, %t {axis = 0 : i64} : (tensor<48x64xf8E4M3FN>, tensor<48xf32>) -> tensor<48x64xT>
  %2 = nn.matmul %0, %1 {transpose_b = true} : (tensor<?x64xT>, tensor<48x64xT>) -> tensor<?x48xT>
  return %2 : tensor<?x48xT> })"},
    {"CacheOfCodes", "scaled_attention", 1,
     R"(%q: tensor<2x4x1x64xT>, %k: tensor<2x2x?x64xi8>, %v: tensor<2x2x?x64xi8>, %s: tensor<f32>, %t: tensor<2xf32>) -> tensor<2x4x1x64xT> {
  %0 = nn.dequantize %k, %s : (tensor<2x2x?x64xi8>, tensor<f32>) -> tensor<2x2x?x64xT>
  %1 = nn.dequantize %v, %t {axis = 1 : i64} : (tensor<2x2x?x64xi8>, tensor<2xf32>) -> tensor<2x2x?x64xT>
  %2 = nn.attention %q, %0, %1 {scale = 0.125 : f32, causal = true} : (tensor<2x4x1x64xT>, tensor<2x2x?x64xT>, tensor<2x2x?x64xT>) -> tensor<2x4x1x64xT>
  return %2 : tensor<2x4x1x64xT> })"},
    {"QdqI8BiasGelu", "matmul_epilogue", 1,
     R"(%q: tensor<?x64xi8>, %s: tensor<f32>, %w: tensor<64x48xi8>, %t: tensor<48xf32>, %b: tensor<48xT>) -> tensor<?x48xi8> {
  %0 = nn.dequantize %q, %s : (tensor<?x64xi8>, tensor<f32>) -> tensor<?x64xT>
  %1 = nn.dequantize %w, %t {axis = 1 : i64} : (tensor<64x48xi8>, tensor<48xf32>) -> tensor<64x48xT>
  %2 = nn.matmul %0, %1 : (tensor<?x64xT>, tensor<64x48xT>) -> tensor<?x48xT>
  %3 = nn.add %2, %b : (tensor<?x48xT>, tensor<48xT>) -> tensor<?x48xT>
  %4 = nn.gelu %3 : (tensor<?x48xT>) -> tensor<?x48xT>
  %5 = nn.quantize %4, %s : (tensor<?x48xT>, tensor<f32>) -> tensor<?x48xi8>
  return %5 : tensor<?x48xi8> })"},
    {"WeightOnlyQkv", "qkv_matmul", 1, R"(%x: tensor<?x64xT>) -> (tensor<?x32xT>, tensor<?x16xT>) {
  %q = nn.constant {value = dense<3> : tensor<32x64xi8>} : () -> tensor<32x64xi8>
  %k = nn.constant {value = dense<-5> : tensor<16x64xi8>} : () -> tensor<16x64xi8>
  %s = nn.constant {value = dense<0.03> : tensor<32x2xf32>} : () -> tensor<32x2xf32>
  %t = nn.constant {value = dense<0.01> : tensor<16x2xf32>} : () -> tensor<16x2xf32>
  %0 = nn.dequantize %q, %s {axis = 1 : i64, block_size = 32 : i64} : (tensor<32x64xi8>, tensor<32x2xf32>) -> tensor<32x64xT>
  %1 = nn.dequantize %k, %t {axis = 1 : i64, block_size = 32 : i64} : (tensor<16x64xi8>, tensor<16x2xf32>) -> tensor<16x64xT>
  %2 = nn.matmul %x, %0 {transpose_b = true} : (tensor<?x64xT>, tensor<32x64xT>) -> tensor<?x32xT>
  %3 = nn.matmul %x, %1 {transpose_b = true} : (tensor<?x64xT>, tensor<16x64xT>) -> tensor<?x16xT>
  return %2, %3 : tensor<?x32xT>, tensor<?x16xT> })"},
    {"MaskFromPositions", "pointwise", 1, R"(%x: tensor<?x64xT>, %low: tensor<T>) -> tensor<?x64xT> {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %p = nn.iota %zero, %one {size = ["rows"]} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
  %r = nn.reshape %p {shape = ["rows", 1]} : (tensor<?xi64>) -> tensor<?x1xi64>
  %c = nn.iota %zero, %one {size = [64]} : (tensor<i64>, tensor<i64>) -> tensor<64xi64>
  %m = nn.less_equal %c, %r : (tensor<64xi64>, tensor<?x1xi64>) -> tensor<?x64xi1>
  %0 = nn.where %m, %x, %low : (tensor<?x64xi1>, tensor<?x64xT>, tensor<T>) -> tensor<?x64xT>
  return %0 : tensor<?x64xT> })"},
    // ALiBi as MPT's exports slice it: one row or none, repeated over the rows.
    {"BiasOfOneRowOrNone", "pointwise", 1, R"(%x: tensor<?x64xT>, %t: tensor<1x80xT>) -> tensor<?x64xT> {
  %0 = nn.slice %t {sizes = ["-max(0, 1 - rows) + 1", 64], starts = ["-min(1, rows) + 1", 16], steps = array<i64: 1, 1>} : (tensor<1x80xT>) -> tensor<?x64xT>
  %1 = nn.silu %x : (tensor<?x64xT>) -> tensor<?x64xT>
  %2 = nn.add %0, %1 : (tensor<?x64xT>, tensor<?x64xT>) -> tensor<?x64xT>
  return %2 : tensor<?x64xT> })"},
    {"RotaryTable", "pointwise", 1, R"(%f: tensor<8x1xf32>) -> (tensor<7x16xT>, tensor<7x16xT>) {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %p = nn.iota %zero, %one {size = [7]} : (tensor<i64>, tensor<i64>) -> tensor<7xi64>
  %q = nn.cast %p : (tensor<7xi64>) -> tensor<7xf32>
  %a = nn.mul %f, %q : (tensor<8x1xf32>, tensor<7xf32>) -> tensor<8x7xf32>
  %t = nn.transpose %a {perm = array<i64: 1, 0>} : (tensor<8x7xf32>) -> tensor<7x8xf32>
  %c = nn.concat %t, %t {axis = 1 : i64} : (tensor<7x8xf32>, tensor<7x8xf32>) -> tensor<7x16xf32>
  %0 = nn.cos %c : (tensor<7x16xf32>) -> tensor<7x16xf32>
  %1 = nn.sin %c : (tensor<7x16xf32>) -> tensor<7x16xf32>
  %2 = nn.cast %0 : (tensor<7x16xf32>) -> tensor<7x16xT>
  %3 = nn.cast %1 : (tensor<7x16xf32>) -> tensor<7x16xT>
  return %2, %3 : tensor<7x16xT>, tensor<7x16xT> })"},
};

/// Quantised results may differ by one step where a sum is added up in another order.
double tolerance(DType type) {
  switch (type) {
  case DType::F8E4M3: return 2e-2;
  case DType::I8: return 1e-2;
  default: return modelTolerance(type);
  }
}

NamedTensors randomInputs(const std::vector<Port> &ports, int64_t rows, std::mt19937 &random) {
  NamedTensors inputs;
  for (const Port &port : ports) {
    Shape shape;
    for (const Dim &dim : port.shape)
      shape.push_back(dim.constant().value_or(rows));
    std::vector<float> values(static_cast<size_t>(elementCount(shape)));
    std::normal_distribution<float> normal;
    std::uniform_int_distribution<int> integer(-8, 8);
    for (float &value : values)
      value = !isFloat(port.type) ? static_cast<float>(integer(random))
              : shape.empty()     ? 0.05f
                                  : normal(random);
    inputs[port.name] = Tensor::of<float>(DType::F32, std::move(shape), values).convertedTo(port.type);
  }
  return inputs;
}

class Families : public testing::TestWithParam<std::tuple<Case, const char *>> {};

TEST_P(Families, FiresAndAgreesWithTheReference) {
  auto [test, type] = GetParam();
  std::string text;
  for (const char *at = test.function; *at; ++at)
    if (*at == 'T' && (at[-1] == 'x' || at[-1] == '<') && at[1] == '>')
      text += type;
    else
      text += *at;
  // Unknown row counts are one symbol.
  size_t end = text.find("->");
  std::string arguments = text.substr(0, end), tail = text.substr(end);
  for (size_t at = 0; (at = arguments.find("tensor<?x", at)) != std::string::npos;) {
    size_t close = arguments.find('>', at), from = at + std::string("tensor<?x").size();
    std::string dims =
        " {nn.dims = [\"rows\", " + arguments.substr(from, arguments.find('x', from) - from) + "]}";
    arguments.insert(close + 1, dims);
    at = close + dims.size();
  }
  auto file = std::filesystem::temp_directory_path() /
              ("fusion-" + std::string(test.name) + type + std::to_string(getpid()) + ".mlir");
  std::ofstream(file) << "func.func @main(" << arguments << tail << "\n";
  auto graph = Graph::load(file.string());
  std::filesystem::remove(file);
  ASSERT_TRUE(bool(graph)) << graph.error().message;
  auto reference = compile(*graph, {.device = RunOn::Cpu, .fuse = false});
  auto fused = compile(*graph, {.device = kernelDevice(), .profit = ProfitMode::Model});
  ASSERT_TRUE(bool(reference)) << reference.error().message;
  ASSERT_TRUE(bool(fused)) << fused.error().message;
  EXPECT_EQ(fused->report().fired(test.pattern), test.fired) << fused->report().markdown();
  EXPECT_EQ(fused->report().kernelsAfter(), test.kernels) << fused->report().markdown();
  std::mt19937 random(11);
  for (int64_t rows : {1, 6, 33}) {
    NamedTensors inputs = randomInputs(graph->inputs(), rows, random);
    auto expected = reference->run(inputs);
    auto actual = fused->run(inputs);
    ASSERT_TRUE(bool(expected)) << expected.error().message;
    ASSERT_TRUE(bool(actual)) << actual.error().message;
    for (const auto &[name, value] : *expected) {
      auto difference = compare(actual->at(name), value);
      ASSERT_TRUE(bool(difference)) << difference.error().message;
      EXPECT_LE(difference->relativeL2, tolerance(value.type())) << name << " of " << rows << " rows";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Families,
                         testing::Combine(testing::ValuesIn(cases), testing::Values("bf16", "f16", "f32")),
                         [](const auto &info) {
                           return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param);
                         });
} // namespace
