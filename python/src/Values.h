// Values of Python as tensors of a call, and its results as values of Python.
#pragma once

#include "Handles.h"

struct DLPackExchangeAPI;

namespace fusion::python {

/// What the package's Python half does for values, by name: `kind_of(value)`, a Kind; `to_core(value,
/// label)`, a Tensor of any value, or raises; `torch_capsule(tensor)`, its `dltensor`;
/// `of_torch_capsule(capsule)`, a torch.Tensor; `stream_of(gpu)`, torch's current cudaStream_t there as int;
/// `tensor(core)`, a fusion.Tensor; `as_array`, numpy.asarray; `of_other(core)`, for results that as_array
/// cannot take. Kept until the interpreter ends.
void setValueHooks(const nb::dict &hooks);

/// `Plain`: a number or list, which has no element type of its own.
enum class Kind { Other, Tensor, Array, Torch, Plain };

/// Unbound handles (fusion_tensor_bind) of calls that are over. Used under the interpreter's lock.
class SpareHandles {
public:
  SpareHandles() = default;
  SpareHandles(const SpareHandles &) = delete;
  ~SpareHandles();
  fusion_tensor *take(); ///< null if there is none
  void keep(fusion_tensor *handle) { handles.push_back(handle); }

private:
  std::vector<fusion_tensor *> handles;
};

/// The names of a program's inputs as Python and as C have them: one that Python gave before is not read
/// again.
class InputNames {
public:
  InputNames() = default;
  InputNames(const InputNames &) = delete;
  void set(const fusion_port *ports, size_t count);
  /// Of the input that is given in the place `index`. Raises for what is no str.
  const char *of(nb::handle name, size_t index);

private:
  struct Name {
    nb::object last; ///< that was given here and is `text`
    const char *text;
  };
  std::vector<Name> names;
};

/// What of a program's calls is kept for the next one.
struct CallMemory {
  InputNames names;
  SpareHandles handles;
};

/// Names and tensors of a call. Made and destroyed under the interpreter's lock, while `values` stay.
class Arguments {
public:
  /// `what` is for messages: "input". Raises BadInput for what is no tensor. `typed(name, value)`: an
  /// array for a number or list, which else becomes one of numpy's type.
  Arguments(const nb::dict &values, const char *what, CallMemory &memory, nb::handle typed = {});
  Arguments(const Arguments &) = delete;
  ~Arguments();
  size_t size() const { return names.size(); }
  /// Whether one is a torch.Tensor, and the GPU of the first that lies on one; -1 if none does.
  bool hasTorch = false;
  int torchGpu = -1;
  /// torch's current cudaStream_t on that GPU.
  uintptr_t torchStream() const;
  std::vector<const char *> names;
  std::vector<const fusion_tensor *> handles;

private:
  void noteGpu(const DLManagedTensor &view);
  const fusion_tensor *take(nb::handle name, nb::handle value, const char *what);
  /// A handle of the memory that torch's tensor has, for as long as this lives. Null for one with strides,
  /// say.
  fusion_tensor *bind(const DLPackExchangeAPI &exchange, nb::handle tensor);
  void letGo();

  SpareHandles &spare;
  const nb::handle typed;
  struct Bound {
    fusion_tensor *handle;
    PyObject *tensor; ///< borrowed: the caller's dict has it
  };
  std::vector<Bound> bound;
  std::vector<fusion_tensor *> made;
  std::vector<nb::object> kept;
  const DLPackExchangeAPI *exchange = nullptr; ///< of a torch.Tensor among them, if torch has one
};

/// Each takes `made` over.
nb::object asTensor(fusion_tensor *made);
nb::object asArray(fusion_tensor *made); ///< fusion.Tensor where numpy has no such type or place
nb::object asTorch(fusion_tensor *made);

/// A result in memory of the host, which numpy.asarray() takes without a copy.
class Array {
public:
  explicit Array(DLManagedTensor *view);
  Array(const Array &) = delete;
  ~Array();
  /// numpy's __array_struct__.
  nb::object interface();
  /// Whether numpy has arrays of that type and place.
  static bool takes(const DLManagedTensor &view);

private:
  struct Struct { // numpy's PyArrayInterface
    int two, dims;
    char kind;
    int itemSize, flags;
    int64_t *shape, *strides;
    void *data;
    PyObject *description;
  } contents;
  DLManagedTensor *view;
  std::vector<int64_t> strides;
};

} // namespace fusion::python
