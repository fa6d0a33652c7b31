#include "Values.h"

#include "Exchange.h"

#include <cstring>
#include <unordered_map>

namespace fusion::python {

namespace {
/// Borrowed for ever.
struct Hooks {
  PyObject *kindOf, *toCore, *torchCapsule, *ofTorchCapsule, *streamOf, *tensor, *asArray, *ofOther;
  PyObject *coreField; ///< "_core"
} hooks;

struct TypeFacts {
  Kind kind;
  const DLPackExchangeAPI *exchange; ///< of torch's tensors; may be null
};

nb::object call(PyObject *function, nb::handle argument) {
  PyObject *result = PyObject_CallFunctionObjArgs(function, argument.ptr(), nullptr);
  if (!result)
    throw nb::python_error();
  return nb::steal(result);
}

TypeFacts factsOf(nb::handle value) {
  static auto &known = *new std::unordered_map<PyTypeObject *, TypeFacts>; // its types are borrowed for ever
  static std::pair<PyTypeObject *, TypeFacts> last; // one of them: most inputs of a call are of one
  PyTypeObject *type = Py_TYPE(value.ptr());
  if (last.first == type)
    return last.second;
  if (auto found = known.find(type); found != known.end()) {
    last = {found->first, found->second};
    return found->second;
  }
  nb::object kind = call(hooks.kindOf, value);
  const long number = PyLong_AsLong(kind.ptr());
  if (number == -1 && PyErr_Occurred())
    throw nb::python_error();
  TypeFacts facts{static_cast<Kind>(number), nullptr};
  if (facts.kind == Kind::Torch)
    facts.exchange = exchangeOf(type);
  if (facts.kind != Kind::Other) { // types of no library come and go
    Py_INCREF(reinterpret_cast<PyObject *>(type));
    known.emplace(type, facts);
  }
  return facts;
}

/// A fusion_release of a Python object, from any thread.
void letGoOf(void *object) {
  if (Py_IsInitialized()) {
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(static_cast<PyObject *>(object));
    PyGILState_Release(state);
  }
}

/// A buffer that a tensor shows.
struct Shown {
  DLManagedTensor view;
  Py_buffer buffer;
};

/// DLPack's type of elements that struct's letter means; no bits for others.
DLDataType typeOf(const char *format) {
  if (!format)
    return {1, 8, 1};
  if (format[0] == 0 || format[1] != 0)
    return {0, 0, 1};
  switch (format[0]) {
  case 'f':
    return {2, 32, 1};
  case 'd':
    return {2, 64, 1};
  case 'e':
    return {2, 16, 1};
  case '?':
    return {6, 8, 1};
  case 'b':
    return {0, 8, 1};
  case 'h':
    return {0, 16, 1};
  case 'i':
    return {0, 32, 1};
  case 'l':
  case 'q':
    return {0, 64, 1};
  case 'B':
    return {1, 8, 1};
  case 'H':
    return {1, 16, 1};
  case 'I':
    return {1, 32, 1};
  case 'L':
  case 'Q':
    return {1, 64, 1};
  default:
    return {0, 0, 1};
  }
}
static_assert(sizeof(long) == 8);

void releaseShown(DLManagedTensor *view) {
  auto *shown = static_cast<Shown *>(view->manager_ctx);
  if (Py_IsInitialized()) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyBuffer_Release(&shown->buffer);
    PyGILState_Release(state);
  }
  delete shown;
}

/// A dense array's memory; null for other arrays.
fusion_tensor *ofArray(nb::handle array) {
  auto shown = std::make_unique<Shown>();
  Py_buffer &buffer = shown->buffer;
  if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_ND | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    return nullptr;
  }
  const DLDataType type = typeOf(buffer.format);
  shown->view = {
      {buffer.buf, {1, 0}, buffer.ndim, type, reinterpret_cast<int64_t *>(buffer.shape), nullptr, 0},
      shown.get(),
      releaseShown};
  fusion_tensor *tensor = nullptr;
  if (type.bits == 0 || fusion_tensor_from_dlpack(&shown->view, &tensor) != FUSION_OK) {
    PyBuffer_Release(&buffer);
    return nullptr;
  }
  shown.release();
  return tensor;
}

