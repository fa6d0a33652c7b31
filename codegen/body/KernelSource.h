// The source of a kernel that instantiates a template of codegen/device: includes, the ops as a comment,
// Config, functors, one entry point.
#pragma once

#include "codegen/body/Config.h"
#include "codegen/body/Functor.h"

#include <deque>
#include <map>
#include <optional>

namespace fusion::body {

/// How the entry point is launched.
struct Entry {
  std::string schedule;       ///< "pointwise"
  std::string function = {};  ///< the template: "pointwise_rows"; it waits for the kernel before (pdl_wait)
  std::string arguments = {}; ///< of the template after the functor: names of parameters, expressions
  std::string code = {};      ///< instead of a call of `function`: the lines of the entry point
  std::string name;           ///< what the kernel does: "add_rms_norm_bf16_4096"; see kernelName
  uint32_t threads = 256;
  uint32_t residentBlocks = 0; ///< that must fit on a multiprocessor; 0 leaves the registers to the compiler
  uint32_t clusterBlocks = 1;
};

/// `nn.add`, `nn.rms_norm` of bf16 and 4096 columns: "add_rms_norm_bf16_4096". Letters, digits and
/// underscores, at most 60.
std::string kernelName(const Region &region, const KernelContext &context);

/// Gives a kernel another name, for one that another kernel of the plan has.
void renameKernel(KernelPlan &kernel, const std::string &name);

/// What it declares itself is the entry point's. `config` and `body` are the ones of a kernel of one functor;
/// others declare theirs.
class KernelSource : public Scope {
public:
  /// `inputs`: the views of the region's inputs.
  KernelSource(const Region &region, llvm::ArrayRef<View> inputs);
  KernelSource(const KernelSource &) = delete; // functors refer to it

  void include(std::string_view file);
  /// Types and functions at file scope, in front of the entry point: whole lines.
  void declare(std::string_view text) { declarations += text; }
  /// A tensor map of an input; `map` says all but the buffer.
  std::string tensorMap(unsigned input, TensorMapArgument map);
  /// Memory of so many i32 that the kernels of a region share.
  std::string scratch(const Dim &elements, bool written);
  /// Memory of so many f32 between the kernels of two regions: KernelContext::sumsSquares.
  std::string squares(const Dim &elements, bool written);
  /// The pointer of this rank's Exchange.
  std::string exchange();

  /// The kernel: `template<Config>(Body{…})`, or what the entry says. Its arguments are in the order of its
  /// parameters.
  KernelDraft finish(const Entry &entry);

  Names names;
  Config config;
  Functor body{*this, "Body"};

protected:
  KernelSource &kernel() override { return *this; }

private:
  friend class Scope;
  const KernelPlan::Parameter &inputParameter(unsigned index);
  const KernelPlan::Parameter &outputParameter(unsigned index);
  const KernelPlan::Parameter &sizeParameter(const Dim &dim);
  bool isPackedInput(unsigned index) const { return index < views.size() && isPacked(views[index]); }
  std::string comments() const;

  const Region &region;
  llvm::ArrayRef<View> views;
  std::vector<std::string> includes;
  std::string declarations;
  std::map<unsigned, KernelPlan::Parameter> inputs, outputs;
  std::optional<KernelPlan::Parameter> exchanged;
  std::vector<std::pair<KernelPlan::Parameter, KernelDraft::Argument>>
      others; ///< tensor maps, scratch memory, squares
  std::deque<std::pair<Dim, KernelPlan::Parameter>> sizes;
};

} // namespace fusion::body
