#include "Exchange.h"

namespace fusion::python {

const DLPackExchangeAPI *exchangeOf(PyTypeObject *type) {
  nb::object capsule =
      nb::steal(PyObject_GetAttrString(reinterpret_cast<PyObject *>(type), "__dlpack_c_exchange_api__"));
  auto *api =
      capsule
          ? static_cast<const DLPackExchangeAPI *>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"))
          : nullptr;
  PyErr_Clear();
  while (api && api->version.major > 1)
    api = api->prev_api;
  return api && api->version.major == 1 ? api : nullptr;
}

namespace {
/// What fusion_tensor_from_dlpack takes, over a view of the newer layout.
struct Unversioned {
  DLManagedTensor view;
  DLManagedTensorVersioned *held;
};
} // namespace

DLManagedTensor *ownedView(const DLPackExchangeAPI &exchange, nb::handle tensor) {
  DLManagedTensorVersioned *held = nullptr;
  if (exchange.managed_tensor_from_py_object_no_sync(tensor.ptr(), &held) != 0) {
    PyErr_Clear();
    return nullptr;
  }
  auto *made = new Unversioned{{held->dl_tensor, nullptr, nullptr}, held};
  made->view.manager_ctx = made;
  made->view.deleter = [](DLManagedTensor *view) {
    auto *mine = static_cast<Unversioned *>(view->manager_ctx);
    if (mine->held->deleter)
      mine->held->deleter(mine->held);
    delete mine;
  };
  return &made->view;
}

} // namespace fusion::python