/// As DLPack's view of a tensor that is given up.
DLManagedTensor *viewOf(fusion_tensor *made) {
  DLManagedTensor *view = nullptr;
  const fusion_status status = fusion_tensor_to_dlpack(made, &view);
  fusion_tensor_destroy(made);
  check(status);
  return view;
}

/// numpy's letter for a kind of type; 0 for types that it has not.
char letterOf(const DLDataType &type) {
  switch (type.code) {
  case 0:
    return type.bits >= 8 ? 'i' : 0;
  case 1:
    return type.bits >= 8 ? 'u' : 0;
  case 2:
    return 'f';
  case 6:
    return 'b';
  default:
    return 0;
  }
}
} // namespace

void setValueHooks(const nb::dict &given) {
  auto hook = [&](const char *name) { return nb::object(given[name]).release().ptr(); };
  hooks = {hook("kind_of"),          hook("to_core"),   hook("torch_capsule"),
           hook("of_torch_capsule"), hook("stream_of"), hook("tensor"),
           hook("as_array"),         hook("of_other"),  PyUnicode_InternFromString("_core")};
}

SpareHandles::~SpareHandles() {
  for (fusion_tensor *handle : handles)
    fusion_tensor_destroy(handle);
}

fusion_tensor *SpareHandles::take() {
  if (handles.empty())
    return nullptr;
  fusion_tensor *last = handles.back();
  handles.pop_back();
  return last;
}

void InputNames::set(const fusion_port *ports, size_t count) {
  for (size_t i = 0; i < count; ++i)
    names.push_back({{}, ports[i].name});
}

const char *InputNames::of(nb::handle name, size_t index) {
  Name *known = index < names.size() ? &names[index] : nullptr;
  if (known && known->last.is(name))
    return known->text;
  const char *text = PyUnicode_AsUTF8AndSize(name.ptr(), nullptr);
  if (!text)
    throw nb::python_error();
  if (!known || std::strcmp(text, known->text) != 0)
    return text;
  if (PyUnicode_CheckExact(name.ptr()))
    known->last = nb::borrow(name);
  return known->text;
}

Arguments::Arguments(const nb::dict &values, const char *what, CallMemory &memory, nb::handle typed)
    : spare(memory.handles), typed(typed) {
  const size_t count = values.size();
  names.reserve(count);
  handles.reserve(count);
  try {
    for (auto [name, value] : values) {
      const char *text = memory.names.of(name, names.size());
      handles.push_back(take(name, value, what));
      names.push_back(text);
    }
  } catch (...) {
    letGo();
    throw;
  }
}

Arguments::~Arguments() { letGo(); }

void Arguments::letGo() {
  for (fusion_tensor *tensor : made)
    fusion_tensor_destroy(tensor);
  for (const Bound &each : bound)
    if (fusion_tensor_unbind(each.handle, letGoOf, each.tensor) == 0) {
      spare.keep(each.handle);
    } else { // a result is in the tensor's memory
      Py_INCREF(each.tensor);
      fusion_tensor_destroy(each.handle);
    }
}

void Arguments::noteGpu(const DLManagedTensor &view) {
  if (torchGpu < 0 && view.dl_tensor.device.device_type == 2)
    torchGpu = view.dl_tensor.device.device_id;
}

fusion_tensor *Arguments::bind(const DLPackExchangeAPI &exchange, nb::handle tensor) {
  DLManagedTensor view{};
  if (exchange.dltensor_from_py_object_no_sync(tensor.ptr(), &view.dl_tensor) != 0) {
    PyErr_Clear();
    return nullptr;
  }
  noteGpu(view);
  if (bound.empty())
    bound.reserve(handles.capacity());
  fusion_tensor *handle = spare.take();
  const fusion_status status = fusion_tensor_bind(&view, &handle);
  if (status == FUSION_OK)
    bound.push_back({handle, tensor.ptr()});
  else if (handle)
    spare.keep(handle);
  return status == FUSION_OK ? handle : nullptr;
}

