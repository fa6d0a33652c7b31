// Tensors of a library that has DLPack's table of functions: without a capsule, and without its Python.
#pragma once

#include "DLPack.h"
#include "Handles.h"

namespace fusion::python {

/// `type.__dlpack_c_exchange_api__`, which PyTorch has from 2.10 on. Null where the type has none of
/// version 1.
const DLPackExchangeAPI *exchangeOf(PyTypeObject *type);

/// A tensor's memory by a table without dltensor_from_py_object_no_sync, kept alive until the view's deleter
/// is called, from any thread. Null for what the library does not show: asked for a capsule, it says why.
DLManagedTensor *ownedView(const DLPackExchangeAPI &exchange, nb::handle tensor);

} // namespace fusion::python
