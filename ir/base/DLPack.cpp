#include "ir/base/DLPack.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace fusion {
namespace {

constexpr int hostDevice = 1, cudaDevice = 2, pinnedHostDevice = 3;

struct Element {
  DType type;
  uint8_t code, bits;
};
constexpr std::array<Element, 14> elements = {{{DType::Bool, 6, 8},
                                               {DType::I8, 0, 8},
                                               {DType::I16, 0, 16},
                                               {DType::I32, 0, 32},
                                               {DType::I64, 0, 64},
                                               {DType::U8, 1, 8},
                                               {DType::U16, 1, 16},
                                               {DType::U32, 1, 32},
                                               {DType::U64, 1, 64},
                                               {DType::F16, 2, 16},
                                               {DType::F32, 2, 32},
                                               {DType::F64, 2, 64},
                                               {DType::BF16, 4, 16},
                                               {DType::F8E4M3, 10, 8}}};
constexpr Element f8e5m2 = {DType::F8E5M2, 12, 8};

/// Null for types that this library has not.
const Element *elementOf(const DLDataType &type) {
  if (type.lanes != 1)
    return nullptr;
  if (type.code == f8e5m2.code)
    return type.bits == f8e5m2.bits ? &f8e5m2 : nullptr;
  auto found = std::find_if(elements.begin(), elements.end(), [&](const Element &known) {
    return known.code == type.code && known.bits == type.bits;
  });
  return found == elements.end() ? nullptr : &*found;
}

/// What a view points to, as long as it lives.
struct Held {
  DLManagedTensor view;
  Tensor tensor;
  Shape shape, strides;
};

bool isDense(const DLTensor &tensor) {
  std::span<const int64_t> shape(tensor.shape, static_cast<size_t>(tensor.ndim));
  if (!tensor.strides || elementCount(shape) == 0)
    return true;
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0; expected *= shape[i])
    if (shape[i] != 1 && tensor.strides[i] != expected)
      return false;
  return true;
}

} // namespace

DLManagedTensor *toDLPack(const Tensor &tensor) {
  if (tensor.device().ordinal < 0) // on several
    return nullptr;
  auto *held = new Held{{}, tensor, tensor.shape(), tensor.strides()};
  Element element = f8e5m2;
  for (const Element &known : elements)
    if (known.type == tensor.type())
      element = known;
  if (tensor.type() == DType::I4 || tensor.type() == DType::U4) // a byte each in memory
    element = {tensor.type(), uint8_t(tensor.type() == DType::I4 ? 0 : 1), 8};
  bool onHost = tensor.device().kind == Device::Kind::Host;
  held->view.dl_tensor = {held->tensor.data(),
                          {onHost ? hostDevice : cudaDevice, onHost ? 0 : tensor.device().ordinal},
                          static_cast<int32_t>(held->shape.size()),
                          {element.code, element.bits, 1},
                          held->shape.data(),
                          tensor.isDense() ? nullptr : held->strides.data(),
                          0};
  held->view.manager_ctx = held;
  held->view.deleter = [](DLManagedTensor *view) { delete static_cast<Held *>(view->manager_ctx); };
  return &held->view;
}

Status fromDLPack(const DLTensor &source, Tensor &tensor) {
  const Element *element = elementOf(source.dtype);
  if (!element)
    return badInput(fmt::format("a DLPack tensor of element type {}, {} bits, {} lanes is not supported",
                                source.dtype.code, source.dtype.bits, source.dtype.lanes));
  int device = source.device.device_type;
  if (device != hostDevice && device != cudaDevice && device != pinnedHostDevice)
    return badInput(
        fmt::format("a DLPack tensor on device type {} is neither on the host nor on a CUDA GPU", device));
  if (!isDense(source))
    return badInput("a DLPack tensor with strides: make it contiguous first");
  Device place;
  if (device == cudaDevice)
    place = {Device::Kind::Cuda, source.device.device_id};
  tensor.rewrap(element->type, {source.shape, static_cast<size_t>(source.ndim)},
                static_cast<std::byte *>(source.data) + source.byte_offset, place);
  return {};
}

Result<Tensor> fromDLPack(DLManagedTensor *view) {
  Tensor tensor;
  if (Status status = fromDLPack(view->dl_tensor, tensor); !status)
    return status.error();
  std::shared_ptr<void> owner(view, [](void *taken) {
    auto *managed = static_cast<DLManagedTensor *>(taken);
    if (managed->deleter)
      managed->deleter(managed);
  });
  return Tensor::wrap(tensor.type(), tensor.shape(), tensor.data(), std::move(owner), tensor.device());
}

} // namespace fusion