const fusion_tensor *Arguments::take(nb::handle name, nb::handle value, const char *what) {
  const TypeFacts facts = factsOf(value);
  switch (facts.kind) {
  case Kind::Tensor: {
    PyObject *core = PyObject_GetAttr(value.ptr(), hooks.coreField);
    if (!core)
      throw nb::python_error();
    kept.push_back(nb::steal(core));
    return nb::cast<const Tensor &>(kept.back()).get();
  }
  case Kind::Array:
    if (fusion_tensor *tensor = ofArray(value)) {
      made.push_back(tensor);
      return tensor;
    }
    break;
  case Kind::Torch: {
    hasTorch = true;
    fusion_tensor *tensor = nullptr;
    if (facts.exchange)
      exchange = facts.exchange;
    if (exchange && exchange->dltensor_from_py_object_no_sync) {
      if ((tensor = bind(*exchange, value)))
        return tensor;
    } else if (DLManagedTensor *view = exchange ? ownedView(*exchange, value) : nullptr) {
      noteGpu(*view);
      if (fusion_tensor_from_dlpack(view, &tensor) != FUSION_OK)
        view->deleter(view); // one with strides, say: Python makes it dense
    }
    if (!tensor) {
      nb::object capsule = call(hooks.torchCapsule, value);
      auto *view = static_cast<DLManagedTensor *>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
      if (!view)
        throw nb::python_error();
      noteGpu(*view);
      check(fusion_tensor_from_dlpack(view, &tensor));
      PyCapsule_SetName(capsule.ptr(), "used_dltensor");
    }
    made.push_back(tensor);
    return tensor;
  }
  case Kind::Plain:
    if (typed.is_valid()) {
      nb::object array = typed(name, value);
      kept.push_back(array);
      if (!array.is(value))
        return take(name, array, what);
    }
    break;
  case Kind::Other:
    break;
  }
  nb::object label = nb::steal(PyUnicode_FromFormat("%s %U", what, name.ptr()));
  PyObject *core = PyObject_CallFunctionObjArgs(hooks.toCore, value.ptr(), label.ptr(), nullptr);
  if (!core)
    throw nb::python_error();
  kept.push_back(nb::steal(core));
  return nb::cast<const Tensor &>(kept.back()).get();
}

uintptr_t Arguments::torchStream() const {
  void *current = nullptr;
  if (exchange && exchange->current_work_stream(2, torchGpu, &current) == 0)
    return reinterpret_cast<uintptr_t>(current);
  PyErr_Clear();
  nb::object stream = call(hooks.streamOf, nb::int_(torchGpu));
  return nb::cast<uintptr_t>(stream);
}

nb::object asTensor(fusion_tensor *made) {
  return call(hooks.tensor, nb::cast(new Tensor(made), nb::rv_policy::take_ownership));
}

nb::object asTorch(fusion_tensor *made) {
  DLManagedTensor *view = viewOf(made);
  nb::object capsule = nb::steal(PyCapsule_New(view, "dltensor", releaseCapsule));
  return call(hooks.ofTorchCapsule, capsule);
}

nb::object asArray(fusion_tensor *made) {
  DLManagedTensor *view = nullptr;
  if (fusion_tensor_to_dlpack(made, &view) == FUSION_OK && Array::takes(*view)) {
    fusion_tensor_destroy(made);
    return call(hooks.asArray, nb::cast(new Array(view), nb::rv_policy::take_ownership));
  }
  if (view)
    view->deleter(view);
  return call(hooks.ofOther, nb::cast(new Tensor(made), nb::rv_policy::take_ownership));
}

Array::Array(DLManagedTensor *view) : view(view) {
  const DLTensor &tensor = view->dl_tensor;
  const int itemSize = tensor.dtype.bits / 8;
  strides.resize(static_cast<size_t>(tensor.ndim));
  int64_t dense = itemSize;
  for (size_t i = strides.size(); i-- > 0;) {
    strides[i] = tensor.strides ? tensor.strides[i] * itemSize : dense;
    dense *= tensor.shape[i];
  }
  constexpr int aligned = 0x100, nativeOrder = 0x200, writable = 0x400;
  contents = {2,
              tensor.ndim,
              letterOf(tensor.dtype),
              itemSize,
              aligned | nativeOrder | writable,
              tensor.shape,
              strides.data(),
              static_cast<char *>(tensor.data) + tensor.byte_offset,
              nullptr};
}

Array::~Array() { view->deleter(view); }

nb::object Array::interface() { return nb::steal(PyCapsule_New(&contents, nullptr, nullptr)); }

bool Array::takes(const DLManagedTensor &view) {
  return view.dl_tensor.device.device_type == 1 && letterOf(view.dl_tensor.dtype) != 0;
}

} // namespace fusion::python
