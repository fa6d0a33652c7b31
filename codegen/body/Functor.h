// The parameters of a kernel as its code names them, and structs of device functions over them.
#pragma once

#include "codegen/Schedule.h"
#include "codegen/body/Code.h"
#include "ir/scalar/Graph.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fusion::body {

class KernelSource;

/// Where code stands that names parameters of the kernel. Each is made on first use.
class Scope {
public:
  virtual ~Scope() = default;

  /// The pointer of an input or output: `in0`, `out1`.
  std::string input(unsigned index);
  std::string output(unsigned index);
  /// The same for loads of the graph; knows whether 4-bit elements are packed.
  scalar::Pointer pointer(unsigned input, scalar::Access access = scalar::Access::Plain);
  /// An expression for a size: a literal if static, else a parameter (one for each distinct Dim).
  std::string size(const Dim &dim);
  scalar::Value size(scalar::Graph &graph, const Dim &dim);
  /// A constant table at file scope; returns its name.
  std::string table(DType type, llvm::ArrayRef<std::string> literals);

  /// Linear index of an element of a view: offset + Σ index[i] * stride[i], as a value of the graph.
  scalar::Value address(scalar::Graph &graph, const View &view, llvm::ArrayRef<scalar::Value> index);
  scalar::Value address(scalar::Graph &graph, const DimShape &shape, llvm::ArrayRef<scalar::Value> index);
  /// The same as text: the place of `indices` in a tensor of `sizes` whose dims lie in the order `order`, the
  /// innermost last. Nested products need fewer sizes in registers than a stride for every dim.
  std::string place(llvm::ArrayRef<std::string> indices, llvm::ArrayRef<Dim> sizes,
                    llvm::ArrayRef<int64_t> order);
  /// The index of each dim of `shape` (row-major) of linear index `linear`. `narrow`: it is below 2^32, so
  /// that divisions, slow in 64 bits, are of 32.
  llvm::SmallVector<scalar::Value> delinearize(scalar::Graph &graph, scalar::Value linear,
                                               const DimShape &shape, bool narrow = false);

protected:
  virtual KernelSource &kernel() = 0;
  virtual void use(const KernelPlan::Parameter &) {}
};

/// Members of a struct: type (with its space or asterisk) and name.
using Members = std::vector<std::pair<std::string, std::string>>;
/// Their declarations, those of one type in a line.
std::string declarations(const Members &members, unsigned indent);

/// A struct of device functions whose members are the kernel's parameters that it uses.
class Functor : public Scope {
public:
  Functor(KernelSource &kernel, std::string name) : source(kernel), name(std::move(name)) {}

  /// A member that is no parameter of the kernel: something else of the entry point, by whose name the struct
  /// is initialised.
  std::string argument(std::string_view type, std::string_view member);
  /// A member that functions set; zero at first.
  void member(std::string_view type, std::string_view member);
  /// Types in front of the functions.
  void declare(std::string_view text) { types += text; }
  /// A member function: `signature` without the brace ("DEVICE void operator()(i64 row) const").
  void method(std::string_view signature, const Code &code);
  /// The same of one that returns an expression.
  void method(std::string_view signature, std::string_view returned);

  bool empty() const { return methods.empty(); }
  std::string text() const;
  /// An object of it: `Body{in0, n0}`.
  std::string instance() const;

protected:
  KernelSource &kernel() override { return source; }
  void use(const KernelPlan::Parameter &parameter) override;

private:
  KernelSource &source;
  std::string name, types, methods;
  Members parameters[4]; ///< inputs, outputs, arguments, sizes
  Members states;
};

} // namespace fusion::body
