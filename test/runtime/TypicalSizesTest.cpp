#include "runtime/TypicalSizes.h"

#include <gtest/gtest.h>

using namespace fusion;

namespace {

/// Keys [2, past, 8] in the front of a buffer [2, capacity, 8], extended by `fresh`, and a mask.
ProgramPlan extended(int64_t capacity, const Dim &masked = Dim::symbol("past") + Dim::symbol("fresh")) {
  const Dim past = Dim::symbol("past"), fresh = Dim::symbol("fresh"), two(2), eight(8);
  const DimShape strides = {capacity * 8, 8, 1};
  ProgramPlan plan;
  plan.buffers = {{BufferPlan::Kind::Input, "keys", DType::F32, {two, capacity, eight}, {}},
                  {BufferPlan::Kind::Input, "mask", DType::F32, {masked}, {}}};
  plan.inputs = {{"keys", DType::F32, {two, past, eight}, 0, 0, strides}, {"mask", DType::F32, {masked}, 1}};
  plan.outputs = {{"present", DType::F32, {two, past + fresh, eight}, 0, 0, strides}};
  return plan;
}

TEST(TypicalSizes, CachesAreHalfFull) {
  EXPECT_EQ(typicalSizes(extended(600), {{"past", 3}, {"fresh", 1}}),
            (SymbolValues{{"past", 300}, {"fresh", 1}}));
  EXPECT_EQ(typicalSizes(extended(100'000), {{"past", 3}, {"fresh", 1}}),
            (SymbolValues{{"past", 1024}, {"fresh", 1}}));
}

TEST(TypicalSizes, ThoseOfTheRunAreKept) {
  for (const SymbolValues &sizes : {SymbolValues{{"past", 0}, {"fresh", 7}},   // a prompt
                                    SymbolValues{{"past", 301}, {"fresh", 1}}, // longer already
                                    SymbolValues{{"past", 3}, {"fresh", 400}}, // no room beside
                                    SymbolValues{{"fresh", 1}}})               // not known
    EXPECT_EQ(typicalSizes(extended(600), sizes), sizes);
  ProgramPlan copied = extended(600);
  copied.inputs[0].strides = copied.outputs[0].strides = {};
  copied.buffers[0].shape = copied.inputs[0].shape;
  const SymbolValues sizes = {{"past", 3}, {"fresh", 1}};
  EXPECT_EQ(typicalSizes(copied, sizes), sizes);
}

TEST(TypicalSizes, OtherNamesFollow) {
  const Dim total = Dim::symbol("total"), seen = Dim::symbol("seen");
  ProgramPlan plan = extended(600, seen);
  plan.equalities = {{seen, total, "a mask"}, {Dim::symbol("past") + Dim::symbol("fresh"), total, "an add"}};
  EXPECT_EQ(typicalSizes(plan, {{"past", 3}, {"fresh", 1}, {"total", 4}, {"seen", 4}}),
            (SymbolValues{{"past", 300}, {"fresh", 1}, {"total", 301}, {"seen", 301}}));
}

TEST(TypicalSizes, NoneContradictsThePlan) {
  const SymbolValues sizes = {{"past", 3}, {"fresh", 1}};
  ProgramPlan plan = extended(600);
  plan.equalities = {{Dim::symbol("past"), 3 * Dim::symbol("fresh"), "an add"}};
  EXPECT_EQ(typicalSizes(plan, sizes), sizes);
  plan.equalities = {{Dim::symbol("past"), Dim(3), "an add"}};
  EXPECT_EQ(typicalSizes(plan, sizes), sizes);
}

} // namespace
