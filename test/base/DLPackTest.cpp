#include "ir/base/DLPack.h"

#include <gtest/gtest.h>

#include <numeric>

using namespace fusion;

namespace {

const DType types[] = {DType::Bool, DType::I8,     DType::U8,     DType::I16, DType::U16,
                       DType::I32,  DType::U32,    DType::I64,    DType::U64, DType::F16,
                       DType::BF16, DType::F8E4M3, DType::F8E5M2, DType::F32, DType::F64};

TEST(DLPack, AViewWithGapsHasStrides) {
  Tensor whole = Tensor::zeros(DType::F32, {2, 8});
  DLManagedTensor *view =
      toDLPack(Tensor::wrapStrided(DType::F32, {2, 3}, {8, 1}, whole.data(), whole.storage()));
  ASSERT_NE(view->dl_tensor.strides, nullptr);
  EXPECT_EQ(view->dl_tensor.strides[0], 8);
  EXPECT_EQ(view->dl_tensor.strides[1], 1);
  view->deleter(view);
}

TEST(DLPack, ThereAndBackIsTheSameStorage) {
  for (DType type : types) {
    Tensor tensor = Tensor::zeros(type, {2, 3, 5});
    auto back = fromDLPack(toDLPack(tensor));
    ASSERT_TRUE(back) << name(type) << ": " << back.error().message;
    EXPECT_EQ(back->type(), type) << name(type);
    EXPECT_EQ(back->shape(), tensor.shape());
    EXPECT_EQ(back->data(), tensor.data());
    EXPECT_EQ(back->device(), Device());
  }
}

TEST(DLPack, TheStorageLivesAsLongAsTheView) {
  bool released = false;
  float values[6];
  std::shared_ptr<void> owner(values, [&](void *) { released = true; });
  DLManagedTensor *view =
      toDLPack(Tensor::wrap(DType::F32, {6}, values, std::move(owner), {Device::Kind::Cuda, 3}));
  EXPECT_FALSE(released);
  EXPECT_EQ(view->dl_tensor.device.device_type, 2);
  EXPECT_EQ(view->dl_tensor.device.device_id, 3);
  view->deleter(view);
  EXPECT_TRUE(released);
}

/// A view over `values` whose deleter counts.
struct View {
  float values[24] = {};
  int64_t shape[3] = {2, 3, 4}, strides[3] = {12, 4, 1};
  DLManagedTensor managed = {
      {values, {1, 0}, 3, {2, 32, 1}, shape, strides, 0}, this, [](DLManagedTensor *taken) {
        ++static_cast<View *>(taken->manager_ctx)->released;
      }};
  int released = 0;
};

TEST(DLPack, TheViewIsReleasedWithTheLastTensor) {
  View view;
  std::iota(view.values, view.values + 24, 0.f);
  view.managed.dl_tensor.byte_offset = 4;
  {
    auto tensor = fromDLPack(&view.managed);
    ASSERT_TRUE(tensor) << tensor.error().message;
    Tensor copy = *tensor;
    EXPECT_EQ(copy.shape(), (Shape{2, 3, 4}));
    EXPECT_EQ(copy.as<float>()[0], 1.f);
    EXPECT_EQ(view.released, 0);
  }
  EXPECT_EQ(view.released, 1);
}

TEST(DLPack, WhatIsNotDenseOrNotKnownIsRefusedAndStaysTheCallers) {
  auto refuse = [](View &view, const char *says) {
    auto tensor = fromDLPack(&view.managed);
    ASSERT_FALSE(tensor) << says;
    EXPECT_EQ(tensor.error().kind, ErrorKind::BadInput);
    EXPECT_NE(tensor.error().message.find(says), std::string::npos) << tensor.error().message;
    EXPECT_EQ(view.released, 0);
  };
  View transposed;
  std::swap(transposed.strides[0], transposed.strides[1]);
  refuse(transposed, "contiguous");
  View complex;
  complex.managed.dl_tensor.dtype = {5, 64, 1};
  refuse(complex, "element type 5");
  View vectors;
  vectors.managed.dl_tensor.dtype.lanes = 4;
  refuse(vectors, "4 lanes");
  View metal;
  metal.managed.dl_tensor.device.device_type = 8;
  refuse(metal, "device type 8");
}

TEST(DLPack, StridesOfDimsOfOneDoNotMatter) {
  View view;
  view.shape[0] = 1;
  view.strides[0] = 999;
  EXPECT_TRUE(fromDLPack(&view.managed));
  View empty;
  empty.shape[1] = 0;
  empty.strides[2] = 7;
  EXPECT_TRUE(fromDLPack(&empty.managed));
}

} // namespace
