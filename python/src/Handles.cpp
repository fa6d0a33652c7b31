#include "Handles.h"

#include "DLPack.h"

namespace fusion::python {

namespace {
/// Kept until the interpreter ends.
struct Errors {
  PyObject *classes[4] = {};
} errors;

/// A Python object that is let go from any thread.
void letGo(PyObject *object) {
  if (!Py_IsInitialized())
    return;
  PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF(object);
  PyGILState_Release(state);
}

/// Memory that belongs to a Python object.
struct Owned {
  DLManagedTensor view;
  std::vector<int64_t> shape;
  PyObject *owner;
};

struct View {
  explicit View(const fusion_tensor *tensor) { check(fusion_tensor_to_dlpack(tensor, &managed)); }
  View(const View &) = delete;
  ~View() { managed->deleter(managed); }
  const DLTensor &operator*() const { return managed->dl_tensor; }
  const DLTensor *operator->() const { return &managed->dl_tensor; }
  DLManagedTensor *managed = nullptr;
};
} // namespace

void setErrors(nb::object answerIsNo, nb::object badInput, nb::object lacking) {
  errors.classes[FUSION_ANSWER_IS_NO] = answerIsNo.release().ptr();
  errors.classes[FUSION_BAD_INPUT] = badInput.release().ptr();
  errors.classes[FUSION_LACKING] = lacking.release().ptr();
}

void check(fusion_status status) {
  if (status == FUSION_OK)
    return;
  PyObject *kind =
      status <= FUSION_LACKING && errors.classes[status] ? errors.classes[status] : PyExc_RuntimeError;
  PyErr_SetString(kind, fusion_last_error());
  throw nb::python_error();
}

Buffer *Buffer::of(nb::handle object) {
  auto buffer = std::make_unique<Buffer>();
  if (PyObject_GetBuffer(object.ptr(), &buffer->view, PyBUF_SIMPLE) != 0)
    throw nb::python_error();
  return buffer.release();
}

void Buffer::release(void *buffer) {
  if (!Py_IsInitialized())
    return;
  PyGILState_STATE state = PyGILState_Ensure();
  PyBuffer_Release(&static_cast<Buffer *>(buffer)->view);
  PyGILState_Release(state);
  delete static_cast<Buffer *>(buffer);
}

Tensor *Tensor::fromDLPack(nb::object capsule) {
  auto *view = static_cast<DLManagedTensor *>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (!view)
    throw nb::python_error();
  fusion_tensor *tensor = nullptr;
  check(fusion_tensor_from_dlpack(view, &tensor));
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  // The producer's deleter may be Python's, which runs where the last user ends: under the interpreter's
  // lock.
  return new Tensor(tensor);
}

Tensor *Tensor::fromPointer(uintptr_t address, const std::vector<int64_t> &shape, uint8_t code, uint8_t bits,
                            int kind, int ordinal, nb::object owner) {
  auto owned = std::make_unique<Owned>(Owned{{}, shape, owner.ptr()});
  owned->view.dl_tensor = {reinterpret_cast<void *>(address),
                           {kind, ordinal},
                           static_cast<int32_t>(shape.size()),
                           {code, bits, 1},
                           owned->shape.data(),
                           nullptr,
                           0};
  owned->view.manager_ctx = owned.get();
  owned->view.deleter = [](DLManagedTensor *view) {
    auto *owned = static_cast<Owned *>(view->manager_ctx);
    letGo(owned->owner);
    delete owned;
  };
  fusion_tensor *tensor = nullptr;
  check(fusion_tensor_from_dlpack(&owned->view, &tensor));
  owner.inc_ref();
  owned.release();
  return new Tensor(tensor);
}

nb::object Tensor::toDLPack() const {
  DLManagedTensor *view = nullptr;
  check(fusion_tensor_to_dlpack(get(), &view));
  return nb::steal(PyCapsule_New(view, "dltensor", releaseCapsule));
}

void releaseCapsule(PyObject *capsule) {
  if (auto *view = static_cast<DLManagedTensor *>(PyCapsule_GetPointer(capsule, "dltensor")))
    view->deleter(view);
  else
    PyErr_Clear(); // somebody took it
}

Tensor::Facts Tensor::facts() const {
  const View view(get());
  std::optional<std::vector<int64_t>> strides;
  if (view->strides)
    strides.emplace(view->strides, view->strides + view->ndim);
  return {reinterpret_cast<uintptr_t>(view->data) + view->byte_offset,
          std::vector<int64_t>(view->shape, view->shape + view->ndim),
          std::move(strides),
          view->dtype.code,
          view->dtype.bits,
          view->device.device_type,
          view->device.device_id};
}

} // namespace fusion::python
