#include "api/c/Handles.h"

#include "ir/base/DLPack.h"
#include "ir/base/PlainText.h"
#include "ir/base/Progress.h"

#include <cstdlib>
#include <cstring>

namespace fusion::c {

static thread_local std::string lastError;

Ports::Ports(const std::vector<Port> &ports) {
  for (const Port &port : ports) {
    std::vector<const char *> &shape = dims.emplace_back();
    for (const Dim &dim : port.shape)
      shape.push_back(texts.emplace_back(dim.str()).c_str());
    const char *name = texts.emplace_back(port.name).c_str();
    const char *type = texts.emplace_back(fusion::name(port.type)).c_str();
    entries.push_back({name, type, shape.size(), shape.data()});
  }
}

const fusion_port *Ports::get(size_t *count) const {
  if (count)
    *count = entries.size();
  return entries.data();
}

fusion_status fail(const Error &error) {
  lastError = oneLine(error.message);
  return static_cast<fusion_status>(error.kind);
}

std::shared_ptr<void> ownerOf(fusion_release release, void *context) {
  return std::shared_ptr<Lender>(new Lender{release, context});
}

char *copyText(std::string_view text) {
  char *copy = static_cast<char *>(std::malloc(text.size() + 1));
  if (!copy)
    throw std::bad_alloc();
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = 0;
  return copy;
}

} // namespace fusion::c

using namespace fusion;

uint32_t fusion_abi_version(void) { return FUSION_ABI_VERSION; }
const char *fusion_version(void) { return FUSION_VERSION; }
const char *fusion_last_error(void) { return c::lastError.c_str(); }
void fusion_set_progress(fusion_progress progress, void *context) {
  if (!progress)
    return setProgressSink(nullptr);
  setProgressSink(
      [progress, context](std::string_view title, std::string_view name, int64_t done, int64_t total) {
        progress(context, std::string(title).c_str(), std::string(name).c_str(), done, total);
      });
}
void fusion_set_quiet(int quiet) { setQuiet(quiet != 0); }
void fusion_free(char *text) { std::free(text); }

fusion_status fusion_tensor_wrap(const char *type, size_t rank, const int64_t *shape, void *data,
                                 fusion_release release, void *context, fusion_tensor **tensor) {
  return c::guarded([&]() -> Status {
    auto owner = c::ownerOf(release, context);
    const auto element = type ? dtypeFromName(type) : std::nullopt;
    if (!element || !tensor || (rank > 0 && !shape))
      return badInput(
          std::string("a tensor needs its dims, a place for the result, and a type as ports have it, not '") +
          (type ? type : "") + "'");
    Shape dims(shape, shape + rank);
    for (int64_t dim : dims)
      if (dim < 0)
        return badInput("a tensor of the shape " + shapeString(dims));
    if (!data && elementCount(dims) > 0)
      return badInput("a tensor without memory");
    *tensor = new fusion_tensor{Tensor::wrap(*element, std::move(dims), data, std::move(owner))};
    return {};
  });
}

const char *fusion_tensor_type(const fusion_tensor *tensor) { return name(tensor->tensor.type()).data(); }

const int64_t *fusion_tensor_shape(const fusion_tensor *tensor, size_t *rank) {
  if (rank)
    *rank = tensor->tensor.shape().size();
  return tensor->tensor.shape().data();
}

const int64_t *fusion_tensor_strides(const fusion_tensor *tensor) {
  return tensor->tensor.isDense() ? nullptr : tensor->tensor.strides().data();
}

const void *fusion_tensor_data(const fusion_tensor *tensor) { return tensor->tensor.data(); }

fusion_status fusion_tensor_from_dlpack(DLManagedTensor *view, fusion_tensor **tensor) {
  return c::guarded([&]() -> Status {
    if (!view || !tensor)
      return badInput("a tensor from DLPack needs a view, and a place for the result");
    auto handle = std::make_unique<fusion_tensor>();
    auto taken = fromDLPack(view);
    if (!taken)
      return taken.error();
    handle->tensor = std::move(*taken);
    *tensor = handle.release();
    return {};
  });
}

fusion_status fusion_tensor_to_dlpack(const fusion_tensor *tensor, DLManagedTensor **view) {
  return c::guarded([&]() -> Status {
    DLManagedTensor *made = tensor && view ? toDLPack(tensor->tensor) : nullptr;
    if (!made)
      return badInput("no tensor of one device: fetch a cache of several ranks");
    *view = made;
    return {};
  });
}

fusion_status fusion_tensor_bind(const DLManagedTensor *view, fusion_tensor **tensor) {
  return c::guarded([&]() -> Status {
    if (!view || !tensor)
      return badInput("a tensor that is bound needs a view, and a place for the handle");
    if (*tensor && (!(*tensor)->lender || (*tensor)->isBound))
      return badInput("a tensor is bound again: unbind it first");
    auto fresh = *tensor ? nullptr : std::make_unique<fusion_tensor>();
    fusion_tensor &handle = fresh ? *fresh : **tensor;
    if (fresh) {
      handle.lender = std::make_shared<c::Lender>();
      handle.tensor = Tensor::wrap(DType::F32, {}, nullptr, handle.lender);
    }
    if (Status status = fromDLPack(view->dl_tensor, handle.tensor); !status)
      return status;
    handle.isBound = true;
    if (fresh)
      *tensor = fresh.release();
    return {};
  });
}

int fusion_tensor_unbind(fusion_tensor *tensor, fusion_release release, void *context) {
  if (tensor->isShared()) {
    tensor->lender->release = release;
    tensor->lender->context = context;
    return 1;
  }
  tensor->isBound = false;
  tensor->tensor.rewrap(tensor->tensor.type(), {}, nullptr, {});
  return 0;
}

void fusion_tensor_destroy(fusion_tensor *tensor) { delete tensor; }
